"""Runs on a compute node: /proc/stat and cgroups -> Prometheus text. Standard library only, also as one file."""
