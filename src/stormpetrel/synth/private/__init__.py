"""A generator with a differential-privacy guarantee: sessions out of noisy counts."""
