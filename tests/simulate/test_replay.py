"""The compiled scheduler starts every job when an obvious one in plain Python does, and streams."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.simulate.replay import Machine, Scheduler, machine_of, mean_wait_s, replay, replayed, sized, utilisation

START = datetime(2024, 1, 1, tzinfo=UTC)


class Ask(NamedTuple):
    submit: int
    cores: int
    gpus: int
    limit: int
    run: int


def workload(asks: list[Ask]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "submit_time": pl.Series([START + timedelta(seconds=ask.submit) for ask in asks], dtype=pl.Datetime("us", "UTC")),
            "cores": pl.Series([ask.cores for ask in asks], dtype=pl.Int64),
            "gpus": pl.Series([ask.gpus for ask in asks], dtype=pl.Int64),
            "time_limit_s": pl.Series([ask.limit for ask in asks], dtype=pl.Float64),
            "runtime_s": pl.Series([ask.run for ask in asks], dtype=pl.Float64),
        }
    )


def random_workload(jobs: int, *, seed: int = 0, mean_gap_s: float = 60.0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(mean_gap_s, jobs).astype(int))
    run = rng.lognormal(6.5, 1.5, jobs).astype(int)
    asks = zip(submit, 2 ** rng.integers(0, 6, jobs), rng.integers(0, 2, jobs), run * rng.integers(1, 5, jobs), run, strict=True)
    return workload([Ask(*(int(number) for number in ask)) for ask in asks])


def obvious_waits(asks: list[Ask], machine: Machine) -> list[float]:
    """EASY as the textbook tells it: at every moment at which something happens, everything is looked at anew."""
    start: dict[int, int] = {}
    queue: list[int] = []
    coming = list(range(len(asks)))
    running: list[int] = []

    def free(at: list[int]) -> tuple[int, int]:
        return machine.cores - sum(asks[job].cores for job in at), machine.gpus - sum(asks[job].gpus for job in at)

    def fits(job: int, room: tuple[int, int]) -> bool:
        return asks[job].cores <= room[0] and asks[job].gpus <= room[1]

    def latest(job: int) -> int:
        return start[job] + max(asks[job].limit, asks[job].run)

    while coming or queue:
        ends = [start[job] + asks[job].run for job in running]
        now = min([*ends, *([asks[coming[0]].submit] if coming else [])])
        running = [job for job in running if start[job] + asks[job].run > now]
        while coming and asks[coming[0]].submit <= now:
            queue.append(coming.pop(0))
        while queue and fits(queue[0], free(running)):
            running.append(queue[0])
            start[queue.pop(0)] = now
        if not queue:
            continue
        first = queue[0]
        promised = next(
            moment
            for moment in sorted({latest(job) for job in running})
            if fits(first, free([job for job in running if latest(job) > moment]))
        )
        for job in queue[1:]:
            room_then = free([*(other for other in running if latest(other) > promised), first])
            over_by_then = now + max(asks[job].limit, asks[job].run) <= promised
            if fits(job, free(running)) and (over_by_then or fits(job, room_then)):
                running.append(job)
                start[job] = now
                queue.remove(job)
    return [start[job] - ask.submit for job, ask in enumerate(asks)]


ASKS = st.lists(
    st.builds(Ask, st.integers(0, 60), st.integers(1, 6), st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=25,
).map(sorted)


@settings(max_examples=150, deadline=None)
@given(ASKS, st.sampled_from([Machine(6, 2), Machine(8, 3), Machine(7, 2)]))
def test_every_job_starts_when_the_obvious_scheduler_starts_it(asks, machine):
    assert replay(workload(asks), machine)["wait_s"].to_list() == obvious_waits(asks, machine)


def test_later_jobs_go_first_only_where_the_first_does_not_suffer():
    asks = [
        Ask(0, 6, 0, 100, 100),  # runs
        Ask(1, 8, 0, 100, 100),  # first of the queue: promised the machine at 100
        Ask(2, 2, 0, 98, 50),  # over by then: starts at once
        Ask(3, 2, 0, 98, 50),  # would be over at 101: waits until the first has run
    ]
    assert replay(workload(asks), Machine(8))["wait_s"].to_list() == [0.0, 99.0, 0.0, 197.0]


def test_gpus_hold_a_job_back_although_there_are_cores():
    asks = [Ask(0, 1, 2, 50, 50), Ask(1, 1, 1, 50, 50)]
    assert replay(workload(asks), Machine(100, 2))["wait_s"].to_list() == [0.0, 49.0]
    assert replay(workload(asks), Machine(100))["wait_s"].to_list() == [0.0, 0.0], "a machine without GPUs counts cores"


@pytest.mark.parametrize("size", [1, 7, 400])
def test_a_stream_waits_as_the_whole_does_wherever_it_is_cut(size):
    jobs = random_workload(600)
    machine = machine_of(jobs, load=0.9)
    whole = replay(jobs, machine)
    pieces = (jobs[at : at + size] for at in range(0, jobs.height, size))
    assert pl.concat(replayed(pieces, machine)).equals(whole)
    assert mean_wait_s(whole) > 60


def test_a_stream_holds_no_more_than_what_waits():
    jobs = random_workload(20_000)
    scheduler = Scheduler(machine_of(jobs))
    most = 0
    for at in range(0, jobs.height, 500):
        scheduler.submit(jobs[at : at + 500])
        most = max(most, scheduler.open_jobs)
    assert most < 2_000


def test_a_machine_fits_its_largest_job_and_its_load():
    small = workload([Ask(0, 1, 0, 10, 10), Ask(1000, 64, 3, 10, 10)])
    assert machine_of(small) == Machine(64, 3)
    jobs = random_workload(3_000)
    machine = machine_of(jobs, load=0.5)
    assert utilisation(replay(jobs, machine), machine) == pytest.approx(0.5, abs=0.05)


def test_a_job_that_is_too_large_gets_the_whole_machine_and_is_counted():
    scheduler = Scheduler(Machine(4))
    waits = [*scheduler.submit(workload([Ask(0, 100, 0, 10, 10), Ask(1, 1, 0, 10, 10)])), *scheduler.finish()]
    assert waits == [0.0, 9.0]
    assert scheduler.too_large == 1


def test_unsorted_jobs_get_their_own_waits_back():
    asks = [Ask(5, 1, 0, 10, 10), Ask(0, 1, 0, 20, 20)]
    assert replay(workload(asks), Machine(1))["wait_s"].to_list() == [15.0, 0.0]
    with pytest.raises(UsageError, match="order"):
        list(replayed([workload(asks)], Machine(1)))


def test_a_workload_of_times_alone_runs_on_one_core():
    jobs = workload([Ask(0, 1, 0, 0, 0), Ask(1, 1, 0, 0, 0)]).select("submit_time")
    assert replay(jobs, machine_of(jobs))["wait_s"].to_list() == [0.0, 0.0]


def test_a_stream_says_how_large_its_machine_is():
    jobs = random_workload(3_000)
    machine, frames = sized((jobs[at : at + 500] for at in range(0, 3_000, 500)), jobs=1_000)
    assert machine == machine_of(jobs[:1_000])
    assert pl.concat(frames).equals(jobs)


def test_what_makes_no_sense_is_said():
    with pytest.raises(UsageError, match="runs nothing"):
        Machine(0)
    with pytest.raises(UsageError, match="load"):
        machine_of(random_workload(3), load=0)
    with pytest.raises(NotEnoughJobsError):
        sized(iter(()))
    assert list(replayed(iter(()), Machine(1))) == []


def test_only_the_first_hundred_behind_the_first_are_tried():
    wide = [Ask(0, 3, 0, 1000, 1000), Ask(1, 4, 0, 1000, 1000)]
    too_wide = [Ask(2, 2, 0, 5000, 5000)] * 3
    small = [Ask(3, 1, 0, 10, 10)]
    jobs = workload([*wide, *too_wide, *small])
    assert replay(jobs, Machine(4), depth=10)["wait_s"][-1] == 0.0
    assert replay(jobs, Machine(4), depth=3)["wait_s"][-1] > 0.0
