"""Slurm: sacct text and JSON, squeue, slurmrestd, nodes, reservations."""
