"""`stormpetrel traces`: what CPU threads, jobs and nodes do, and whether it is normal."""
