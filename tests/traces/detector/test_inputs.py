"""Inputs that not every site can have: how rare an embedding is, the time of day, the other nodes of a job."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import TraceJob
from stormpetrel.records.windows import Windows, cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.traces.detector.day import DayHabit, covers_days, hours_on_days, part_of_day
from stormpetrel.traces.detector.detector import DetectorSettings, TraceDetector
from stormpetrel.traces.detector.embedding import EmbeddingRarity
from stormpetrel.traces.detector.statistics import others_median

HOUR_S, DAY_S = 3600.0, 86400.0
STEPS, STEP_S = 20, 15.0
WINDOW_S = STEPS * STEP_S


def windows_of(rates, start_s, node, cpu, jobs=(), job=None):
    """Windows of one trace with the given rates (windows, steps, 4)."""
    count = len(rates)
    return Windows(
        rates=rates.astype(np.float32), step_s=STEP_S, start_s=start_s, trace=np.zeros(count, dtype=np.int32),
        node=node.astype(np.int32), cpu=cpu.astype(np.int32),
        job=np.full(count, -1, dtype=np.int32) if job is None else job.astype(np.int32),
        traces=("site",), nodes=tuple(f"n{number}" for number in range(int(node.max()) + 1)), jobs=jobs,
    )  # fmt: skip


def grid(first_s, until_s, nodes, threads):
    """Start, node and CPU of every window."""
    starts = np.arange(first_s, until_s, WINDOW_S)
    start, node, cpu = np.meshgrid(starts, np.arange(nodes), np.arange(threads), indexing="ij")
    return start.ravel(), node.ravel(), cpu.ravel()


def with_modes(user, iowait):
    """Rates of shares of user and iowait (windows, steps)."""
    system = 0.02 * np.ones_like(user)
    user, iowait = np.clip(user, 0, 0.6), np.clip(iowait, 0, 0.37)
    return np.stack([user, system, iowait, 1 - user - system - iowait], axis=2)


def days(count, backup_hour, seed):
    """So many days of two nodes whose load follows the day, with a backup of half an hour on each of them."""
    rng = np.random.default_rng(seed)
    start, node, cpu = grid(0.0, count * DAY_S, 2, 4)
    hour = start % DAY_S / HOUR_S
    noise = rng.normal(0, 0.02, (len(start), STEPS))
    user = (0.3 + 0.1 * np.sin((hour - 2) / 24 * 2 * np.pi))[:, None] + noise  # the same at 2 and at 14
    backup = (hour >= backup_hour) & (hour < backup_hour + 0.5)
    iowait = 0.01 + np.abs(rng.normal(0, 0.004, (len(start), STEPS))) + np.where(backup, 0.25, 0.0)[:, None]
    return windows_of(with_modes(user, iowait), start, node, cpu)


@cache
def day_detector(*, hour=True):
    return TraceDetector(DetectorSettings(hour=hour)).fit(days(3, 2.0, 0))


def backup_score(detector, hour):
    """The highest score of a node while a backup of a later day begins and runs at that hour."""
    later = days(2, hour, 7)
    later = replace(later, start_s=later.start_s + 10 * DAY_S)
    scores, at = detector.score(later, "node"), later.start_s % DAY_S / HOUR_S
    return float(
        np.median([scores[(at >= hour) & (at < hour + 0.5) & (later.start_s // DAY_S == day)].max() for day in (10, 11)])
    )


def test_a_nightly_backup_is_odder_in_the_afternoon():
    detector = day_detector()
    assert detector.data_["inputs"]["hour"] == {"active": True, "hours_on_two_days": 24, "hours_needed": 24}
    assert backup_score(detector, 14.0) > backup_score(detector, 2.0) + 0.5


def test_it_is_the_hour_that_tells_them_apart():
    """The load is the same at both hours: without the hour nothing makes the afternoon odder."""
    plain = day_detector(hour=False)
    assert backup_score(plain, 14.0) < backup_score(plain, 2.0) + 0.25


def test_a_saved_detector_knows_its_hours(tmp_path):
    day_detector().save(tmp_path / "model")
    later = days(1, 14.0, 9)
    again = TraceDetector.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score(later, "node"), day_detector().score(later, "node"))
    assert again.metadata()["data"]["inputs"]["hour"]["active"]


def test_one_day_is_not_enough_for_the_hour_and_the_model_says_so():
    detector = TraceDetector().fit(days(1, 2.0, 0))
    assert detector.levels_.node.habit is None
    assert detector.metadata()["data"]["inputs"]["hour"] == {"active": False, "hours_on_two_days": 0, "hours_needed": 24}


def test_every_hour_must_be_seen_on_two_days():
    start = np.arange(0, 2 * DAY_S, 900.0)
    assert covers_days(start) and hours_on_days(start) == 24
    assert not covers_days(start[start % DAY_S // HOUR_S != 5])
    assert part_of_day(np.array([0.0, 900.0, DAY_S - 1])).tolist() == [0, 1, 95]


def test_what_happened_on_one_day_of_three_is_no_habit():
    start = np.arange(0, 3 * DAY_S, 300.0)
    values = np.random.default_rng(0).normal(size=(len(start), 2))
    at_two, at_noon = (part_of_day(start) == part_of_day(np.array([hour * HOUR_S]))[0] for hour in (2, 12))
    values[at_two, 0] += 20
    values[at_noon & (start < DAY_S), 1] += 20
    ratio = DayHabit.fit(values, start, np.ones(len(start), dtype=bool)).ratio(np.array([2 * HOUR_S, 12 * HOUR_S]))
    assert ratio[0, 0] > 3 and ratio[1, 1] < 1.5


def parallel(seed, *, minutes=600, hung_on=None):
    """Three nodes on which one job goes through the same phases at the same moments; on one of them it may stay busy."""
    rng = np.random.default_rng(seed)
    start, node, cpu = grid(0.0, minutes * 60.0, 3, 8)
    moments, place = np.unique(start, return_inverse=True)
    phase = rng.uniform(0.1, 0.5, moments.size)[place]
    if hung_on is not None:
        lowest = int(np.argmin(np.where(np.arange(moments.size) > 24, phase[np.searchsorted(start, moments)], 9.0)))
        phase = np.where((node == hung_on) & (place == lowest), 0.5, phase)
    user = phase[:, None] + rng.normal(0, 0.01, (len(start), STEPS))
    iowait = 0.01 + np.abs(rng.normal(0, 0.003, (len(start), STEPS)))
    job = np.zeros(len(start))
    windows = windows_of(with_modes(user, iowait), start, node, cpu, (TraceJob("7", "MPI-24"),), job)
    return (windows, node, place, lowest) if hung_on is not None else windows


def test_a_node_that_does_not_do_what_its_jobs_other_nodes_do_is_odder_with_them():
    later, node, place, moment = parallel(5, hung_on=1)
    ranks = {}
    for peers in (True, False):
        detector = TraceDetector(DetectorSettings(peers=peers)).fit(parallel(0))
        assert detector.data_["inputs"]["peers"]["active"] is peers
        scores = detector.score(later, "node")
        ranks[peers] = float(scores[(node == 1) & (place == moment)].max())
    assert ranks[True] > 3 and ranks[True] > ranks[False] + 0.5


def test_other_nodes_count_for_nothing_where_jobs_stay_on_one_node():
    train = join_windows([cut_windows(trace) for trace in campaigns()[:-1]])
    inputs = TraceDetector().fit(train).data_["inputs"]
    assert inputs["peers"] == {"active": False, "node_windows": 0, "features": 0}
    assert inputs["embedding"] == {"active": False}


def test_the_median_of_the_others_leaves_out_oneself():
    values = np.array([[1.0], [5.0], [9.0], [7.0]])
    assert others_median(values, np.array([0, 0, 0, -1])).ravel().tolist() == [7.0, 5.0, 3.0, 0.0]


@cache
def campaigns():
    return tuple(campaign_set(3, train=2, validation=0, test=1, nodes=2, threads_per_node=8, minutes=40))


def means(windows):
    """An encoder: mean and spread of each mode."""
    return np.concatenate([windows.rates.mean(axis=1), windows.rates.std(axis=1)], axis=1).astype(np.float32)


def test_a_detector_with_an_encoder_looks_at_its_embeddings_and_is_saved_with_them(tmp_path):
    *train, test = (cut_windows(trace) for trace in campaigns())
    detector = TraceDetector(encoder=means).fit(join_windows(train))
    assert detector.data_["inputs"]["embedding"] == {"active": True}
    columns = detector.observe(test).statistics.shape[1]
    assert columns == TraceDetector().fit(join_windows(train)).observe(test).statistics.shape[1] + 1
    detector.save(tmp_path / "model")
    again = TraceDetector.load(tmp_path / "model", means)
    np.testing.assert_allclose(again.score(test, "node"), detector.score(test, "node"), atol=0.02)
    with pytest.raises(ModelError, match="no encoder beside it"):
        TraceDetector.load(tmp_path / "model").score(test, "node")


def test_an_embedding_is_rare_for_its_kind_of_work_only():
    rng = np.random.default_rng(1)
    places = np.concatenate([rng.normal(0, 1, (300, 3)), rng.normal(8, 1, (300, 3))])
    types = np.array(["NP"] * 300 + ["MPI"] * 300)
    rarity = EmbeddingRarity.fit(places, types, np.ones(600, dtype=bool), 0)
    there = np.full((2, 3), 8.0)
    as_np, as_mpi = rarity.log_distance(there, np.array(["NP", "MPI"]))
    assert as_np > as_mpi + 1
    assert rarity.log_distance(there[:1], np.array(["unheard of"]))[0] == pytest.approx(as_mpi, abs=1.0)


def test_a_calm_window_is_not_its_own_neighbour():
    places = np.random.default_rng(2).normal(size=(200, 4))
    types, block = np.array(["NP"] * 200), np.arange(200) // 50
    rarity = EmbeddingRarity.fit(places, types, np.ones(200, dtype=bool), 0)
    assert (rarity.log_distance_across(places, types, block) >= rarity.log_distance(places, types)).all()


def test_one_short_campaign_with_an_encoder_does_not_make_everything_later_odd():
    first, *_, later = (cut_windows(trace) for trace in campaigns())
    detector = TraceDetector(encoder=means).fit(first)
    rarity = detector.levels_.thread.scores.values[:, -1]
    assert rarity[-1] > rarity[0]  # calm windows found neighbours, and not all the same
    assert np.median(detector.score(later, "node")) < 1.0


def test_a_single_moment_has_rarities_as_well():
    windows = cut_windows(campaigns()[0])
    moment = windows.take(windows.start_s == np.unique(windows.start_s)[1])
    several = [replace(moment, nodes=(f"a{number}", f"b{number}")) for number in range(24)]
    detector = TraceDetector(encoder=means).fit(join_windows(several))
    assert np.isfinite(detector.score(moment, "node")).all()
