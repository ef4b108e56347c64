"""Tables of event counts, their gaps, their background, and outages."""
