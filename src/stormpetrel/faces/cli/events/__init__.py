"""`stormpetrel events`: alarms about the cluster as a whole, from counts of job events."""
