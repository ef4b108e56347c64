"""Mail to users: what Slurm's MailProg left in the spool, in words that help."""
