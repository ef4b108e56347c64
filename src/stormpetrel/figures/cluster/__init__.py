"""Figures of the cluster as a whole: counts, score, background, where."""
