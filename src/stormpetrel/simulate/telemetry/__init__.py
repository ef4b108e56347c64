"""Simulated CPU telemetry: 1 Hz traces of the threads of a cluster, with the kernel's own resolution."""
