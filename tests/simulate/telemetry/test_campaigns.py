from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, IOWAIT, MIXED, NP, OTHER, SYSTEM, USER, Split, mpi
from stormpetrel.records.windows import cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, campaign_set, simulate_campaign
from stormpetrel.simulate.telemetry.schedule import cpu_of_slot, place_jobs

TYPES = {NP, BAD_IO, GOOD_IO, IDLE, mpi(2), mpi(16)}


@pytest.fixture(scope="module")
def trace():
    return simulate_campaign(CampaignSpec(seed=5))


@pytest.fixture(scope="module")
def windows(trace):
    return cut_windows(trace)


def of_type(windows, job_type):
    return windows.rates[windows.job_types() == job_type]


def test_a_campaign_keeps_what_a_trace_promises(trace):
    trace.checked()
    assert (trace.steps, trace.threads, len(set(trace.nodes))) == (1800, 160, 5)


def test_the_same_seed_makes_the_same_campaign_and_another_one_another(trace):
    again, other = simulate_campaign(CampaignSpec(seed=5)), simulate_campaign(CampaignSpec(seed=6))
    assert np.array_equal(trace.rates, again.rates) and np.array_equal(trace.job, again.job) and trace.jobs == again.jobs
    assert not np.array_equal(trace.rates, other.rates)


def test_name_split_and_start_change_nothing_else(trace):
    moved = simulate_campaign(CampaignSpec(name="x", split=Split.TEST, start_s=0.0, seed=5))
    assert np.array_equal(trace.rates, moved.rates) and moved.time_s[0] == 1.0 and moved.split is Split.TEST


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("nodes", "threads", "minutes"), [(5, 32, 30), (2, 32, 30), (3, 64, 60), (10, 16, 30)])
def test_every_campaign_holds_every_type_in_one_window_of_twenty(nodes, threads, minutes, seed):
    made = simulate_campaign(CampaignSpec(nodes=nodes, threads_per_node=threads, minutes=minutes, seed=seed))
    counts = Counter(cut_windows(made).job_types().tolist())
    assert set(counts) - {MIXED} == TYPES
    assert min(counts[kind] for kind in TYPES) >= 0.05 * sum(counts.values())


@pytest.mark.parametrize(("nodes", "threads"), [(1, 1), (1, 2), (1, 3), (2, 8), (1, 16), (1, 128)])
def test_any_size_works_and_mpi_jobs_are_those_that_fit(nodes, threads):
    made = simulate_campaign(CampaignSpec(nodes=nodes, threads_per_node=threads, seed=1)).checked()
    sizes = {mpi(size) for size in (2, 16) if size <= threads}
    assert {job.job_type for job in made.jobs} == {NP, BAD_IO, GOOD_IO} | sizes


def test_most_nodes_hold_several_types_at_once(trace):
    names = np.array([*(job.job_type for job in trace.jobs), IDLE])
    kinds = [np.unique(names[trace.job[900, 32 * node : 32 * node + 32]]).size for node in range(5)]
    assert np.mean(kinds) >= 3


def test_jobs_lie_on_whole_cores_side_by_side_within_a_socket():
    for placed in place_jobs(4, 32, 1800.0, (2, 16), 3):
        cores = sorted({cpu % 16 for cpu in placed.cpus})
        assert cores == list(range(cores[0], cores[-1] + 1))
        if len(placed.cpus) > 1:
            assert set(placed.cpus) == {*cores, *(core + 16 for core in cores)}  # both threads of each core
        assert cores[0] // 8 == cores[-1] // 8  # 8 cores per socket


def test_no_thread_serves_two_jobs_at_once():
    placements = place_jobs(3, 16, 3600.0, (2, 16), 0)
    for node in range(3):
        for cpu in range(16):
            times = sorted((one.start_s, one.end_s) for one in placements if one.node == node and cpu in one.cpus)
            assert all(before[1] <= after[0] for before, after in pairwise(times))
            assert not times or (times[0][0] >= 0 and times[-1][1] <= 3600.0)


