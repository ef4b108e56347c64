"""Job scripts and submit files: what a person is about to submit to Slurm, PBS, LSF or HTCondor."""
