"""Advice, waste and profiles do not build on values that a rule of data quality doubts."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.jobs.advice.advice import advise, next_request
from stormpetrel.jobs.advice.text import GB
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.waste import DOUBTED, check_ledger, ledger, reconcile
from stormpetrel.records.jobs import JOB_SCHEMA, job_frame
from stormpetrel.records.quality import check
from tests.builders import T0
from tests.jobs.advice.test_advice import HOUR, NOW, OOM, TIMEOUT, ask, job, jobs


def judged(rows):
    """The rows as an ingest would have stored them."""
    good, refused, _ = check(job_frame(rows).with_columns(line=pl.int_range(len(rows))), now=NOW)
    assert refused.height == 0
    return good.select(list(JOB_SCHEMA))


def advice_on(past, **how):
    return advise(ask(**how), judged(past), now=NOW)


def said(past, **how):
    return [(offer.column, offer.proposed) for offer in advice_on(past, **how)]


def test_memory_that_shared_pages_put_above_the_allocation_raises_no_request():
    believed = jobs(12, gb=16, used_gb=14)
    counted_twice = jobs(12, gb=8, used_gb=14)  # each of them completed with 8 GB
    assert [column for column, _ in said(believed, gb=8)] == ["req_mem_bytes"]
    assert said(counted_twice, gb=8) == []


def test_the_memory_of_one_task_lowers_no_request():
    used = {"gb": 64, "used_gb": 1.0}
    assert said(jobs(20, **used), gb=64) == [("req_mem_bytes", int(2 * GB))]
    assert said(jobs(20, **used, quality="rss_of_one_task"), gb=64) == []


def test_a_run_time_that_was_recorded_late_sets_no_limit():
    overdue = [job(n, limit_h=1.0, run_h=8.0) for n in range(12)]
    assert said(overdue, limit_h=1.0) == []
    on_time = [job(n, limit_h=10.0, run_h=8.0) for n in range(12)]
    assert [column for column, _ in said(on_time, limit_h=1.0)] == ["time_limit_s"]


def test_too_much_cpu_time_does_not_keep_cpus():
    few = {"req_cpus": 2, "cpus": 2, "cpu_time_s": 5.0 * HOUR}
    idle = {"req_cpus": 8, "cpus": 8, "cpu_time_s": 5.0 * HOUR}
    assert ("req_cpus", 2) in said([*jobs(12, **idle), *jobs(5, first=12, **few)], req_cpus=8, cpus=8)
    impossible = {**idle, "cpu_time_s": 500.0 * HOUR}
    mixed = [*jobs(12, **idle), *jobs(5, first=12, **few), *jobs(12, first=20, **impossible)]
    assert ("req_cpus", 2) in said(mixed, req_cpus=8, cpus=8)


def test_what_to_ask_for_next_does_not_start_from_a_doubted_run_time():
    late = {**job(3, limit_h=1.0, run_h=20.0), **TIMEOUT}
    row = judged([late]).with_columns(time_limit_s=pl.lit(None, dtype=pl.Float64))
    advice = next_request(row, judged(jobs(2)), now=NOW)
    assert advice is not None
    assert (advice.now, advice.proposed) == (None, None)


def test_a_job_that_was_killed_with_its_memory_full_still_speaks():
    killed = judged([{**job(n, gb=8, used_gb=9), **OOM} for n in range(5)])
    assert killed["quality"].null_count() == 5


def test_a_doubted_run_time_is_left_out_of_the_waste_and_the_ledger_still_adds_up():
    past = judged([job(0, cpus=4, state="FAILED"), job(1, cpus=4, state="FAILED", limit_h=1.0, run_h=40.0)])
    found = reconcile(past)
    check_ledger(found)
    assert found.uncounted == {DOUBTED: 1}
    assert ledger(past, by=["user"])["lost_core_seconds"].to_list() == [int(5 * HOUR * 4)]


def test_a_doubted_run_time_is_missing_from_what_profiles_are_made_of():
    past = judged([job(0), job(1, limit_h=1.0, run_h=40.0), job(2)])
    frame = prepare(past).frame.sort("job_id")
    assert frame["run_time_s"].to_list() == [5 * HOUR] * 3  # imputed: the median of the others
    assert [("run_time_s" in names) for names in frame["imputed"]] == [False, True, False]


@pytest.mark.parametrize("suspended", [None, "3600.0"])
def test_a_run_that_was_suspended_is_believed_where_the_log_tells_for_how_long(suspended):
    start = T0 - timedelta(hours=6)
    extra = None if suspended is None else {"suspended_s": suspended}
    row = judged([{**job(0), "start_time": start, "extra": extra}])
    assert row["quality"].to_list() == [None if suspended else "elapsed_off_span"]
