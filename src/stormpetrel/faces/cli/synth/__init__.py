"""`stormpetrel synth`: more jobs like those of a site, in an order like theirs, safe to share."""
