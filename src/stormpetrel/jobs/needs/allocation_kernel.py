"""The compiled core of allocation: what an amount would waste, and the amount that wastes least, under a forecast of the use.

A forecast is a distribution over `steps`, amounts in ascending order: (job, step), with rows that sum to one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_RETRIES: Final = 60  # doublings: from one byte to more than there is
NEARLY: Final = 0.995  # of the request: not worth telling from it


@njit(cache=True)
def waste(granted: Floats, used: Floats) -> Floats:
    """What each job wastes in all its attempts: a failed one counts whole and is repeated with double."""
    out = np.zeros(granted.size)
    for job in range(granted.size):
        amount = granted[job]
        for _ in range(MOST_RETRIES):
            if amount >= used[job]:
                break
            out[job] += amount
            amount *= 2.0
        out[job] += max(amount - used[job], 0.0)
    return out


@njit(cache=True)
def _expected_waste(steps: Floats, below: Floats, mass: Floats, place: int) -> float:
    """Expected waste of giving `steps[place]`; `below` and `mass` are running sums of probability and of probability × amount."""
    amount, spent, lower = steps[place], 0.0, -1
    total = 0.0
    upper = place
    last = steps.size - 1
    while True:
        share = below[upper] - (below[lower] if lower >= 0 else 0.0)
        amounts = mass[upper] - (mass[lower] if lower >= 0 else 0.0)
        total += share * (spent + amount) - amounts
        if upper >= last:
            return float(total)
        spent += amount
        amount *= 2.0
        lower = upper
        while upper < last and steps[upper + 1] <= amount:
            upper += 1


@njit(cache=True)
def choose(
    chance: NDArray[np.float32],
    steps: NDArray[np.float32],
    limit: Floats,
    price: Floats,
    most_risk: float,
    granted: Floats,
    risk: Floats,
) -> None:
    """Write the amount with the least expected waste + price × risk of too little to `granted`, and that risk to `risk`.

    `limit` is the request relative to the anchor: nothing above it is granted, and use beyond it counts as at it (NaN: none).
    `price` is in units of the amount. An amount with more than `most_risk` of being too little is never chosen.
    """
    size = steps.shape[1]
    own = np.empty(size + 1)
    below = np.empty(size + 1)
    mass = np.empty(size + 1)
    for job in range(chance.shape[0]):
        count = 0
        sum_chance, sum_mass = 0.0, 0.0
        top = limit[job]
        for step in range(size):
            if not np.isnan(top) and steps[job, step] >= NEARLY * top:
                break
            sum_chance += chance[job, step]
            sum_mass += chance[job, step] * steps[job, step]
            own[count], below[count], mass[count] = steps[job, step], sum_chance, sum_mass
            count += 1
        if not np.isnan(top):
            own[count], below[count], mass[count] = top, 1.0, sum_mass + (1.0 - sum_chance) * top
            count += 1
        best, best_cost = count - 1, np.inf
        for place in range(count):
            short = max(0.0, 1.0 - below[place])
            if short > most_risk and place < count - 1:
                continue
            cost = _expected_waste(own[:count], below[:count], mass[:count], place) + price[job] * short
            if cost < best_cost:
                best, best_cost = place, cost
        granted[job] = own[best]
        risk[job] = max(0.0, 1.0 - below[best])
