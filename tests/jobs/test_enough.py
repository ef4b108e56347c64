"""What there is to learn from at each moment is counted as the training itself takes it."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.training import ClassCounts, TrainingSettings, class_counts, label_jobs
from tests.jobs.logs import make_log


@pytest.mark.parametrize("settings", [TrainingSettings(), TrainingSettings(dropped_states=("CANCELLED",), min_run_s=60.0)])
def test_the_counts_are_those_of_the_rows_that_a_training_takes(settings):
    log = make_log(300, seed=5, cancelled=0.2, never_started=0.1, unfinished=0.1)
    labelled = label_jobs(log, settings)
    for moment, counts in class_counts(log, settings).items():
        rows = labelled.failed[labelled.reached(moment)]
        assert (counts.failed, counts.others) == (int(rows.sum()), int((~rows).sum()))


def test_jobs_that_end_within_two_minutes_count_for_the_first_two_moments_only():
    log = make_log(200, seed=1).with_columns(
        end_time=pl.col("start_time") + pl.duration(seconds=90),
        elapsed_s=pl.when(pl.col("elapsed_s") > 0).then(90.0).otherwise(0.0),
    )
    counts = class_counts(log, TrainingSettings())
    assert counts[Moment.SUBMIT].enough and counts[Moment.START].enough
    assert counts[Moment.TWO_MINUTES] == ClassCounts(Moment.TWO_MINUTES, 0, 0)


def test_the_words_say_what_is_needed_and_what_is_there():
    words = ClassCounts(Moment.TWO_MINUTES, 3, 40).words()
    assert words == (
        "no model two minutes in: it needs 10 failed and 10 other jobs that ran longer than two minutes, and has 3 and 40"
    )


def test_a_site_without_jobs_has_nothing_of_anything():
    counts = class_counts(make_log(1).clear(), TrainingSettings())
    assert list(counts) == list(MOMENTS) and not any(one.enough for one in counts.values())
