"""Splits of traces: by campaign, or by name and time; never at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import Split
from stormpetrel.traces.campaign_splits import Cut, split_traces, steps_of, teaching_windows
from tests.traces.small import STEPS, small_trace


def run(seed, split=None, *, steps=160, name=None):
    return replace(small_trace(seed, steps=steps, name=name or f"run-{seed}", nodes=1), split=split)


def campaigns(*splits):
    return [run(seed, split) for seed, split in enumerate(splits)]


def test_campaigns_go_where_they_say():
    traces = campaigns(Split.TEST, Split.TRAIN, Split.VALIDATION, Split.TRAIN)
    split = split_traces(traces, Cut(STEPS))
    assert (split.train.traces, split.validation.traces, split.test.traces) == (("run-1", "run-3"), ("run-2",), ("run-0",))
    assert split.counts() == {"train": 160, "validation": 80, "test": 80, "left_out": 0}
    assert split.test.is_anomalous().any() and split.train.is_anomalous().any()  # models leave them out themselves


def test_without_a_validation_campaign_the_last_part_of_each_training_run_is_taken():
    split = split_traces(campaigns(Split.TRAIN, Split.TRAIN, Split.TEST), Cut(STEPS))
    for number in (0, 1):
        ends = split.train.start_s[split.train.trace == number].max() + STEPS
        assert ends <= split.validation.start_s[split.validation.trace == number].min()
    assert split.validation.traces == ("run-0", "run-1")


def test_runs_without_a_split_are_taken_by_time():
    names = ("b", "a", "d", "c", "h", "g", "f", "e")
    split = split_traces([run(seed, name=name) for seed, name in reversed(list(enumerate(names)))], Cut(STEPS))
    assert split.train.traces == ("b", "a", "d", "c", "h") and split.test.traces == ("g", "f", "e")
    assert split.validation.traces == split.train.traces


def later(trace, by_s, name):
    return replace(trace, time_s=trace.time_s + by_s, name=name)


def test_runs_that_overlap_in_time_are_on_one_side():
    one, other = run(0), run(1)
    split = split_traces([later(other, 40, "other too"), one, other, later(one, 100, "one too")], Cut(STEPS))
    assert split.train.traces == ("run-0", "one too") and split.test.traces == ("run-1", "other too")


def test_what_two_runs_saw_of_a_node_at_a_second_counts_once():
    split = split_traces([run(0), later(run(0), 80, "again"), run(1)], Cut(STEPS))
    starts = np.unique(np.concatenate([split.train.start_s, split.validation.start_s]))
    assert (np.diff(starts) >= STEPS).all() and starts[-1] + STEPS <= run(0).time_s[-1] + 80
    assert len(split.train) + len(split.validation) == 8 * starts.size  # eight threads, each once


def test_campaigns_that_overlap_are_refused_on_both_sides():
    overlapping = later(run(0, Split.TEST), 150, "late")
    with pytest.raises(UsageError, match="'run-0' is for train and 'late' for test, and they overlap by 10 s"):
        split_traces([run(0, Split.TRAIN), overlapping], Cut(STEPS))


def test_overlapping_runs_alone_are_split_by_the_time_they_share():
    others = replace(run(0), name="others", nodes=("m1",) * run(0).threads)
    split = split_traces([run(0), later(run(0), 40, "late"), others], Cut(STEPS))
    last_taught = max(split.train.start_s.max(), split.validation.start_s.max()) + STEPS
    assert split.test.start_s.min() >= last_taught and set(split.spans.values()) == {0}
    assert set(split.train.traces) == {"run-0", "others"} and "late" in split.test.traces  # what it repeats counts once


def test_no_run_is_refused():
    with pytest.raises(UsageError, match="There is no run: nothing would be left to test on"):
        split_traces([], Cut(STEPS))


def test_a_short_run_among_long_ones_teaches_whole():
    split = split_traces([run(0), run(1, steps=20), run(2), run(3)], Cut(STEPS))
    assert split.train.traces == ("run-0", "run-1") and split.validation.traces == ("run-0",)


def test_runs_of_different_steps_are_refused_with_both_names():
    slow = replace(run(1), step_s=5.0, time_s=run(1).time_s[0] + 5.0 * np.arange(160))
    with pytest.raises(UsageError, match=r"such as 1 s \('run-0'\) and 5 s \('run-1'\)"):
        split_traces([run(0), slow], Cut(STEPS))


def test_a_single_run_is_split_by_time():
    split = split_traces([run(0)], Cut(STEPS))
    last_taught = max(split.train.start_s.max(), split.validation.start_s.max())
    assert len(split.train) and len(split.validation) and split.test.start_s.min() >= last_taught + STEPS
    assert len(split.train) + len(split.validation) > len(split.test) > 0
    with pytest.raises(UsageError, match=r"'run-0' has 40 steps, too few to be split by time"):
        split_traces([run(0, steps=40)], Cut(STEPS))


@pytest.mark.parametrize("missing", [Split.TRAIN, Split.TEST])
def test_a_folder_without_train_or_test_is_refused_in_a_sentence(missing):
    others = [split for split in Split if split is not missing]
    with pytest.raises(UsageError, match=f"no campaign for {missing}; there are 1 for"):
        split_traces(campaigns(*others), Cut(STEPS))


def test_some_with_a_split_and_some_without_are_not_mixed():
    for split in (split_traces, teaching_windows):
        with pytest.raises(UsageError, match=r"others do not, such as 'run-1'"):
            split(campaigns(Split.TRAIN, None, Split.TEST), Cut(STEPS))


def test_a_run_too_short_to_be_cut_is_named():
    with pytest.raises(UsageError, match=r"Of the run 'a short one', 20 steps are for training; .* takes 32"):
        split_traces([run(0, steps=20, name="a short one"), run(1)], Cut(STEPS))


def test_campaigns_without_a_whole_window_are_refused():
    gappy = run(2, Split.TEST)
    gappy.rates[::8] = np.nan
    gappy.rates[1::8] = np.nan
    gappy.rates[2::8] = np.nan
    gappy.rates[3::8] = np.nan
    with pytest.raises(UsageError, match=r"for test have no whole window of 16 s \(80 gap\)"):
        split_traces([*campaigns(Split.TRAIN, Split.VALIDATION), gappy], Cut(STEPS))


def test_windows_may_overlap_within_a_part_and_never_between_parts():
    split = split_traces(campaigns(Split.TRAIN, Split.VALIDATION, Split.TEST), Cut(STEPS, stride_s=4))
    side_by_side = split_traces(campaigns(Split.TRAIN, Split.VALIDATION, Split.TEST), Cut(STEPS))
    assert len(split.train) > 3 * len(side_by_side.train)
    for early, late in ((split.train, split.validation), (split.validation, split.test)):
        assert early.start_s.max() + STEPS <= late.start_s.min()


def test_teaching_leaves_test_campaigns_alone():
    train, validation = teaching_windows(campaigns(Split.TRAIN, Split.TEST, Split.VALIDATION), Cut(STEPS))
    assert (train.traces, validation.traces) == (("run-0",), ("run-2",))
    train, validation = teaching_windows([run(0), run(1)], Cut(STEPS))
    assert train.traces == validation.traces == ("run-0", "run-1")
    with pytest.raises(UsageError, match="None of the campaigns is for training"):
        teaching_windows(campaigns(Split.TEST), Cut(STEPS))


def test_a_window_has_as_many_steps_as_fit():
    assert (steps_of(100, 1.0), steps_of(100, 10.0), steps_of(100, 0.1), steps_of(1, 1.0)) == (100, 10, 1000, 2)
