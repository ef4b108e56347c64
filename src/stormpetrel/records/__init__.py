"""The vocabulary: frame schemas, job states, units, time. No input, no output."""
