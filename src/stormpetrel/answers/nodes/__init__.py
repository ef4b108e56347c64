"""Nodes and the windows of their CPU threads: what the trace model says of them."""
