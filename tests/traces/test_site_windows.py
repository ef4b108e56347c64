"""A site's windows put together again, and the model in use judged on those that came after it was trained."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.records.windows import cut_windows, join_windows
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
from stormpetrel.traces.site_windows import joined_traces, study_in_use
from tests.traces.small import STEPS, small_trace, small_windows


class Blind:
    """A scorer that sees the mean of each mode and finds everything equally far."""

    settings = AutoencoderSettings(architecture=Architecture.FAST, steps=STEPS)

    def embed(self, windows):
        return windows.rates.mean(axis=1)

    def score(self, windows):
        return windows.rates.var(axis=1).sum(axis=1).astype(np.float64)


def test_windows_side_by_side_are_the_trace_that_they_were_cut_from():
    trace = small_trace(0, steps=4 * STEPS)
    (joined,) = joined_traces(cut_windows(trace, steps=STEPS))
    again = cut_windows(joined.checked(), steps=STEPS)
    before = cut_windows(trace, steps=STEPS)
    assert np.array_equal(again.rates, before.rates) and np.array_equal(again.start_s, before.start_s)
    assert again.job_types().tolist() == [kind if kind != "Mixed" else "" for kind in before.job_types().tolist()]


def test_a_break_in_time_makes_two_traces_and_a_lost_thread_a_gap():
    windows = small_windows(0, steps=6 * STEPS)
    moments = np.unique(windows.start_s)
    kept = windows.take((windows.start_s != moments[2]) & ~((windows.start_s == moments[4]) & (windows.cpu == 0)))
    first, second = joined_traces(kept)
    assert (first.steps, second.steps) == (2 * STEPS, 3 * STEPS)
    assert np.isnan(second.rates[STEPS : 2 * STEPS, np.array(second.cpus) == 0]).all()
    assert not np.isnan(first.rates).any()


def test_a_model_is_judged_on_later_windows_only():
    windows = join_windows([small_windows(0, name="a"), small_windows(1, name="b")])
    cut_s = float(windows.start_s[windows.trace == 0].max())
    study = study_in_use(Blind(), windows, cut_s)
    assert study.split.test.start_s.min() > cut_s and set(np.unique(study.split.test.trace)) == {1}
    assert set(study.evaluation.models) == {Architecture.FAST}
    assert set(study.evaluation.why) == {Architecture.VANILLA, Architecture.NODE_GNN, Architecture.JOB_GNN}


def test_a_model_that_learnt_nothing_here_is_judged_on_the_later_half():
    study = study_in_use(Blind(), small_windows(0), None)
    assert study.split.train.start_s.max() < study.split.test.start_s.min()


def test_nothing_recorded_since_the_training_is_an_error():
    windows = small_windows(0)
    with pytest.raises(ModelError, match="cannot be judged"):
        study_in_use(Blind(), windows, float(windows.start_s.max()))
