"""The past of a site walked through by the code of the watch: jobs, events, CPU scores."""
