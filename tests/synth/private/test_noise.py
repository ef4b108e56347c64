"""The noise of the private generator: its distribution, and where it comes from."""

import random
from fractions import Fraction

import numpy as np
import pytest

from stormpetrel.synth.private.noise import FROM_SEED, FROM_SYSTEM, SeededNoise, SystemNoise, discrete_laplace


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(47, 3), Fraction(10**9 + 7, 10**7)])
def test_noise_has_the_stated_scale(scale):
    drawn = SeededNoise(1).draw(scale, 6000)
    likely = np.exp(-1 / float(scale))
    variance = 2 * likely / (1 - likely) ** 2  # of the discrete Laplace distribution
    assert drawn.var() == pytest.approx(variance, rel=0.12)
    assert abs(drawn.mean()) < 5 * np.sqrt(variance / len(drawn))


def test_each_value_is_as_likely_as_the_formula_says():
    drawn = SeededNoise(2).draw(Fraction(3, 2), 20_000)
    likely = np.exp(-2 / 3)
    for value in range(-3, 4):
        expected = (1 - likely) / (1 + likely) * likely ** abs(value)
        assert (drawn == value).mean() == pytest.approx(expected, abs=5 * np.sqrt(expected / 20_000))


def test_a_tiny_scale_is_no_noise_and_a_huge_one_is_drawn_whole():
    assert not SeededNoise(0).draw(Fraction(1, 10**9), 200).any()
    assert abs(discrete_laplace(Fraction(10**40), random.Random(0))) > 10**30
    assert (np.abs(SeededNoise(0).draw(Fraction(10**40), 20)) <= 2**52).all()


def test_noise_of_the_system_cannot_be_drawn_again_and_noise_of_a_seed_can_and_says_so():
    again = [noise.draw(Fraction(1000), 8).tolist() for noise in (SystemNoise(), SystemNoise(), SeededNoise(3), SeededNoise(3))]
    assert again[0] != again[1] and again[2] == again[3]
    assert SystemNoise().salt() != SystemNoise().salt()
    assert (SystemNoise().source, SeededNoise(0).source) == (FROM_SYSTEM, FROM_SEED)
