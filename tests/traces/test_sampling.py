import json
from itertools import pairwise

import numpy as np
import pytest

from stormpetrel.answers.studies.trace_study import sampling_answer
from stormpetrel.errors import UsageError
from stormpetrel.records.windows import cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, campaign_set, simulate_campaign
from stormpetrel.traces.sampling import (
    IntervalScore,
    advise,
    labelled_windows,
    mean_rates,
    picked,
    study_sampling,
    usable_window_s,
)
from stormpetrel.traces.separability import MeanStd


def score(interval_s, mean, *, std=0.0, kept=1.0):
    return IntervalScore(interval_s, 10, MeanStd(mean, std, 30), (0.7, 0.1), MeanStd(mean, std, 30), kept)


@pytest.fixture(scope="module")
def campaigns():
    return campaign_set(1, train=2, validation=0, test=0, nodes=3)


@pytest.fixture(scope="module")
def study(campaigns):
    return study_sampling(campaigns, subsets=5, size=400)


def test_the_lowest_rhythm_of_a_campaign_is_about_a_hundred_seconds(study):
    assert study.lowest_hz == pytest.approx(0.01, abs=0.005)
    assert 50 <= study.window_s <= 200


def test_job_types_separate_and_picking_fewer_values_costs(study):
    assert [one.interval_s for one in study.scores] == [1, 2, 5, 10, 20, 30, 60]
    assert study.scores[0].silhouette.mean > 0.2
    assert study.scores[-1].silhouette.mean < study.scores[0].silhouette.mean - 0.01


def test_slower_means_keep_less_movement(study):
    kept = [one.movement_kept for one in study.scores]
    assert kept[0] == 1.0 and all(slow < fast for fast, slow in pairwise(kept))


def test_the_advice_names_interval_window_and_cost(study):
    assert study.advice.startswith(f"scrape every {study.interval_s:g} s, windows of {study.window_s:g} s; ")
    assert "would cost ." in study.advice and "of separability" in study.advice


def test_the_same_seed_gives_the_same_study(campaigns, study):
    again = study_sampling(campaigns, subsets=5, size=400)
    assert sampling_answer(again) == sampling_answer(study) and np.array_equal(again.points, study.points)


def test_the_study_is_plain_json(study):
    told = json.loads(sampling_answer(study).model_dump_json())
    assert set(told) == {"spectra", "lowest_hz", "window_s", "intervals", "interval_s", "windows", "advice"}
    assert set(told["intervals"][0]["silhouette"]) == {"mean", "std", "n"}


def test_progress_runs_from_nothing_to_all(campaigns):
    seen = []
    study_sampling(campaigns, intervals_s=(1, 10), subsets=1, size=100, progress=lambda share, words: seen.append((share, words)))
    shares = [share for share, _ in seen]
    assert shares == sorted(shares) and (shares[0], shares[-1]) == (0, 1) and "every 10 s" in {words for _, words in seen}


def test_advice_is_the_slowest_within_the_tolerance():
    scores = [score(1, 0.50), score(2, 0.49), score(5, 0.41), score(10, 0.30)]
    assert advise(scores, 100) == (2, "scrape every 2 s, windows of 100 s; 5 s would cost .08 of separability")


def test_advice_takes_a_wide_spread_into_account():
    scores = [score(1, 0.50, std=0.1), score(2, 0.49), score(5, 0.41), score(10, 0.30)]
    assert advise(scores, 100)[0] == 5


def test_advice_does_not_flatten_what_moves():
    scores = [score(1, 0.5), score(2, 0.5, kept=0.95), score(5, 0.5, kept=0.8)]
    words = "scrape every 2 s, windows of 100 s; 5 s would cost .00 of separability and 15% of the movement within windows"
    assert advise(scores, 100) == (2, words)


def test_advice_says_when_slower_was_not_tried():
    assert advise([score(1, 0.5), score(2, 0.5)], 60)[1] == "scrape every 2 s, windows of 60 s; slower was not tried"


@pytest.mark.parametrize(("hz", "window_s"), [(0.01, 100), (0.0117, 100), (0.0078, 120), (0.05, 20), (1e-3, 1000), (None, 100)])
def test_a_window_holds_a_whole_period(hz, window_s):
    assert usable_window_s(hz) == window_s


def test_picked_and_mean_rates_of_an_interval():
    windows = cut_windows(simulate_campaign(CampaignSpec(nodes=1, threads_per_node=4, minutes=10)))
    rates = windows.rates
    assert np.allclose(mean_rates(windows, 20).reshape(len(windows), 5, 3)[:, 1], rates[:, 20:40, :3].mean(axis=1), atol=1e-6)
    assert np.array_equal(picked(windows, 20).reshape(len(windows), 5, 3)[:, 1], rates[:, 39, :3])
    assert picked(windows, 60).shape == (len(windows), 3)  # what is left over is not seen


def test_steps_longer_than_an_interval_leave_it_out():
    slow = campaign_set(1, train=1, validation=0, test=0, nodes=4, step_s=5.0)
    assert [one.interval_s for one in study_sampling(slow, subsets=2, size=100).scores] == [5, 10, 20, 30, 60]


def test_traces_without_labels_are_refused(campaigns):
    from dataclasses import replace

    unlabelled = replace(campaigns[0], job=np.full_like(campaigns[0].job, -2))
    with pytest.raises(UsageError, match="at least two types"):
        study_sampling([unlabelled])


def test_traces_of_different_steps_are_refused(campaigns):
    slow = simulate_campaign(CampaignSpec(nodes=1, threads_per_node=2, minutes=10, step_s=2.0))
    with pytest.raises(UsageError, match="different steps"):
        labelled_windows([campaigns[0], slow], 100)
