"""Acting: which policies a site has, and what an act is."""
