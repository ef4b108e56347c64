"""IBM Spectrum LSF: lsb.acct, `bacct -l`, `bhist -l`, and the reports with which it mails the end of a job."""
