"""Programs that answer like sacct, sbatch and scancel, over a simulated cluster."""
