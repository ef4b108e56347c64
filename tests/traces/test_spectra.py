import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import BAD_IO, IDLE, NO_JOB, NP, UNKNOWN_JOB, Trace, TraceJob
from stormpetrel.traces.spectra import lowest_dominant, red_floor, spectra_of


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
