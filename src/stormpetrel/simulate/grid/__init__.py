"""A simulated HTCondor grid: hourly counts of job events, event logs, outages."""
