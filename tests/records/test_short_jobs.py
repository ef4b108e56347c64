"""Jobs that are shorter than a window have one of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.records.traces import NO_JOB, TraceJob
from stormpetrel.records.windows import cut_windows, short_job_windows, without_short_jobs
from tests.traces.small import small_trace

STEPS = 10


def trace_of(*stretches: tuple[int, int]):
    """A trace of two threads on which jobs follow each other: (number of the job or NO_JOB, steps)."""
    job = np.concatenate([np.full(steps, number, dtype=np.int32) for number, steps in stretches])
    trace = small_trace(0, steps=len(job), nodes=1)
    jobs = tuple(TraceJob(str(number), "NP") for number in range(job.max() + 1))
    return replace(
        trace, nodes=trace.nodes[:2], cpus=trace.cpus[:2], rates=trace.rates[:, :2], job=np.stack([job, job], axis=1), jobs=jobs
    )


def cut(trace, **changes):
    return [
        (int(part.job[row]), part.steps, round(part.start_s[row] - trace.time_s[0] + 1), int(part.cpu[row]))
        for part in short_job_windows(trace, steps=STEPS, **changes)
        for row in range(len(part))
    ]


def test_a_short_job_has_one_window_of_all_of_it_on_each_thread():
    assert cut(trace_of((NO_JOB, 13), (0, 5), (NO_JOB, 12))) == [(0, 5, 13, 0), (0, 5, 13, 1)]


def test_a_job_that_fills_a_window_but_none_of_the_grid_has_its_last_steps():
    assert cut(trace_of((NO_JOB, 13), (0, 15), (NO_JOB, 12))) == [(0, 10, 18, 0), (0, 10, 18, 1)]


def test_a_job_with_a_window_of_the_grid_has_no_other():
    assert cut(trace_of((NO_JOB, 3), (0, 17), (NO_JOB, 10))) == []
    assert cut(trace_of((0, 40))) == []


def test_idle_time_and_crumbs_are_not_cut():
    assert cut(trace_of((NO_JOB, 4), (0, 1), (NO_JOB, 25))) == []


def test_every_job_of_a_row_of_short_ones_is_seen():
    found = cut(trace_of(*((number, 7) for number in range(10))))
    assert sorted({job for job, *_ in found}) == list(range(10)) and {steps for _, steps, *_ in found} == {7}


def test_the_shares_are_those_of_the_job():
    trace = trace_of((NO_JOB, 13), (0, 5), (NO_JOB, 12))
    (part,) = short_job_windows(trace, steps=STEPS)
    assert np.array_equal(part.rates[0], trace.rates[13:18, 0]) and part.job_types().tolist() == ["NP", "NP"]


def test_a_gap_leaves_the_window_of_a_job_out_and_is_counted():
    trace = trace_of((NO_JOB, 13), (0, 8), (NO_JOB, 12))
    trace.rates[14:20, 0] = np.nan
    (part,) = short_job_windows(trace, steps=STEPS)
    assert part.cpu.tolist() == [1] and part.left_out == {"gap": 1}


def test_a_mixed_window_that_begins_with_a_short_job_gives_way_to_it():
    trace = trace_of((NO_JOB, 10), (0, 6), (NO_JOB, 14))
    short, windows = short_job_windows(trace, steps=STEPS), cut_windows(trace, steps=STEPS)
    kept = without_short_jobs(windows, short)
    assert len(windows) - len(kept) == 2 and "Mixed" in windows.job_types() and "Mixed" not in kept.job_types()


@pytest.mark.parametrize("piece", [10, 20, 30])
def test_pieces_of_any_length_cut_each_job_once(piece):
    trace = trace_of((NO_JOB, 13), (0, 5), (1, 15), (2, 4), (NO_JOB, 9), (3, 12), (4, 6), (NO_JOB, 26))
    whole = {(job, start) for job, _, start, _ in cut(trace)}
    found = []
    before, behind = STEPS, 1
    for begin in range(STEPS, trace.steps - 1, piece):
        end = min(begin + piece, (trace.steps - 1) // STEPS * STEPS)
        first = begin - before
        inside = slice(first, end + behind)
        part = replace(trace, time_s=trace.time_s[inside], rates=trace.rates[inside], job=trace.job[inside])
        for job, _, start, cpu in cut(part, origin=before, until=before + end - begin):
            found += [(job, start + first)] if cpu == 0 else []
    assert len(found) == len(set(found)) and set(found) == {one for one in whole if one[1] > 0}
