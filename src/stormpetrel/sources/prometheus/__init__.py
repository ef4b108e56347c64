"""Prometheus and servers that speak its API: CPU traces, live windows, background series."""
