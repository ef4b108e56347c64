"""The first windows of jobs: where they begin, in which piece of a trace they are cut, and of which threads they are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from stormpetrel.records.traces import NO_JOB, Trace, TraceJob
from stormpetrel.records.window_frames import JOB_START_SCHEMA, START_THREADS, job_start_frame
from stormpetrel.records.windows import job_start_windows, start_steps


def trace_of(job, *, start=1_000.0, seed=0):
    """One node; `job` (steps, threads) says who has which thread."""
    steps, threads = job.shape
    rates = np.random.default_rng(seed).dirichlet(np.ones(4), size=(steps, threads)).astype(np.float32)
    jobs = tuple(TraceJob(str(number)) for number in range(int(job.max()) + 1))
    return Trace(
        "live", 1.0, start + 1.0 + np.arange(steps), ("n1",) * threads, tuple(range(threads)), rates, job, jobs
    ).checked()


def jobs_from(first, *, steps=60, threads=3, ends=60):
    job = np.full((steps, threads), NO_JOB, dtype=np.int32)
    job[first:ends] = 0
    return job


def piece_of(trace, low, high):
    part = slice(low, high)
    return replace(trace, time_s=trace.time_s[part], rates=trace.rates[part], job=trace.job[part])


def test_a_window_begins_with_the_job_wherever_that_lies():
    trace = trace_of(jobs_from(17))
    windows = job_start_windows(trace, steps=10)
    assert windows.start_s.tolist() == [1017.0] * 3 and np.array_equal(windows.rates[1], trace.rates[17:27, 1])


def test_several_windows_follow_each_other_as_long_as_the_job_lives():
    windows = job_start_windows(trace_of(jobs_from(5, threads=1, ends=31)), steps=10, count=3)
    assert sorted(windows.start_s.tolist()) == [1005.0, 1015.0]


def test_a_window_with_a_gap_that_is_not_bridged_is_left_out():
    trace = trace_of(jobs_from(17))
    trace.rates[20:26, 0] = np.nan
    assert job_start_windows(trace, steps=10).cpu.tolist() == [1, 2]


@pytest.mark.parametrize("border", range(20, 60))
def test_every_window_is_cut_in_one_of_two_pieces(border):
    job = jobs_from(17)
    job[40:, 2] = NO_JOB
    trace = trace_of(job)
    whole = job_start_windows(trace, steps=10, count=2)
    before = job_start_windows(piece_of(trace, 0, border), steps=10, count=2, origin=0, until=border)
    low = max(0, border - 20)
    after = job_start_windows(piece_of(trace, low, 60), steps=10, count=2, origin=border - low, until=60 - low)
    keys = sorted([*zip(before.cpu, before.start_s, strict=True), *zip(after.cpu, after.start_s, strict=True)])
    assert keys == sorted(zip(whole.cpu, whole.start_s, strict=True))


def test_first_windows_cover_what_is_known_well_before_two_minutes_are_over():
    for steps in (10, 30, 45, 60, 100, 300):
        length, count = start_steps(steps, 1.0)
        assert length <= steps and 50 < length * count <= 100
    assert start_steps(20, 5.0) == (20, 1)


@pytest.mark.parametrize("threads", [1, 7, 8, 9, 32, 33, 128])
def test_a_few_threads_of_each_job_are_kept_and_how_many_there_were(threads):
    frame = job_start_frame(job_start_windows(trace_of(jobs_from(5, threads=threads)), steps=10), cluster="c")
    assert frame.schema == JOB_START_SCHEMA and frame["of_threads"].unique().to_list() == [threads]
    assert frame.height == min(threads, START_THREADS) and frame["cpu"].min() == 0
    if threads > START_THREADS:
        apart = frame["cpu"].sort().diff().drop_nulls()
        assert apart.min() >= threads // START_THREADS and apart.max() <= -(-threads // START_THREADS)


def test_two_jobs_on_a_node_have_threads_each():
    job = jobs_from(5, threads=24)
    job[5:, 12:] = 1
    frame = job_start_frame(job_start_windows(trace_of(job), steps=10), cluster="c")
    counts = frame.group_by("job_id").len().sort("job_id")
    assert counts["len"].to_list() == [8, 8] and frame.filter(pl.col("job_id") == "1")["cpu"].min() == 12
