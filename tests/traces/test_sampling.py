""""""

import json
from itertools import pairwise

import numpy as np
import pytest

from stormpetrel.answers.studies.trace_study import sampling_answer
from stormpetrel.errors import UsageError
from stormpetrel.records.traces import BAD_IO, IDLE, NO_JOB, NP, UNKNOWN_JOB, Trace, TraceJob
from stormpetrel.records.windows import cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, campaign_set, simulate_campaign
from stormpetrel.traces.sampling import (
    IntervalScore,
    advise,
    labelled_windows,
    lowest_dominant,
    mean_rates,
    picked,
    red_floor,
    spectra_of,
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


def made_trace(user, *, job=0, step_s=1.0, kind=NP, name="run"):
    """Threads whose user share is given (steps, threads); the rest is other."""
    user = np.clip(np.asarray(user, dtype=np.float32), 0, 1)
    rates = np.zeros((*user.shape, 4), dtype=np.float32)
    rates[:, :, 0], rates[:, :, 3] = user, 1 - user
    places = np.full(user.shape, job, dtype=np.int32)
    return Trace(
        name, step_s, 100.0 + step_s * np.arange(len(user)), ("n",) * user.shape[1], tuple(range(user.shape[1])),
        rates, places, (TraceJob("1", kind),),
    )  # fmt: skip


def red(rng, steps, threads, kept):
    noise = rng.normal(0, 0.05, (steps, threads))
    for step in range(1, steps):
        noise[step] += kept * noise[step - 1]
    return 0.5 + noise * np.sqrt(1 - kept**2)


@pytest.mark.parametrize("period_s", [100, 50, 20])
def test_a_rhythm_is_found_in_red_noise(period_s):
    rng = np.random.default_rng(0)
    wave = 0.1 * np.sin(2 * np.pi * np.arange(1800)[:, None] / period_s + 6 * rng.random((1, 8)))
    (spectrum,) = spectra_of([made_trace(red(rng, 1800, 8, 0.8) + wave)])
    assert spectrum.dominant_hz == pytest.approx(1 / period_s, abs=1 / 512)


def test_short_pulses_are_found_by_their_period():
    rng = np.random.default_rng(0)
    pulses = np.where(np.arange(1800)[:, None] % 90 < 4, 0.4, 0.95) + rng.normal(0, 0.02, (1800, 4))
    (spectrum,) = spectra_of([made_trace(pulses)])
    assert spectrum.dominant_hz == pytest.approx(1 / 90, abs=1 / 512)


def test_of_two_rhythms_the_lower_one_is_named_unless_it_is_weak():
    t = np.arange(3600)[:, None]
    noise = np.random.default_rng(0).normal(0, 0.01, (3600, 4))
    fast = 0.1 * np.sin(2 * np.pi * t / 10)
    slow = np.sin(2 * np.pi * t / 64)
    assert spectra_of([made_trace(0.5 + noise + fast + 0.08 * slow)])[0].dominant_hz == pytest.approx(1 / 64, abs=1 / 512)
    assert spectra_of([made_trace(0.5 + noise + fast + 0.015 * slow)])[0].dominant_hz == pytest.approx(1 / 10, abs=1 / 512)


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9, 0.97])
def test_noise_alone_has_no_rhythm(kept):
    found = [spectra_of([made_trace(red(np.random.default_rng(seed), 3600, 16, kept))])[0].dominant_hz for seed in range(5)]
    assert found.count(None) >= 4


def test_a_thread_that_hardly_moves_has_no_rhythm():
    blips = np.where(np.arange(1800)[:, None] % 60 == 0, 0.05, 0.0) * np.ones((1, 4))
    assert spectra_of([made_trace(blips, job=NO_JOB)])[0].dominant_hz is None


def test_the_power_adds_up_to_the_variance():
    noise = red(np.random.default_rng(0), 3600, 8, 0.0)
    (spectrum,) = spectra_of([made_trace(noise)])
    variance = spectrum.power[0].sum() * spectrum.frequency_hz[0]
    assert variance == pytest.approx(noise.var(), rel=0.1) and spectrum.power[1].max() == 0


def test_each_type_has_a_spectrum_and_unknown_ones_have_none():
    rng = np.random.default_rng(0)
    traces = [
        made_trace(red(rng, 900, 2, 0.5), kind=BAD_IO, name="a"),
        made_trace(red(rng, 900, 2, 0.5), job=NO_JOB, name="b"),
        made_trace(red(rng, 900, 2, 0.5), job=UNKNOWN_JOB, name="c"),
    ]
    assert [spectrum.job_type for spectrum in spectra_of(traces)] == [BAD_IO, IDLE]


def test_gaps_and_short_jobs_are_cut_around():
    user = red(np.random.default_rng(0), 2000, 3, 0.5).astype(np.float32)
    trace = made_trace(user)
    trace.rates[1000:1020] = np.nan
    trace.job[1500:] = NO_JOB
    spectra = {spectrum.job_type: spectrum for spectrum in spectra_of([trace])}
    assert np.isfinite(spectra[NP].power).all() and spectra[NP].segment_s == 512
    assert spectra[IDLE].segment_s == 256  # 500 steps hold no segment of 512


def test_a_trace_too_short_for_any_segment_gives_nothing():
    assert spectra_of([made_trace(np.full((12, 2), 0.5))]) == ()
    with pytest.raises(UsageError):
        spectra_of([])


def test_the_floor_follows_red_noise_and_not_the_peak():
    frequency = np.arange(1, 257) / 512
    truth = 1 / (1 - 1.6 * np.cos(2 * np.pi * frequency) + 0.64)
    power = truth * np.where(np.abs(frequency - 0.05) < 0.005, 20, 1)
    assert np.allclose(red_floor(frequency, power), truth, rtol=0.1)
    assert lowest_dominant(frequency, power, segments=50)[0] == pytest.approx(0.05, abs=0.006)
