"""The exam of the detector: faults put into windows, scorers that are compared, and the file of every score."""
