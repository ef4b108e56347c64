from collections import Counter

import numpy as np
import pytest

from stormpetrel.records.traces import NO_JOB, UNKNOWN_JOB
from stormpetrel.sources.prometheus.cpu_shares import (
    Grid,
    best_target,
    cpus_of,
    missing_modes,
    node_name,
    node_rates,
    sample_interval,
    thread_jobs,
)
from stormpetrel.sources.prometheus.query import Series
from tests.parts.made_counters import BUSY, SHARES, T0, cpu_series, gauge

CLUSTER = Grid(T0, 1.0, 20)
EVEN = T0 - 2 + np.arange(25)


def rates_of(series, clock=None, grid=CLUSTER):
    seen = Counter()
    cpus, rates = node_rates(series, clock, grid, seen)
    return cpus, rates, {what: count for what, count in seen.items() if count}


def lost(rates, cpu=0):
    return np.flatnonzero(np.isnan(rates[:, cpu, 0])).tolist()


def kept_times(series, keep):
    return [Series(one.labels, one.time_s[keep], one.values[keep]) for one in series]


def test_modes_are_grouped_by_four_and_sum_to_one():
    cpus, rates, seen = rates_of(cpu_series(EVEN + 0.3))
    assert cpus == (0,) and rates.dtype == np.float32 and not seen
    assert np.allclose(rates[:, 0], SHARES, atol=1e-5) and np.allclose(rates.sum(axis=2), 1, atol=1e-6)


def test_uneven_samples_give_the_same_shares():
    uneven = np.sort(EVEN + np.random.default_rng(0).uniform(-0.17, 0.17, EVEN.size))
    assert np.allclose(rates_of(cpu_series(uneven))[1][:, 0], SHARES, atol=1e-5)


def test_a_change_within_a_step_is_shared_by_time_of_the_true_samples():
    times = T0 - 2 + np.arange(25)
    stored = times + 0.1
    user = np.clip(times - (T0 + 5), 0, None)  # busy from the fifth second on
    series = [
        Series({**one.labels}, stored, {"user": user, "idle": (times - T0 + 100) - user}.get(one.labels["mode"], 0 * user))
        for one in cpu_series(stored)
    ]
    late = rates_of(series)[1][:, 0, 0]
    clock = gauge("stormpetrel_sample_time_seconds", stored, times)
    exact = rates_of(series, clock)[1][:, 0, 0]
    assert exact[4] == 0 and exact[5] == 1 and 0 < late[5] < 1  # the scrape's own time puts a tenth into the wrong step


def test_a_missed_scrape_is_a_gap_and_not_smoothed_over():
    keep = np.arange(EVEN.size) != 8  # T0 + 6
    _, rates, _ = rates_of(kept_times(cpu_series(EVEN), keep))
    assert lost(rates) == [5, 6]


