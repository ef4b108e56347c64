"""Advice on jobs: what to request for a kind of job, whether the cluster can run it, and why it waits."""
