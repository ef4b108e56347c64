from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL, UNLABELLED, EventSeries
from stormpetrel.records.outages import OutageKind
from stormpetrel.simulate.grid.outages import (
    AFTERMATH_HOURS,
    GAP_HOURS,
    OUTAGES,
    SEVERITIES,
    PlannedOutage,
    inject,
    live_kinds,
    outages_of,
    plan_outages,
)

KINDS = ("Submit", "Execute", "JobTerminated", "NodeFailed")


def made_series(hours=400, seed=0, bucket_s=3600):
    counts = np.random.default_rng(seed).poisson([200, 200, 190, 0], (hours, 4)).astype(float)
    start_s = 1_736_121_600 + bucket_s * np.arange(hours)
    return EventSeries(start_s, bucket_s, KINDS, counts, np.full(hours, NORMAL, dtype=np.int8))


def test_types_and_severities_come_equally_often_and_in_any_order():
    plan = plan_outages(8400, per_week=1.2, seed=3)
    assert len(plan) == 60
    assert set(Counter((one.outage_type, one.severity) for one in plan).values()) == {4}
    some = plan_outages(3360, per_week=1.0, seed=3)
    assert max(Counter(one.outage_type for one in some).values()) == 4
    assert [one.outage_type for one in some] != [one.outage_type for one in plan_outages(3360, per_week=1.0, seed=4)]


@pytest.mark.parametrize("seed", range(8))
def test_outages_keep_apart_and_out_of_what_is_to_be_avoided(seed):
    avoid = np.zeros(3000, dtype=bool)
    avoid[1000:1500] = True
    plan = plan_outages(3000, per_week=1.8, seed=seed, avoid=avoid)
    assert plan == sorted(plan, key=lambda one: one.first)
    assert all(after.first - before.last >= GAP_HOURS for before, after in pairwise(plan))
    for one in plan:
        assert 1 <= one.hours <= 24 and one.first >= 0 and one.last + AFTERMATH_HOURS <= 3000
        assert not avoid[one.first : one.last + AFTERMATH_HOURS].any()


def test_lengths_reach_from_an_hour_to_a_day():
    hours = [one.hours for one in plan_outages(8400, per_week=1.2, seed=0)]
    assert min(hours) == 1 and max(hours) >= 20 and 3 <= np.median(hours) <= 7


def test_a_plan_repeats_from_its_seed():
    assert plan_outages(2000, per_week=1.0, seed=5) == plan_outages(2000, per_week=1.0, seed=5)
    assert len({one.seed for one in plan_outages(2000, per_week=1.0, seed=5)}) == 12


def test_no_outages_are_a_plan_too():
    assert plan_outages(2000, per_week=0, seed=0) == []
    assert plan_outages(24, per_week=1.0, seed=0) == []


def test_more_than_fits_is_refused():
    with pytest.raises(UsageError, match="do not fit"):
        plan_outages(168, per_week=40, seed=0)
    with pytest.raises(UsageError, match="do not fit"):
        plan_outages(336, per_week=1, seed=0, avoid=np.ones(336, dtype=bool))


def test_outages_are_put_in_and_labelled_and_the_rest_stays_as_it_was():
    series = made_series()
    plan = [PlannedOutage(100, 5, "black_hole", "severe", 1), PlannedOutage(200, 1, "submit_unresponsive", "severe", 2)]
    made = inject(series, plan)
    assert np.flatnonzero(made.label == ANOMALY).tolist() == [*range(100, 105), 200]
    changed = np.flatnonzero((made.counts != series.counts).any(axis=1))
    assert set(changed) <= {*range(100, 111), *range(200, 207)} and {101, 102, 103, 200} <= set(changed)
    assert made.counts[101:104, 1].min() > 1.5 * series.counts[101:104, 1].max()
    assert (series.label == NORMAL).all()  # a series is not changed, another is made


def test_gaps_stay_gaps_and_labels_of_others_stay():
    series = made_series()
    series.counts[102] = np.nan
    series.label[108:120] = MAINTENANCE
    made = inject(series, [PlannedOutage(100, 5, "slow_storage", "severe", 1)])
    assert np.flatnonzero(made.is_gap).tolist() == [102]
    assert (made.label[108:120] == MAINTENANCE).all()


@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_kind_that_the_series_never_has_gives_no_outage_away(name, severity):
    series = made_series()
    series.counts[7, 3] = 1  # once is not enough
    assert live_kinds(series).tolist() == [True, True, True, False]
    made = inject(series, [PlannedOutage(100, 9, name, severity, 1)])
    assert np.array_equal(made.counts[:, 3], series.counts[:, 3])
    assert not np.array_equal(made.counts, series.counts)


def test_outages_of_others_are_put_in_by_their_name():
    made = inject(made_series(), [PlannedOutage(50, 2, "mine:x", "mild", 1)], {"mine:x": lambda counts, *_: counts * 0})
    assert not made.counts[50:58, :3].any()


@pytest.mark.parametrize(
    ("series", "one", "words"),
    [
        (made_series(), PlannedOutage(50, 2, "flood", "mild", 1), "Unknown outage 'flood'"),
        (made_series(), PlannedOutage(390, 8, "black_hole", "mild", 1), "do not lie within"),
        (made_series(bucket_s=60), PlannedOutage(50, 2, "black_hole", "mild", 1), "buckets of 60 s"),
    ],
)
def test_what_cannot_be_put_in_is_refused(series, one, words):
    with pytest.raises(UsageError, match=words):
        inject(series, [one])


def test_planned_outages_are_spans_with_a_name():
    series = made_series().with_labels(np.full(400, UNLABELLED))
    (one,) = outages_of(series, [PlannedOutage(100, 5, "black_hole", "severe", 1)])
    assert one.start == series.moment(100) and one.end == series.moment(105)
    assert one.kind is OutageKind.OUTAGE and one.title == "black hole (severe)" and one.severity == "severe" and one.uid
