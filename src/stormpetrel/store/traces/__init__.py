"""Tables of CPU windows, their scores, and named regions of the embedding."""
