"""Baselines of allocation: the users' own request, and three rules over what the same work used before.

readings of PastUse + requests -> amounts. None gives more than was requested, and all give the request where nothing is known.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.jobs.needs.features import narrowest

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

REQUEST: Final = "request"
MAX_HEAD_ROOM: Final = 1.2


def baseline_amounts(readings: Matrix, request: Floats) -> dict[str, Floats]:
    """What each baseline gives each job.

    `max_of_last`: the most of the last 32 runs × 1.2. `tovar`: the first allocation of Tovar et al. (2018), which costs least if
    whoever needs more is given the most that was seen. `witt`: the 95th percentile of Witt et al. (2019). All over the narrowest
    group of past jobs that is known.
    """
    rules = {
        "max_of_last": MAX_HEAD_ROOM * np.exp(narrowest(readings, "max")),
        "tovar": np.exp(narrowest(readings, "first_allocation")),
        "witt": np.exp(narrowest(readings, "q95")),
    }
    return {REQUEST: request, **{name: np.where(np.isnan(rule), request, np.fmin(rule, request)) for name, rule in rules.items()}}
