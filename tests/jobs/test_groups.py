"""Groups of users and jobs."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.jobs.groups import GroupLimits, activity, duration, job_type, user_groups
from stormpetrel.jobs.preparation import prepare
from stormpetrel.records.jobs import job_frame
from tests.builders import T0

GIB = 2**30


def grouped(rows, limits=None):
    common = {"cluster": "c", "submit_time": T0, "restart": 0, "state": "COMPLETED", "start_time": T0, "user": "ada", "cpus": 2}
    jobs = job_frame([{**common, "job_id": k, "end_time": T0 + timedelta(seconds=60), **row} for k, row in enumerate(rows)])
    chosen = limits or GroupLimits()
    return prepare(jobs).frame.with_columns(activity(chosen), duration(chosen), job_type(chosen))


def test_durations_are_short_below_an_hour_and_long_above_eight():
    ends = [{"end_time": T0 + timedelta(seconds=s)} for s in (3599, 3600, 28_800, 28_801)]
    assert grouped(ends)["duration"].to_list() == ["Short", "Medium", "Medium", "Long"]


def test_a_job_that_has_not_ended_has_no_duration():
    assert grouped([{}, {"state": "RUNNING", "end_time": None}])["duration"].to_list() == ["Short", None]


def test_activity_counts_only_jobs_submitted_before():
    rows = [{"submit_time": T0 + timedelta(seconds=k), "start_time": T0 + timedelta(hours=1)} for k in range(6)]
    limits = GroupLimits(new_below_jobs=2, frequent_from_jobs=4)
    first = grouped(rows, limits)["activity"].to_list()
    assert first == ["New", "New", "Infrequent", "Infrequent", "Frequent", "Frequent"]
    assert grouped(rows[:3], limits)["activity"].to_list() == first[:3]
    assert grouped(rows[::-1], limits)["activity"].to_list() == first[::-1]


def test_jobs_submitted_at_once_do_not_count_for_each_other():
    limits = GroupLimits(new_below_jobs=1, frequent_from_jobs=2)
    assert set(grouped([{}] * 5, limits)["activity"]) == {"New"}


def test_an_unknown_user_has_no_activity():
    assert grouped([{"user": None}, {}])["activity"].to_list() == [None, "New"]


def test_type_is_told_by_memory_per_cpu_against_the_sites_median():
    rows = [{"mem_bytes": 2 * gib * GIB} for gib in (4, 4, 4, 9, 1)]
    assert grouped(rows)["job_type"].to_list() == ["Balanced", "Balanced", "Balanced", "Memory", "Compute"]
    fixed = GroupLimits(site_mem_per_cpu_gb=1.0)
    assert grouped(rows, fixed)["job_type"].to_list() == ["Memory"] * 4 + ["Balanced"]


def test_a_job_without_memory_has_no_type_even_where_memory_was_imputed():
    frame = grouped([{"mem_bytes": GIB}, {"mem_bytes": None}])
    assert frame["mem_gb"].null_count() == 0
    assert frame["job_type"].to_list() == ["Balanced", None]
    assert grouped([{"mem_bytes": GIB, "cpus": 0}])["job_type"].to_list() == [None]


def test_users_of_a_log_are_counted_and_grouped():
    jobs = pl.DataFrame({"user": ["ada"] * 150 + ["bob"] * 3 + [None] * 9})
    assert user_groups(jobs).rows() == [("ada", 150, "Frequent"), ("bob", 3, "New")]


@pytest.mark.parametrize("wrong", [{"short_below_s": 1e6}, {"new_below_jobs": 200}, {"mem_factor": 0.5}])
def test_limits_that_contradict_each_other_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        GroupLimits(**wrong)
