"""Outages as a site would write its own, named on the command line as MODULE:FUNCTION."""

from __future__ import annotations

import numpy as np

NOT_CALLABLE = 3


def cooling_failure(counts, kinds, severity, seed):
    """Everything stops, however severe."""
    changed = counts.copy()
    changed[:-6] = 0
    return changed


def of_another_shape(counts, kinds, severity, seed):
    return np.zeros(3)
