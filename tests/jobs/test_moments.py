"""The guard: no feature of something that is known only later."""

from __future__ import annotations

import polars as pl
import polars.selectors as cs
import pytest

from stormpetrel.errors import LeakError
from stormpetrel.jobs.features import request_features, start_features
from stormpetrel.jobs.moments import MOMENTS, Moment, known_from, refuse_leaks
from stormpetrel.records.jobs import JOB_SCHEMA

END_ONLY = ("elapsed_s", "state", "max_rss_bytes", "end_time", "exit_code", "cpu_time_s", "state_raw", "failed_step", "extra")
START_ONLY = ("node_list", "cpus", "start_time", "alloc_tres", "mem_bytes")


def test_every_column_of_the_job_frame_has_a_moment():
    assert [column for column in JOB_SCHEMA if known_from(column) not in (*MOMENTS, "end")] == []


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("column", END_ONLY)
def test_what_only_the_finished_record_tells_is_refused_at_every_moment(column, moment):
    with pytest.raises(LeakError, match=f"'{column}'.* at the end; a prediction at '{moment}'"):
        refuse_leaks([pl.col(column)], moment)


@pytest.mark.parametrize("column", START_ONLY)
def test_what_the_start_tells_is_refused_at_submission_and_welcome_from_then_on(column):
    with pytest.raises(LeakError, match=f"'{column}'.* at the start; a prediction at 'submit'"):
        refuse_leaks([pl.col(column)], Moment.SUBMIT)
    refuse_leaks([pl.col(column)], Moment.START)
    refuse_leaks([pl.col(column)], Moment.TWO_MINUTES)


def test_telemetry_is_welcome_at_two_minutes_only():
    feature = pl.col("telemetry_cpu_user").mean()
    for moment in (Moment.SUBMIT, Moment.START):
        with pytest.raises(LeakError, match=f"'telemetry_cpu_user'.*at '{moment}'"):
            refuse_leaks([feature], moment)
    refuse_leaks([feature], Moment.TWO_MINUTES)


def test_a_column_that_nobody_has_dated_is_refused():
    with pytest.raises(LeakError, match="'exit_reason'"):
        refuse_leaks([pl.col("exit_reason")], Moment.TWO_MINUTES)


@pytest.mark.parametrize(
    "hidden",
    [
        (pl.col("req_cpus") + pl.col("elapsed_s")).alias("request.cpus"),
        pl.when(pl.col("state") == "FAILED").then(1.0).alias("x"),
        pl.col("req_cpus").filter(pl.col("elapsed_s") > 0).first().over("user").alias("x"),
        pl.col("req_cpus").sort_by("end_time").alias("x"),
        pl.struct("user", "elapsed_s").hash().alias("x"),
        pl.coalesce("time_limit_s", "elapsed_s").alias("x"),
        pl.sql_expr("elapsed_s + 1 as x"),
    ],
    ids=["sum", "condition", "filter", "sort", "struct", "coalesce", "sql"],
)
def test_a_leak_inside_an_expression_is_found(hidden):
    with pytest.raises(LeakError):
        refuse_leaks([hidden], Moment.TWO_MINUTES)


@pytest.mark.parametrize(
    "selected",
    [
        pl.all(),
        pl.col("^elapsed_s$"),
        pl.col("elapsed_s", "max_rss_bytes"),
        pl.nth(30),
        cs.by_name("elapsed_s").as_expr(),
        cs.numeric().as_expr(),
        pl.exclude("user"),
    ],
    ids=["all", "pattern", "two columns", "position", "selector", "numbers", "exclude"],
)
def test_columns_that_are_chosen_by_a_selector_are_guarded_too(selected):
    with pytest.raises(LeakError):
        refuse_leaks([selected], Moment.SUBMIT)


def test_our_own_features_pass_the_guard():
    refuse_leaks(request_features("UTC"), Moment.SUBMIT)
    refuse_leaks([*request_features("UTC"), *start_features()], Moment.START)
    with pytest.raises(LeakError):
        refuse_leaks(start_features(), Moment.SUBMIT)
