"""The dashboard: pages of jobs, trends, waste, profiles, model and health, out of the same data as every other face."""
