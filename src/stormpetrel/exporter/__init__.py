"""Runs on a compute node: /proc/stat and cgroups -> Prometheus text. Standard library only, also as one file.

proc_stat, job_groups, processes -> sampler -> exporter -> server. The code runs with Python 3.9, which enterprise
distributions ship.
"""
