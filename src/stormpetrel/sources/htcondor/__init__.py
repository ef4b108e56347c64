"""HTCondor: job event logs and history, as job rows and as event counts."""