def test_siblings_are_half_a_node_apart():
    assert [cpu_of_slot(slot, 8) for slot in range(8)] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert [cpu_of_slot(slot, 3) for slot in range(3)] == [0, 1, 2]


def test_each_type_is_dominated_by_its_own_mode(windows):
    means = {kind: of_type(windows, kind).mean(axis=(0, 1)) for kind in TYPES}
    assert means[NP].argmax() == USER and means[mpi(2)].argmax() == USER and means[mpi(16)].argmax() == USER
    assert means[BAD_IO].argmax() == IOWAIT and means[BAD_IO][SYSTEM] > means[BAD_IO][USER]
    assert means[GOOD_IO].argmax() == USER and means[GOOD_IO][SYSTEM] > 0.15 and means[GOOD_IO][IOWAIT] < 0.1
    assert means[IDLE][OTHER] > 0.98


def test_some_np_windows_wait_for_data_and_most_do_not():
    made = join_windows([cut_windows(trace) for trace in campaign_set(2)])
    largest = of_type(made, NP)[:, :, IOWAIT].max(axis=1)
    assert 0.05 < (largest > 0.5).mean() < 0.35 and np.median(largest) < 0.35


def test_ranks_of_an_mpi_job_wait_for_each_other(trace):
    """Where one rank of two spins, the other computes: their system shares are anticorrelated."""
    correlations = []
    for number in (number for number, job in enumerate(trace.jobs) if job.job_type == mpi(2)):
        step, ranks = np.nonzero(trace.job == number)
        system = trace.rates[np.unique(step)][:, np.unique(ranks), SYSTEM]
        correlations.append(np.corrcoef(system.T)[0, 1])
    assert len(correlations) >= 4 and np.mean(correlations) < -0.2 and max(correlations) < 0


def test_more_ranks_wait_longer(windows):
    waiting = {size: (of_type(windows, mpi(size))[:, :, SYSTEM] > 0.08).mean() for size in (2, 16)}
    assert waiting[16] > 1.3 * waiting[2]


def test_rates_are_whole_ticks(trace):
    """With about 100 ticks in a step, few different values are possible, and idle threads are often exactly idle."""
    rates = trace.rates[:, :8, OTHER]
    assert np.unique(np.round(rates, 5)).size < 4000
    assert (trace.rates[trace.job < 0][:, USER] == 0).mean() > 0.7


def test_slower_steps_show_the_same_levels():
    fast, slow = (simulate_campaign(CampaignSpec(nodes=2, seed=1, step_s=step_s)) for step_s in (1.0, 10.0))
    assert slow.steps == 180 and slow.checked()
    assert np.allclose(fast.rates.mean(axis=(0, 1)), slow.rates.mean(axis=(0, 1)), atol=0.05)


def test_ten_steps_a_second_are_made_too():
    made = simulate_campaign(CampaignSpec(nodes=1, threads_per_node=16, minutes=5, step_s=0.1, seed=1)).checked()
    assert made.steps == 3000 and np.isfinite(made.rates).all()


def test_campaigns_of_a_set_are_days_apart_and_each_has_one_split():
    made = campaign_set(3, train=2, nodes=1, threads_per_node=4, minutes=10)
    assert [trace.split for trace in made] == [Split.TRAIN, Split.TRAIN, Split.VALIDATION, Split.TEST]
    assert [trace.name for trace in made] == ["train-1", "train-2", "validation-1", "test-1"]
    assert (np.diff([trace.time_s[0] for trace in made]) > 86_400).all()
    assert not np.array_equal(made[0].rates, made[1].rates)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"threads_per_node": 0},
        {"step_s": 0.0},
        {"minutes": 0.0},
        {"seed": -1},
        {"mpi_sizes": (1,)},
        {"nodes": 10**6},
    ],
)
def test_a_campaign_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(UsageError, match="CampaignSpec"):
        replace(CampaignSpec(), **wrong)
