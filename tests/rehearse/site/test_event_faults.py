"""Outages put into a site's own event counts."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.records.events import COVERED, PLACES, WHOLE
from stormpetrel.rehearse.site.event_faults import EVENT_FAULTS, EventFaults
from tests.parts.counted_grid import START, counted_grid

AT = START + timedelta(days=9, hours=7)


@pytest.fixture(scope="module")
def counts():
    return counted_grid(days=14).with_columns(month=pl.col("bucket_start").dt.strftime("%Y-%m"))


@pytest.mark.parametrize("kind", EVENT_FAULTS)
def test_an_outage_changes_the_counts_of_its_hours_and_of_the_six_after_it(counts, kind):
    faults = EventFaults(counts, 3600)
    fault = faults.put(kind, "severe", AT, np.random.default_rng(3))
    assert fault is not None and fault.hit
    changed = faults.counts.join(counts, on=counts.columns, how="anti")
    gone = counts.join(faults.counts, on=counts.columns, how="anti")
    touched = pl.concat([changed["bucket_start"], gone["bucket_start"]])
    assert fault.since <= touched.min() and touched.max() < fault.until + timedelta(hours=6)


def test_places_still_sum_to_the_whole(counts):
    faults = EventFaults(counts, 3600)
    faults.put("black_hole", "severe", AT, np.random.default_rng(3))
    body = faults.counts.filter(pl.col("kind") == "Execute")
    sums = body.group_by("place").agg(pl.col("count").sum())
    totals = dict(sums.iter_rows())
    assert {totals[place] for place in PLACES} == {totals[WHOLE]}


def test_a_silent_host_has_no_event_left_and_the_others_have_theirs(counts):
    faults = EventFaults(counts, 3600)
    fault = faults.put("submit_host_silent", "severe", AT, np.random.default_rng(3))
    host = fault.place.removeprefix("submit_host ")
    inside = faults.counts.filter(
        pl.col("place") == "submit_host", pl.col("bucket_start") >= fault.since, pl.col("bucket_start") < fault.until
    )
    assert host not in set(inside["value"]) and inside["count"].sum() > 0


def test_buckets_stay_seen_whole(counts):
    faults = EventFaults(counts, 3600)
    faults.put("cluster_silent", "severe", AT, np.random.default_rng(3))
    marks = pl.col("kind") == COVERED
    assert faults.counts.filter(marks).height == counts.filter(marks).height


def test_an_outage_is_not_put_where_somebody_has_looked_away(counts):
    torn = counts.filter(pl.col("bucket_start") != AT.replace(minute=0))
    assert EventFaults(torn, 3600).put("black_hole", "mild", AT, np.random.default_rng(3)) is None


def test_counts_of_job_records_are_no_event_log(counts):
    of_jobs = counts.with_columns(source=pl.lit("jobs:all"))
    assert "no event log" in EventFaults(of_jobs, 3600).missing and not EventFaults(counts, 3600).missing
