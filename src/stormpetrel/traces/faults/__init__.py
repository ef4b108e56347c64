"""The bench of faults: what may go wrong on a node, put into recorded windows on purpose, so that detectors can be judged."""
