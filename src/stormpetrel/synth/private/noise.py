"""Noise that hides one user: the discrete Laplace distribution, drawn exactly.

scale as a fraction -> SystemNoise.draw -> whole numbers. P(x) is proportional to exp(-|x| / scale) on the whole numbers. It is
drawn from random bits with whole-number arithmetic alone (Canonne, Kamath, Steinke 2020, algorithms 1 and 2): noise made of
floating-point numbers has holes that give the true count away (Mironov 2012).
"""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Final, Protocol

import numpy as np

from stormpetrel.records.arrays import Ints

FROM_SYSTEM: Final = "operating system"
FROM_SEED: Final = "a known seed"
_MOST: Final = 2**52  # what is cut off beyond is post-processing, and keeps sums of counts within 64 bits


class Noise(Protocol):
    """Where the noise of a fit comes from; `source` is reported with the result."""

    source: str

    def draw(self, scale: Fraction, size: int) -> Ints:
        """(size,) independent draws."""
        ...

    def salt(self) -> int:
        """64 bits that decide which jobs of a user are counted."""
        ...


class SystemNoise:
    """Noise from the random bits of the operating system: nobody can draw it again."""

    source = FROM_SYSTEM

    def __init__(self) -> None:
        self._bits: random.Random = random.SystemRandom()

    def draw(self, scale: Fraction, size: int) -> Ints:
        """(size,) independent draws."""
        drawn = (discrete_laplace(scale, self._bits) for _ in range(size))
        return np.array([min(max(value, -_MOST), _MOST) for value in drawn], dtype=np.int64)

    def salt(self) -> int:
        """64 bits that decide which jobs of a user are counted."""
        return self._bits.getrandbits(64)


class SeededNoise(SystemNoise):
    """The same distribution from a seed, for tests: whoever knows the seed subtracts the noise, and nothing is guaranteed."""

    source = FROM_SEED

    def __init__(self, seed: int) -> None:
        self._bits = random.Random(seed)  # noqa: S311 - tests only; the result says so


def discrete_laplace(scale: Fraction, bits: random.Random) -> int:
    """One draw, exact for a scale that is a fraction."""
    t, s = scale.numerator, scale.denominator
    while True:
        rest = bits.randrange(t)
        if not _bernoulli_exp(rest, t, bits):
            continue
        whole = 0
        while _bernoulli_exp(1, 1, bits):
            whole += 1
        size = (rest + t * whole) // s
        negative = bits.getrandbits(1)
        if negative and not size:
            continue  # zero would come twice as often
        return -size if negative else size


def _bernoulli_exp(numerator: int, denominator: int, bits: random.Random) -> bool:
    """True with probability exp(-numerator / denominator), for a fraction of 0 to 1."""
    step = 1
    while bits.randrange(denominator * step) < numerator:
        step += 1
    return step % 2 == 1
