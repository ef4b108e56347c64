"""The outside world, one file per kind of log or server: each turns what it reads into job frames."""
