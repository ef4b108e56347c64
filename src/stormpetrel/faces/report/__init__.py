"""The report: studies of a site's jobs, as tables and figures, on one page of HTML that needs nothing else."""
