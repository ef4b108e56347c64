"""Contests: champion and challengers of each family on the same recent data, shadows, and trainings that are repeated."""
