"""How much to ask for: what jobs will use of memory, time and CPUs, learned from what jobs like them used."""
