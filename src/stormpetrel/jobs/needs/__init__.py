"""How much to ask for: what jobs will use of memory and time, learned from what jobs like them used."""
