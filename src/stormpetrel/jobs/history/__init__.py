"""What was known about the jobs like this one at the moment of a prediction: keys, a compiled sweep over events, its shards."""
