"""The waste ledger: what is counted, and that it adds up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.jobs.held.core_seconds import core_seconds
from stormpetrel.jobs.held.energy import PowerModel
from stormpetrel.jobs.waste import (
    ABSURD,
    BREAKDOWNS,
    NO_CPUS,
    NO_RUN_TIME,
    NOT_ENDED,
    UNKNOWN,
    Totals,
    check_ledger,
    ledger,
    reconcile,
)
from stormpetrel.records.jobs import job_frame
from tests.builders import T0, read_all

ENDED = {"job_id": 1, "state": "COMPLETED", "start_time": T0, "end_time": T0 + timedelta(seconds=600)}


def held(**fields):
    return job_frame([{**ENDED, **fields}]).select(core_seconds()).item()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"elapsed_s": 100.0, "cpus": 4, "cpu_limit_s": 999.0}, 400),
        ({"elapsed_s": 100.0, "cpu_limit_s": 300.0, "req_cpus": 8}, 300),
        ({"cpus": 4}, 2400),
        ({"elapsed_s": 100.0, "req_cpus": 8, "nodes": 2}, 800),
        ({"elapsed_s": 100.0, "nodes": 2}, 200),
        ({"elapsed_s": 100.0, "cpus": 0, "req_cpus": 3}, 300),
        ({"elapsed_s": 99.6, "cpus": 3}, 300),
        ({"elapsed_s": 0.0}, 0),
        ({"elapsed_s": 100.0}, None),
        ({"elapsed_s": -5.0, "cpus": 1, "start_time": None}, None),
        ({"elapsed_s": float("nan"), "cpus": 1, "start_time": None}, None),
        ({"elapsed_s": 1e12, "cpus": 2**62}, None),
    ],
)
def test_core_seconds_come_from_the_best_fields_there_are(fields, expected):
    assert held(**fields) == expected


def test_core_seconds_are_whole_numbers():
    assert job_frame([ENDED]).select(core_seconds()).schema["core_seconds"] == pl.Int64


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": "RUNNING", "end_time": None, "elapsed_s": 5.0, "cpus": 1}, NOT_ENDED),
        ({"state": "RUNNING", "elapsed_s": 5.0, "cpus": 1}, NOT_ENDED),  # squeue foretells an end
        ({"state": None, "end_time": None, "cpus": 1}, NOT_ENDED),
        ({"state": "FAILED", "start_time": None, "cpus": 1}, NO_RUN_TIME),
        ({"state": "FAILED", "elapsed_s": 5.0}, NO_CPUS),
        ({"state": "FAILED", "elapsed_s": 1e12, "cpus": 2**62}, ABSURD),
    ],
)
def test_a_job_that_cannot_be_counted_is_left_out_with_a_reason(fields, reason):
    result = reconcile(job_frame([{**ENDED, **fields}]))
    assert result.uncounted == {reason: 1}
    assert result.total == Totals(0, 0, 0, 0, 0, 0, 0, 0)
    check_ledger(result)


def test_a_job_of_unknown_state_with_an_end_is_counted():
    result = reconcile(job_frame([{**ENDED, "state": "UNKNOWN", "cpus": 1}]))
    assert result.total == Totals(1, 0, 600, 0, 3600, 0, 0, 0)


def jobs_of_two_users():
    sizes = {"ann": [("FAILED", 10), ("COMPLETED", 1)], "bob": [("COMPLETED", 50), ("TIMEOUT", 5)]}
    rows = [{**ENDED, "user": user, "state": state, "cpus": cpus} for user, jobs in sizes.items() for state, cpus in jobs]
    rows[0]["energy_j"] = 70_000
    return job_frame(rows)


def test_the_largest_loss_comes_first_and_shares_are_of_the_loss():
    table = ledger(jobs_of_two_users(), by=["user"])
    assert table.rows() == [
        ("ann", 2, 1, 6600, 6000, 73_600, 70_000, 70_000, 70_000, pytest.approx(2 / 3)),
        ("bob", 2, 1, 33000, 3000, 198_000, 18_000, 0, 0, pytest.approx(1 / 3)),
    ]


def test_crossed_breakdowns_have_a_row_for_each_pair():
    table = ledger(jobs_of_two_users(), by=["user", "outcome"])
    assert set(table.select("user", "outcome").rows()) == {
        ("ann", "FAILED"), ("ann", "COMPLETED"), ("bob", "COMPLETED"), ("bob", "TIMEOUT"),
    }  # fmt: skip


def test_no_breakdown_gives_the_total():
    assert ledger(jobs_of_two_users(), by=[]).rows() == [(4, 2, 39600, 9000, 271_600, 88_000, 70_000, 70_000, 1.0)]


def test_failure_states_decide_what_is_lost():
    table = ledger(jobs_of_two_users(), by=[], failure_states=["TIMEOUT"])
    assert table["lost_core_seconds"].item() == 3000


def test_the_week_is_the_iso_week_of_the_end_in_the_sites_zone():
    sunday_night = datetime(2021, 1, 3, 23, 30, tzinfo=UTC)
    frame = job_frame([{**ENDED, "end_time": sunday_night, "elapsed_s": 60.0, "cpus": 1}])
    assert ledger(frame, by=["week"])["week"].item() == "2020-W53"
    assert ledger(frame, by=["week"], time_zone="Europe/Stockholm")["week"].item() == "2021-W01"


def test_a_log_without_names_falls_in_the_unknown_group():
    frame = job_frame([{**ENDED, "user": "", "end_time": None, "elapsed_s": 60.0, "cpus": 1}])
    for name in ("user", "application", "account", "partition", "profile", "week"):
        assert ledger(frame, by=[name])[name].to_list() == [UNKNOWN]


def test_profiles_are_a_breakdown_where_the_frame_has_them():
    frame = jobs_of_two_users().with_columns(profile=pl.Series([3, 3, 7, None]))
    assert set(ledger(frame, by=["profile"])["profile"]) == {"3", "7", UNKNOWN}


def test_a_preempted_job_keeps_its_own_word_as_outcome():
    frame = job_frame([{**ENDED, "state": "PREEMPTED", "cpus": 1}])
    assert ledger(frame, by=["outcome"])["outcome"].item() == "PREEMPTED"


def test_an_unknown_breakdown_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="Known: user, application"):
        ledger(jobs_of_two_users(), by=["colour"])


def test_an_empty_log_has_an_empty_ledger_that_adds_up():
    empty = job_frame([])
    assert ledger(empty, by=["user"]).is_empty()
    check_ledger(reconcile(empty))


@pytest.mark.parametrize("state", ["FAILED", "COMPLETED"])
def test_all_failed_and_none_failed_add_up(state):
    result = reconcile(job_frame([{**ENDED, "state": state, "cpus": 2}] * 5))
    check_ledger(result)
    assert result.total.lost_core_seconds == (6000 if state == "FAILED" else 0)


def test_a_breakdown_that_does_not_add_up_is_an_error():
    good = reconcile(jobs_of_two_users())
    wrong = {**good.breakdowns, "week": replace(good.total, core_seconds=good.total.core_seconds - 1)}
    with pytest.raises(StormpetrelError, match="by week sums to"):
        check_ledger(replace(good, breakdowns=wrong))


def test_energy_that_does_not_add_up_is_an_error():
    good = reconcile(jobs_of_two_users())
    wrong = {**good.breakdowns, "user": replace(good.total, lost_joules=good.total.lost_joules + 1)}
    with pytest.raises(StormpetrelError, match=r"by user sums to .* joules"):
        check_ledger(replace(good, breakdowns=wrong))


def test_a_job_that_got_lost_is_an_error():
    with pytest.raises(StormpetrelError, match="but the log has 5"):
        check_ledger(replace(reconcile(jobs_of_two_users()), rows=5))


moments = st.none() | st.datetimes(datetime(2019, 12, 20), datetime(2020, 4, 10)).map(lambda moment: moment.replace(tzinfo=UTC))
numbers = st.none() | st.integers(-1, 10**6)
a_job = st.fixed_dictionaries(
    {
        "user": st.sampled_from([None, "", "ann", "bob", UNKNOWN]),
        "account": st.sampled_from([None, "lab"]),
        "partition": st.sampled_from([None, "batch", "gpu"]),
        "job_name": st.none() | st.text(max_size=8),
        "state": st.sampled_from([None, "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "REQUEUED", "UNKNOWN", "RUNNING"]),
        "start_time": moments,
        "end_time": moments,
        "elapsed_s": st.none() | st.floats(-10, 1e9),
        "cpu_limit_s": st.none() | st.floats(0, 1e15),
        "cpus": numbers,
        "req_cpus": numbers,
        "nodes": numbers,
        "time_limit_s": st.none() | st.floats(1, 1e6),
        "energy_j": st.none() | st.integers(-1, 10**15),
        "gpus": numbers,
        "mem_bytes": st.none() | st.integers(-1, 2**50),
    }
)


def plainly(row):
    """What a job held, by the documented order, one job at a time in Python's integers."""

    def positive(*names):
        return next((row[name] for name in names if row[name] is not None and row[name] > 0), None)

    def whole(seconds):
        return round(seconds) if seconds is not None and seconds >= 0 else None

    measured = whole(row["elapsed_s"])
    span = (row["end_time"] - row["start_time"]).total_seconds() if row["end_time"] and row["start_time"] else None
    elapsed = measured if measured is not None else whole(span)
    if elapsed == 0:
        return 0
    if measured is not None and positive("cpus"):
        return measured * positive("cpus")
    if whole(row["cpu_limit_s"]) is not None:
        return whole(row["cpu_limit_s"])
    size = positive("cpus", "req_cpus", "nodes")
    return elapsed * size if elapsed is not None and size else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(a_job, max_size=25))
def test_every_breakdown_sums_to_the_logs_total_exactly(rows):
    frame = job_frame(rows)
    result = reconcile(frame, time_zone="America/Santiago", power=PowerModel(3.3, 251.7, 0.41))
    check_ledger(result)
    assert list(result.breakdowns) == list(BREAKDOWNS)
    unended = [row["state"] == "RUNNING" or (row["state"] in (None, "UNKNOWN") and row["end_time"] is None) for row in rows]
    sums = [plainly(row) for row, left_out in zip(rows, unended, strict=True) if not left_out]
    assert result.total.core_seconds == sum(value for value in sums if value is not None)
    assert result.total.jobs == sum(value is not None for value in sums)


@pytest.mark.realdata
def test_the_ledger_of_a_public_log_adds_up(public_logs):
    from stormpetrel.sources.formats import ReadOptions, open_source

    path = public_logs / "jobs" / "mit_supercloud_sample.csv.gz"
    result = reconcile(read_all(open_source(str(path), None, ReadOptions()))[0], time_zone="America/New_York")
    check_ledger(result)
    assert result.total.jobs == 9628
    assert result.total.lost_core_seconds > 0
