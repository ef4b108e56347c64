"""What the history says at a moment: nothing from later on, and the same whether it is swept or taken in one job at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.jobs.history import kernel as history_kernel
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.history.kernel import HALF_LIVES_JOBS, HALF_LIVES_S
from stormpetrel.jobs.moments import MOMENTS, Moment
from tests.builders import T0
from tests.jobs.logs import clock, known_at, made_jobs, make_log, small_logs

HALF_LIVES = dict(zip(("1h", "12h", "4d", "30d"), HALF_LIVES_S, strict=True))
TWO_MINUTES = timedelta(minutes=2)


def history(**options) -> History:
    """A history that has been told that nothing stands in for a request."""
    return History(stand_in={}, **options)


def readings_of(jobs, moment=Moment.SUBMIT, **options):
    """Readings by name of each job of a log."""
    found = history(**options).sweep(jobs, [moment])
    return {name: found.at[moment][:, column] for column, name in enumerate(found.names)}


def moments_of(jobs: pl.DataFrame) -> dict[Moment, pl.Series]:
    """When each job reaches each moment; null where it never does."""
    times = clock(jobs)
    still_runs = times["end"].is_null() | (times["end"] > times["start"] + TWO_MINUTES)
    two_minutes = times.select(pl.when(still_runs).then(pl.col("start") + TWO_MINUTES)).to_series()
    return {Moment.SUBMIT: times["submit"], Moment.START: times["start"], Moment.TWO_MINUTES: two_minutes}


def all_of(readings, moment, row):
    """Everything that was read for one job at one moment, as one array."""
    parts = [readings.at[moment][row]]
    if moment is not Moment.SUBMIT:
        parts.append(readings.nodes[moment][row])
    return np.concatenate(parts)


def assert_past_is_equal(jobs: pl.DataFrame, changed: pl.DataFrame, now: datetime) -> None:
    """Readings of every moment before `now` are the same in both logs; both have a column `number` that names a job."""
    one, other = (history().sweep(frame.drop("number"), MOMENTS) for frame in (jobs, changed))
    row_of = {number: row for row, number in enumerate(jobs["number"])}
    for row, number in enumerate(changed["number"]):
        for moment, when in moments_of(jobs).items():
            then = when[row_of[number]]
            if then is not None and then < now:
                np.testing.assert_array_equal(all_of(one, moment, row_of[number]), all_of(other, moment, row))
                np.testing.assert_array_equal(one.similarity[row_of[number]], other.similarity[row])


@settings(max_examples=40, deadline=None)
@given(small_logs(), st.integers(1, 20))
def test_readings_before_a_moment_need_nothing_that_happens_from_then_on(jobs, minutes):
    jobs = jobs.with_row_index("number")
    now = T0 + timedelta(minutes=minutes)
    assert_past_is_equal(jobs, known_at(jobs, now), now)


@settings(max_examples=25, deadline=None)
@given(small_logs(), st.integers(1, 20), st.sampled_from(["FAILED", "COMPLETED", "CANCELLED", "REQUEUED"]), st.integers(0, 99))
def test_readings_before_a_moment_do_not_change_with_the_outcomes_and_ends_that_follow(jobs, minutes, state, late_s):
    jobs = jobs.with_row_index("number")
    now = T0 + timedelta(minutes=minutes)
    later = (clock(jobs)["end"] >= now).fill_null(False)
    changed = jobs.with_columns(
        state=pl.when(later).then(pl.lit(state)).otherwise("state"),
        end_time=pl.when(later).then(pl.lit(now) + timedelta(seconds=late_s)).otherwise("end_time"),
        elapsed_s=pl.when(later).then(pl.lit(float(late_s))).otherwise("elapsed_s"),
    )
    assert_past_is_equal(jobs, changed, now)


def test_a_long_log_that_is_cut_reads_the_same_before_the_cut():
    jobs = make_log(400, 1, days=0.2, unfinished=0.05).with_row_index("number")  # dense: many jobs run across the cut
    now = jobs["submit_time"][250]
    assert_past_is_equal(jobs, known_at(jobs, now), now)


def test_a_rerun_is_not_waiting_before_the_first_run_was_requeued():
    first = {"job_id": 7, "submit": 0, "start": 10, "end": 1000, "state": "REQUEUED"}
    rerun = {"job_id": 7, "submit": 0, "restart": 1, "start": 1100, "end": 1200}
    other = {"job_id": 8, "submit": 500, "start": 600, "end": 700}
    with_rerun, without = made_jobs(first, rerun, other), made_jobs(first, other)
    assert readings_of(with_rerun)["user.pending"][2] == readings_of(without)["user.pending"][1] == 0


def test_at_equal_times_a_job_does_not_see_what_ends_then():
    jobs = made_jobs({"submit": 0, "start": 0, "end": 600, "state": "FAILED"}, {"submit": 600}, {"submit": 601})
    seen = readings_of(jobs)
    assert np.isnan(seen["user.since_failure"][1])
    assert seen["user.since_failure"][2] == np.float32(np.log1p(1.0))


def test_at_equal_times_submissions_are_seen_in_the_order_of_the_log():
    seen = readings_of(made_jobs({"submit": 0}, {"submit": 0}, {"submit": 0}))
    assert seen["user.pending"].tolist() == [0, 1, 2]


def live_events(jobs):
    """(time, order, row) of everything that happens: submissions, starts, two-minute marks, then ends."""
    times, marks = clock(jobs), moments_of(jobs)
    columns = (times["submit"], times["start"], marks[Moment.TWO_MINUTES], times["end"])
    return sorted(
        (when, order, row) for order, column in enumerate(columns) for row, when in enumerate(column) if when is not None
    )


def live_readings(jobs, remembered):
    """Every job read at its moments from a history that takes events in as they come, each row as it stood then."""
    found = {}
    for when, order, row in live_events(jobs):
        after = when + timedelta(microseconds=1)
        as_known = known_at(jobs[row], after)
        if order < 3:
            moment = MOMENTS[order]
            found[moment, row] = remembered.read(as_known, moment, np.array([when.timestamp()]))
        if order != 2:
            remembered.take_in(as_known, ("submit", "start", "", "end")[order])
    return found


def assert_live_equals_batch(jobs):
    batch = history().sweep(jobs, MOMENTS)
    live = live_readings(jobs, history())
    assert len(live) == sum(series.count() for series in moments_of(jobs).values())
    for (moment, row), one in live.items():
        np.testing.assert_array_equal(all_of(one, moment, 0), all_of(batch, moment, row))
        if moment is Moment.SUBMIT:
            np.testing.assert_array_equal(one.similarity[0], batch.similarity[row])
    assert batch.at[Moment.SUBMIT].dtype == np.float32


@settings(max_examples=12, deadline=None)
@given(small_logs(most=6))
def test_odd_jobs_taken_in_one_at_a_time_read_as_the_sweep_does(jobs):
    assert_live_equals_batch(jobs)


def test_jobs_taken_in_one_at_a_time_read_exactly_as_the_sweep_does():
    assert_live_equals_batch(make_log(40, 2, users=4, days=0.2, unfinished=0.1))


def test_similarity_at_the_start_is_the_same_live_and_swept():
    jobs = made_jobs({"submit": 0, "req_cpus": 1}, {"submit": 10, "start": 20, "end": 30, "req_cpus": 64})
    remembered = history()
    remembered.take_in(jobs, "submit")
    live = remembered.read(jobs[1], Moment.START, np.array([T0.timestamp() + 20]))
    np.testing.assert_array_equal(live.similarity[0], history().sweep(jobs, [Moment.START]).similarity[1])


def test_reading_changes_nothing_that_is_read_later():
    jobs = make_log(120, 3)
    now = np.full(120, T0.timestamp() + 1e7)
    read, untouched = history(), history()
    for remembered in (read, untouched):
        remembered.sweep(jobs)
    for _ in range(2):
        read.read(jobs.with_columns(user=pl.lit("nobody"), node_list=pl.lit("x[1-9]")), Moment.START, now)
    one, other = (remembered.read(jobs, Moment.START, now) for remembered in (read, untouched))
    np.testing.assert_array_equal(one.at[Moment.START], other.at[Moment.START])
    np.testing.assert_array_equal(one.nodes[Moment.START], other.nodes[Moment.START])


def test_an_unseen_user_is_taken_for_the_site():
    remembered = history()
    remembered.sweep(make_log(200, 4))
    stranger = made_jobs({"submit": 0, "user": "stranger", "partition": "new", "job_name": "new", "node_list": "n99"})
    found = remembered.read(stranger, Moment.START, np.array([T0.timestamp() + 1e7]))
    read = dict(zip(found.names, found.at[Moment.START][0], strict=True))
    assert read["user.ended_total"] == 0 and np.isnan(read["user.since_end"])
    assert read["user.failed_rate_30d"] == pytest.approx(read["site.failed_rate_30d"])


def test_reading_strangers_does_not_grow_the_history():
    remembered = history()
    remembered.sweep(make_log(50, 5))
    before = remembered._count
    remembered.read(made_jobs({"submit": 0, "user": "stranger"}), Moment.SUBMIT, np.array([0.0]))
    assert remembered._count == before


def test_one_job_without_a_request_does_not_decide_what_stands_in():
    remembered = History()
    remembered.read(made_jobs({"submit": 0, "req_cpus": None, "cpus": 8}), Moment.SUBMIT, np.array([0.0]))
    remembered.sweep(made_jobs({"submit": 0, "req_cpus": 4, "cpus": 8}))
    assert not remembered.stand_in


def slow_rate(ends, now, half_life, prior):
    """The decayed rate, as obviously as it can be written."""
    weights = [2.0 ** (-(now - end) / half_life) for end, _ in ends if end < now]
    failures = [bad for end, bad in ends if end < now]
    return (sum(w * bad for w, bad in zip(weights, failures, strict=True)) + 2 * prior) / (sum(weights) + 2)


def slow_rate_in_jobs(ends, half_life, prior):
    """The same with an age in jobs and the weight of one job for the prior."""
    weights = [2.0 ** (-age / half_life) for age in reversed(range(len(ends)))]
    return (sum(w * bad for w, (_, bad) in zip(weights, ends, strict=True)) + prior) / (sum(weights) + 1)


ENDS = st.lists(st.tuples(st.integers(1, 40 * 86400), st.booleans()), min_size=0, max_size=12, unique_by=lambda end: end[0])


@settings(max_examples=40, deadline=None)
@given(ENDS, st.integers(1, 60 * 86400))
def test_decayed_rates_are_what_the_formula_says(ends, now):
    ends = sorted(ends)
    ended = [{"submit": 0, "start": 0, "end": end, "state": "FAILED" if bad else "COMPLETED"} for end, bad in ends]
    seen = readings_of(made_jobs(*ended, {"submit": now, "state": "RUNNING"}))
    past = [(end, bad) for end, bad in ends if end < now]
    for name, half_life in HALF_LIVES.items():
        site = slow_rate(past, now, half_life, 0.1)
        assert seen[f"site.failed_rate_{name}"][-1] == pytest.approx(site, rel=1e-5)
        prior = slow_rate(past, now, HALF_LIVES["30d"], 0.1)
        assert seen[f"user.failed_rate_{name}"][-1] == pytest.approx(slow_rate(past, now, half_life, prior), rel=1e-5)
    for half_life in HALF_LIVES_JOBS:
        expected = slow_rate_in_jobs(past, half_life, slow_rate(past, now, HALF_LIVES["30d"], 0.1))
        assert seen[f"user.failed_rate_{half_life:.0f}jobs"][-1] == pytest.approx(expected, rel=1e-5)
    assert seen["user.ended_total"][-1] == pytest.approx(np.log1p(len(past)))


def test_streaks_shares_and_counts_are_those_of_the_ended_jobs():
    jobs = made_jobs(
        {"submit": 0, "start": 0, "end": 100, "state": "COMPLETED", "elapsed_s": 100.0},
        {"submit": 0, "start": 0, "end": 200, "state": "FAILED", "elapsed_s": 200.0},
        {"submit": 0, "start": 0, "end": 300, "state": "TIMEOUT", "elapsed_s": 300.0},
        {"submit": 0, "start": 0, "end": 9000, "state": "FAILED"},
        {"submit": 350},
        {"submit": 400, "state": "PENDING"},
    )
    seen = {name: values[-1] for name, values in readings_of(jobs).items()}
    assert seen["user.failure_streak"] == 2
    assert (seen["user.running"], seen["user.pending"]) == (1, 1)
    assert seen["user.timeout_share"] == pytest.approx(1 / 3, rel=1e-3)
    assert seen["user.quick_share"] == pytest.approx(1 / 3, rel=1e-3)
    assert seen["user.since_success"] == pytest.approx(np.log1p(300.0))
    assert seen["user.burst"] == 5


def test_states_that_do_not_count_leave_the_rates_alone():
    jobs = made_jobs(
        *({"submit": 0, "start": 0, "end": 60, "state": state} for state in ("REQUEUED", "PREEMPTED", "CANCELLED")),
        {"submit": 100},
    )
    seen = readings_of(jobs, dropped_states=("CANCELLED",))
    assert seen["user.ended_total"][-1] == 0 and np.isnan(seen["user.since_end"][-1])
    assert seen["user.running"][-1] == 0


def test_a_job_without_a_run_time_does_not_shorten_the_typical_run():
    known = {"submit": 0, "start": 0, "end": 60, "elapsed_s": 1000.0}
    seen = readings_of(made_jobs(known, {**known, "elapsed_s": None}, {"submit": 100}))
    assert seen["user.typical_run"][-1] == pytest.approx(np.log1p(1000.0), rel=1e-3)


def test_clocks_that_go_backwards_are_set_to_the_step_before():
    backwards = made_jobs({"submit": 500, "start": 100, "end": 50, "state": "FAILED"}, {"submit": 400}, {"submit": 600})
    seen = readings_of(backwards)
    assert np.isnan(seen["user.since_failure"][1])
    assert seen["user.since_failure"][2] == pytest.approx(np.log1p(100.0))
    assert (seen["user.running"][2], seen["user.pending"][2]) == (0, 1)


def test_jobs_that_never_start_or_never_end_have_no_readings_of_moments_they_do_not_reach():
    jobs = made_jobs(
        {"submit": 0, "end": 500, "state": "CANCELLED"},
        {"submit": 0, "start": 10, "end": 130},
        {"submit": 0, "start": 10, "end": 131},
        {"submit": 0, "start": 10, "state": "RUNNING"},
    )
    found = history().sweep(jobs, MOMENTS)
    missing = {moment: np.isnan(found.at[moment]).all(axis=1).tolist() for moment in MOMENTS}
    assert missing[Moment.SUBMIT] == [False] * 4
    assert missing[Moment.START] == [True, False, False, False]
    assert missing[Moment.TWO_MINUTES] == [True, True, False, False]


def test_nodes_are_read_at_the_start_and_later_only():
    jobs = made_jobs(
        {"submit": 0, "start": 0, "end": 60, "state": "NODE_FAIL", "node_list": "n[1-2]"},
        {"submit": 100, "start": 100, "end": 900, "node_list": "n2", "user": "bob"},
        {"submit": 100, "start": 100, "end": 900, "node_list": "n3", "user": "bob"},
    )
    found = history().sweep(jobs, MOMENTS)
    assert set(found.nodes) == {Moment.START, Moment.TWO_MINUTES}
    mean, highest, short, since = found.nodes[Moment.START][1]
    assert mean == highest > found.nodes[Moment.START][2][0] and short > 0
    assert since == pytest.approx(np.log1p(40.0)) and np.isnan(found.nodes[Moment.START][2][3])


@pytest.mark.parametrize("kept", [["cluster"], ["submit_time", "state"], []], ids=["cluster only", "times only", "nothing"])
def test_null_everything_is_read_without_complaint(kept):
    jobs = make_log(5, 6)
    empty = jobs.with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in jobs.schema.items() if name not in kept)
    found = history().sweep(empty, MOMENTS)
    assert found.at[Moment.SUBMIT].shape == (5, len(found.names))
    assert not np.isinf(found.at[Moment.SUBMIT]).any()


def test_no_jobs_are_no_readings():
    found = history().sweep(make_log(5).head(0), MOMENTS)
    assert all(matrix.shape == (0, len(found.names)) for matrix in found.at.values())


def test_jobs_without_a_user_share_one_history():
    jobs = made_jobs({"submit": 0, "start": 0, "end": 9, "state": "FAILED", "user": None}, {"submit": 99, "user": None})
    assert readings_of(jobs)["user.failure_streak"].tolist() == [0, 1]


def test_many_entities_do_not_lose_their_rows_when_the_history_grows():
    remembered = history()
    first = made_jobs({"submit": 0, "start": 0, "end": 60, "state": "FAILED"})
    remembered.sweep(first)
    strangers = made_jobs(*({"submit": 100 + k, "user": f"u{k}", "node_list": f"n{k}"} for k in range(300)))
    remembered.sweep(strangers)
    found = remembered.read(first, Moment.START, np.array([T0.timestamp() + 1000]))
    assert found.at[Moment.START][0, found.names.index("user.failure_streak")] == 1


def test_a_restored_history_has_room_for_as_many_again_without_a_copy_of_its_rows():
    first, second = history(), history()
    first.sweep(made_jobs(*({"submit": k, "user": f"u{k}", "node_list": f"n{k}"} for k in range(90))))
    second.restore({name: array.copy() for name, array in first.to_arrays().items()})
    before = second.to_arrays()
    second.sweep(made_jobs(*({"submit": 100 + k, "user": f"v{k}", "node_list": f"m{k}"} for k in range(80))))
    for name in ("rows", "node_rows"):
        assert np.shares_memory(before[name], second.to_arrays()[name]) and len(second.to_arrays()[name]) > len(before[name])


@pytest.mark.parametrize("missing", [(), ("time_limit_s",), ("time_limit_s", "elapsed_s", "req_mem_bytes", "node_list")])
@pytest.mark.parametrize("height", [1, 40])
def test_what_a_log_lacks_does_not_make_numba_compile_anew(missing, height):
    whole = make_log(height, unfinished=0.2)
    jobs = whole.with_columns(pl.lit(None, dtype=whole.schema[column]).alias(column) for column in missing)
    for frame in (jobs, pl.concat([jobs, whole], rechunk=False)):
        known = history()
        known.sweep(frame, MOMENTS)
        known.take_in(frame, "submit")
        known.read(frame, Moment.SUBMIT, np.full(frame.height, T0.timestamp()))
    for compiled in (history_kernel.sweep, history_kernel.read_many):
        assert len(compiled.signatures) == 1
