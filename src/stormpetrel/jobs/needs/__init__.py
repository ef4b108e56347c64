"""How much to ask for: what jobs will use of memory, time, CPUs and GPUs, learned from what jobs like them used."""
