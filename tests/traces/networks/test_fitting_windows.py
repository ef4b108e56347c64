"""Windows of another length or step, as an encoder of fixed size sees them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.traces.networks.fitting_windows import fitted, unfitted
from tests.traces.small import small_windows

WINDOWS = small_windows(0, steps=64)  # of 16 steps of 1 s


def test_windows_that_fit_stay_as_they_are():
    assert fitted(WINDOWS, steps=16, step_s=1.0) is WINDOWS


def test_a_shorter_window_is_repeated():
    found = fitted(WINDOWS, steps=40, step_s=1.0).rates
    assert np.allclose(found[:, :16], WINDOWS.rates) and np.allclose(found[:, 16:32], WINDOWS.rates)
    assert np.allclose(found[:, 32:], WINDOWS.rates[:, :8])


def test_a_coarser_step_is_held_and_finer_ones_are_averaged():
    coarse = fitted(replace(WINDOWS, step_s=5.0), steps=80, step_s=1.0).rates
    assert np.allclose(coarse, np.repeat(WINDOWS.rates, 5, axis=1), atol=1e-6)
    fine = fitted(replace(WINDOWS, step_s=0.5), steps=8, step_s=1.0).rates
    assert np.allclose(fine, WINDOWS.rates.reshape(-1, 8, 2, 4).mean(axis=2), atol=1e-6)


def test_of_a_longer_window_all_of_it_is_seen():
    found = fitted(WINDOWS, steps=8, step_s=1.0).rates
    assert np.allclose(found, WINDOWS.rates.reshape(-1, 8, 2, 4).mean(axis=2), atol=1e-6)


@pytest.mark.parametrize(("step_s", "steps"), [(1.0, 100), (7.0, 100), (0.3, 100), (1.0, 7), (15.0, 100)])
def test_shares_sum_to_one_both_ways(step_s, steps):
    windows = replace(WINDOWS, step_s=step_s)
    there = fitted(windows, steps=steps, step_s=1.0)
    back = unfitted(there.rates, windows, step_s=1.0)
    assert there.rates.shape == (len(windows), steps, 4) and back.shape == windows.rates.shape
    assert np.allclose(there.rates.sum(axis=2), 1, atol=1e-5) and np.allclose(back.sum(axis=2), 1, atol=1e-5)


def test_what_comes_back_of_a_shorter_window_is_in_its_own_steps():
    there = fitted(WINDOWS, steps=48, step_s=1.0)
    assert np.allclose(unfitted(there.rates, WINDOWS, step_s=1.0), WINDOWS.rates, atol=1e-6)