@pytest.mark.parametrize("phase", [0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
def test_two_missed_scrapes_are_at_most_three_lost_steps_wherever_the_samples_lie(phase):
    keep = ~np.isin(np.arange(EVEN.size), [8, 9])
    _, rates, _ = rates_of(kept_times(cpu_series(EVEN + phase), keep))
    assert 2 <= len(lost(rates)) <= 3 and np.allclose(rates.sum(axis=2)[~np.isnan(rates[..., 0])], 1, atol=1e-6)
    assert np.allclose(rates[~np.isnan(rates[..., 0])], SHARES, atol=1e-5)


def test_the_ends_of_what_was_seen_are_filled_where_half_a_step_was_seen():
    _, rates, _ = rates_of(cpu_series(T0 + 3.4 + np.arange(10)))
    assert lost(rates) == [0, 1, 2, *range(12, 20)]


def test_a_reboot_is_a_gap_and_gives_no_negative_rates():
    before, after = cpu_series(EVEN[:12]), cpu_series(EVEN[12:], uptime_s=3.0)
    both = [Series(a.labels, EVEN, np.concatenate([a.values, b.values])) for a, b in zip(before, after, strict=True)]
    _, rates, seen = rates_of(both)
    assert lost(rates) == [9] and seen == {"counter reset": 1}
    assert (rates[~np.isnan(rates)] >= 0).all()


def test_iowait_that_is_corrected_backwards_a_little_is_no_reset():
    series = cpu_series(EVEN)
    (iowait,) = (one for one in series if one.labels["mode"] == "iowait")
    iowait.values[12:] -= 0.15
    _, rates, seen = rates_of(series)
    assert not seen and not lost(rates)
    assert rates[9, 0, 2] == 0 and np.allclose(rates.sum(axis=2), 1, atol=1e-6)


def test_a_cpu_that_goes_offline_is_a_gap_of_its_own():
    there = np.ones(EVEN.size, dtype=bool)
    there[10:14] = False
    series = [*cpu_series(EVEN), *kept_times(cpu_series(EVEN, cpu=1), there)]
    cpus, rates, _ = rates_of(series)
    assert cpus == (0, 1) and not lost(rates) and lost(rates, 1) == [7, 8, 9, 10, 11]


def test_a_counter_that_stands_still_says_nothing():
    still = [Series(one.labels, one.time_s, np.full_like(one.values, 5.0)) for one in cpu_series(EVEN)]
    assert lost(rates_of(still)[1]) == list(range(20))


def test_not_a_number_is_a_gap():
    series = cpu_series(EVEN)
    series[0].values[10], series[1].values[15] = np.nan, np.inf
    assert lost(rates_of(series)[1]) == [7, 8, 12, 13]


def test_samples_that_come_twice_or_out_of_order_do_no_harm():
    order = np.random.default_rng(1).permutation(np.concatenate([np.arange(25), [3, 9]]))
    _, rates, seen = rates_of([Series(one.labels, one.time_s[order], one.values[order]) for one in cpu_series(EVEN)])
    assert np.allclose(rates[:, 0], SHARES, atol=1e-5) and not seen


def test_a_clock_that_jumps_is_a_gap_and_counted_and_the_servers_time_is_used_from_there():
    told = EVEN + 0.05
    told[12:] += 300
    _, rates, seen = rates_of(cpu_series(EVEN), gauge("stormpetrel_sample_time_seconds", EVEN, told))
    assert seen == {"clock jump": 1}
    assert 9 in lost(rates) and len(lost(rates)) <= 2
    assert np.allclose(rates[12:, 0], SHARES, atol=1e-5)


def test_a_node_that_lives_in_another_hour_keeps_the_servers_time():
    _, rates, seen = rates_of(cpu_series(EVEN), gauge("stormpetrel_sample_time_seconds", EVEN, EVEN - 3600))
    assert not seen and not lost(rates)


def test_a_reading_that_is_shown_twice_counts_once():
    read = EVEN.copy()
    read[11] = read[10]
    series = cpu_series(EVEN, true_s=read)
    _, rates, seen = rates_of(series, gauge("stormpetrel_sample_time_seconds", EVEN, read))
    assert lost(rates) == [8, 9] and not seen


def test_optional_modes_may_be_missing_and_others_are_named():
    few = {mode: BUSY[mode] for mode in ("user", "system", "iowait", "idle")}
    assert missing_modes(cpu_series(EVEN, shares=few)) == []
    assert np.allclose(rates_of(cpu_series(EVEN, shares=few))[1].sum(axis=2), 1, atol=1e-6)
    assert missing_modes(cpu_series(EVEN, shares={"user": 0.5, "idle": 0.5})) == ["system", "iowait"]


def test_of_two_exporters_on_a_node_the_one_with_a_clock_is_taken_once():
    ours, theirs = cpu_series(EVEN[3:]), cpu_series(EVEN, instance="n1:9100")
    clock = gauge("stormpetrel_sample_time_seconds", EVEN[3:])
    assert best_target([*theirs, *ours], [clock]) == (ours, clock)
    assert best_target([*ours, *theirs], []) == (theirs, None)


def test_faster_samples_than_steps_lose_nothing_and_fewer_than_two_give_gaps():
    fast = T0 - 2 + np.arange(240) / 10
    assert np.allclose(rates_of(cpu_series(fast))[1][:, 0], SHARES, atol=1e-5)
    assert lost(rates_of(cpu_series(EVEN[:1]))[1]) == list(range(20))
    assert sample_interval(cpu_series(EVEN)) == 1.0 and sample_interval(cpu_series(EVEN[:2])) is None


def test_the_same_step_read_in_another_chunk_is_the_same_to_the_last_bit():
    uneven = np.sort(T0 + np.arange(400) + np.random.default_rng(2).uniform(-0.2, 0.2, 400))
    series = cpu_series(uneven, uptime_s=3.7e6)
    whole = rates_of(series, grid=Grid(T0 + 10, 1.0, 300))[1]
    later = rates_of(kept_times(series, uneven > T0 + 195), grid=Grid(T0 + 200, 1.0, 100))[1]
    assert np.array_equal(whole[190:290], later)


# Whose thread it is


def jobs_of(*series, cpus=(0, 1), grid=CLUSTER, window_s=10.0):
    number_of = {}
    job = thread_jobs(series, cpus, grid, window_s, number_of)
    return job, number_of


def test_our_exporter_says_which_job_is_on_a_thread():
    told = gauge("stormpetrel_threads_told_apart", EVEN)
    first = gauge("stormpetrel_thread_job_info", EVEN[:12], cpu="0", jobid="7")
    second = gauge("stormpetrel_thread_job_info", EVEN[14:], cpu="0", jobid="8")
    job, number_of = jobs_of(told, first, second)
    assert number_of == {"7": 0, "8": 1}
    assert job[:, 0].tolist() == [0] * 9 + [NO_JOB] * 2 + [1] * 9
    assert (job[:, 1] == NO_JOB).all()


def test_where_jobs_are_not_bound_to_cpus_nobody_knows():
    job, _ = jobs_of(gauge("stormpetrel_threads_told_apart", EVEN, 0.0))
    assert (job == UNKNOWN_JOB).all()


def test_where_nothing_about_jobs_is_exported_nobody_knows():
    assert (jobs_of()[0] == UNKNOWN_JOB).all()


@pytest.mark.parametrize(
    "labels",
    [
        {"cgroup": "/slurm/uid_1/job_7", "cpus": "0"},
        {"jobid": "7", "step": "", "task": "", "cpus": "0"},
        {"cgroup": "/htcondor/slot1", "cpus": "0"},
    ],
)
def test_plain_cgroup_exporters_are_joined_through_their_cpu_lists(labels):
    info = gauge("cgroup_info", EVEN, cgroup="/htcondor/slot1", jobid="7", uid="1", username="ada", instance="n1:9306")
    job, number_of = jobs_of(info, gauge("cgroup_cpu_info", EVEN, instance="n1:9306", **labels))
    assert number_of == {"7": 0} and (job[:, 0] == 0).all() and (job[:, 1] == NO_JOB).all()


def test_a_window_without_a_word_of_a_cgroup_exporter_is_unknown_and_the_one_beside_it_is_idle():
    job, _ = jobs_of(gauge("cgroup_cpu_info", EVEN[:6], cgroup="/slurm/uid_1/job_7", cpus="0"))
    assert job[:, 0].tolist() == [0] * 5 + [NO_JOB] * 5 + [UNKNOWN_JOB] * 10


def test_a_thread_that_two_jobs_claim_is_nobodys():
    claims = [gauge("cgroup_cpu_info", EVEN, cgroup=f"/slurm/uid_1/job_{n}", cpus=cpus) for n, cpus in ((7, "0-1"), (8, "1"))]
    job, _ = jobs_of(*claims)
    assert (job[:, 0] == 0).all() and (job[:, 1] == UNKNOWN_JOB).all()


def test_labels_that_are_no_names_are_not_believed():
    long = gauge("stormpetrel_thread_job_info", EVEN, cpu="0", jobid="x" * 5_000)
    odd = gauge("stormpetrel_thread_job_info", EVEN, cpu="1", jobid="7\x1b[2J")
    no_cpu = gauge("stormpetrel_thread_job_info", EVEN, cpu="../etc", jobid="7")
    job, number_of = jobs_of(long, odd, no_cpu)
    assert not number_of and (job == NO_JOB).all()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,5", (0, 1, 2, 5)), ("", ()), ("3-1", ()), ("0-99999999", ()), ("0-65536", ()), ("a,1", ()), (" 4 ,5", (4, 5))],
)
def test_cpu_lists_are_read_or_refused(text, cpus):
    assert cpus_of(text) == cpus


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("n1:9100", "n1"),
        ("n1", "n1"),
        ("[::1]:9100", "::1"),
        ("fe80::1", "fe80::1"),
        ("", None),
        ("a\nb", None),
        ("x" * 300, None),
    ],
)
def test_a_node_is_its_label_without_the_port(label, name):
    assert node_name(label) == name
