"""The figures that tell a believable log from another one, on logs whose figures are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from benchmarks.simulate_compare import cdf_svg, compare_with_logs, distributions, job_mix, read_logs

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.jobs import job_frame
from stormpetrel.simulate.cluster import ClusterSpec, simulate

START = datetime(2024, 1, 1, tzinfo=UTC)


def log(intervals: list[int], states: list[str], users: list[str]) -> pl.DataFrame:
    rows, now = [], START
    for number, (interval, state, user) in enumerate(zip(intervals, states, users, strict=True)):
        now += timedelta(seconds=interval)
        rows.append(
            {
                "job_id": number, "cluster": "c", "submit_time": now, "start_time": now, "cpus": 4,
                "elapsed_s": 60.0 * (number % 3), "state": state, "user": user, "time_limit_s": 3600.0, "restart": 0,
            }
        )  # fmt: skip
    return job_frame(rows)


def test_intervals_that_come_in_runs_are_correlated_and_alternating_ones_are_not():
    count = 400
    runs = log([1] * 200 + [1000] * 200, ["COMPLETED"] * count, ["a"] * count)
    turns = log([1, 1000] * 200, ["COMPLETED"] * count, ["a"] * count)
    assert job_mix(runs)["lag-1 of log interval"] > 0.9
    assert job_mix(turns)["lag-1 of log interval"] < -0.9


def test_failures_in_a_row_are_seen_by_user():
    count = 200
    streaks = (["FAILED"] * 20 + ["COMPLETED"] * 20) * 5
    mix = job_mix(log([60, 61] * (count // 2), streaks, ["a"] * count))
    assert mix["failure, correlation with the user's job before"] > 0.8
    assert mix["share FAILED"] == 0.5
    by_turns = job_mix(log([60] * count, ["FAILED", "COMPLETED"] * 100, ["a", "b"] * 100))
    assert by_turns["failure rate by user: standard deviation"] > 0.7
    assert by_turns["same user as previous"] == 0.0


def test_a_log_without_failures_says_nothing_about_them():
    mix = job_mix(log([60] * 50, ["COMPLETED"] * 50, ["a"] * 50))
    assert mix["share FAILED"] != mix["share FAILED"]


def test_a_log_compared_with_itself_lies_within():
    jobs = pl.concat(simulate(ClusterSpec(nodes=4, jobs=2000, days=None)))
    table = compare_with_logs(jobs, {"itself": jobs})
    assert table["within"].all()


def test_a_plot_has_a_line_for_each_log_and_is_well_formed():
    jobs = log([1, 10, 100], ["COMPLETED"] * 3, ["a"] * 3)
    picture = ElementTree.fromstring(cdf_svg("runtime_s", {"one": distributions(jobs)["runtime_s"], "two": np.array([5.0])}))
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 2


def test_a_folder_without_the_logs_says_which_one_is_missing(tmp_path):
    with pytest.raises(SourceFormatError, match="KTH"):
        read_logs(tmp_path)


@pytest.mark.realdata
@pytest.mark.parametrize("spec", [ClusterSpec(days=20), pytest.param(ClusterSpec(), marks=pytest.mark.slow)])
def test_the_default_site_looks_like_a_real_one(public_logs, spec):
    table = compare_with_logs(pl.concat(simulate(spec)), read_logs(public_logs))
    outside = table.filter(~pl.col("within"))["figure"].to_list()
    assert len(outside) <= 3, outside
