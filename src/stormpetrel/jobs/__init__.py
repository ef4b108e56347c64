"""Jobs: how likely a job is to fail, why, and what to ask for instead."""
