"""Spectral density of each job type by Welch's method, and the lowest frequency that stands out of the noise.

Traces -> spectra_of -> one Spectrum per job type. A peak counts only above a floor of red noise (that of a process which forgets
at a constant rate), since almost every trace has more power at low frequencies and that alone is no rhythm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.records.traces import IDLE, MODES, UNKNOWN, Trace
from stormpetrel.records.windows import BRIDGE_STEPS, bridge

PEAK_SHARE: Final = 0.1  # a dominant peak has at least this share of the largest peak's power …
ABOVE_FLOOR: Final = 1.5  # … and at least so many times the floor's, more where few segments were averaged
QUIET: Final = 1e-3  # variance of all modes together below which a type counts as still: a few ticks of 10 ms
_SEGMENTS_S: Final = (512, 256, 128, 64, 32)  # the longest in which half of a type's time can be seen is taken
_STRETCHES: Final = 400  # per job type; more change nothing but the time it takes
_FORGETTING: Final = np.concatenate([[0.0], 1 - np.geomspace(0.9, 0.002, 120)])  # lag-one correlations tried for the floor

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """The spectral density of one job type, the mean over its threads; `dominant_hz` is None where nothing stands out."""

    job_type: str
    frequency_hz: Floats  # (frequencies,) without zero
    power: Floats  # (modes, frequencies) in 1/Hz
    floor: Floats  # (frequencies,) of the sum over modes
    segment_s: float
    stretches: int  # pieces of a thread's trace that were averaged
    dominant_hz: float | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A piece of one thread's trace during which it served one job, without a gap."""

    trace: int
    thread: int
    begin: int
    end: int
    source: tuple[int, int]  # threads of one job are coupled, and count once for what is known about the noise

    @property
    def steps(self) -> int:
        return self.end - self.begin


def spectra_of(traces: Sequence[Trace], *, seed: int = 0) -> tuple[Spectrum, ...]:
    """One spectrum for each labelled job type of the traces, by name; types never seen long enough are left out."""
    if not traces:
        raise UsageError("There is no trace to look at.")
    rates = [bridge(trace.rates, BRIDGE_STEPS)[0] for trace in traces]
    stretches: dict[str, list[_Stretch]] = defaultdict(list)
    for number, trace in enumerate(traces):
        for job_type, stretch in _stretches(number, trace, np.isnan(rates[number][:, :, 0])):
            stretches[job_type].append(stretch)
    rng = np.random.default_rng(seed)
    spectra = [_spectrum(name, of_type, rates, traces[0].step_s, rng) for name, of_type in sorted(stretches.items()) if name]
    return tuple(spectrum for spectrum in spectra if spectrum is not None)


def lowest_dominant(frequency_hz: Floats, power: Floats, *, segments: float) -> tuple[float | None, Floats]:
    """The lowest frequency that dominates a spectrum, or None; and the floor of noise it was judged by.

    Rule: the lowest local maximum of the lightly smoothed spectrum that has at least PEAK_SHARE of the power of the largest one
    above the floor, and stands above the floor by ABOVE_FLOOR, or by three standard errors of `segments` independent segments
    where that is more. The two lowest frequencies are not judged: removing the mean has touched them.
    """
    smooth = np.convolve(np.pad(power, 1, mode="edge"), (0.25, 0.5, 0.25), mode="valid")
    floor = red_floor(frequency_hz, smooth)
    needed = max(ABOVE_FLOOR, 1 + 3 / np.sqrt(max(segments, 1.0)))
    inner = np.arange(2, smooth.size - 1)
    peaks = inner[(smooth[inner] >= smooth[inner - 1]) & (smooth[inner] > smooth[inner + 1])]
    peaks = peaks[smooth[peaks] >= needed * floor[peaks]]
    if not peaks.size:
        return None, floor
    strong = peaks[smooth[peaks] >= PEAK_SHARE * smooth[peaks].max()]
    return float(frequency_hz[strong[0]]), floor


def red_floor(frequency_hz: Floats, power: Floats) -> Floats:
    """The spectrum of red noise that lies closest to a spectrum: absolute differences of the logarithms, so peaks pull little."""
    angle = np.pi * frequency_hz / frequency_hz[-1]  # the last one is half of the sampling rate
    log_power = np.log(np.maximum(power, 1e-30))
    shapes = -np.log(1 - 2 * _FORGETTING[:, None] * np.cos(angle) + _FORGETTING[:, None] ** 2)  # (tried, frequencies)
    weight = 1 / frequency_hz  # an octave counts as an octave: most frequencies are high ones
    heights = _weighted_median(log_power - shapes, weight)  # (tried,)
    misfit = (np.abs(log_power - shapes - heights[:, None]) * weight).sum(axis=1)
    best = int(misfit.argmin())
    return np.asarray(np.exp(shapes[best] + heights[best]))


def _weighted_median(values: Floats, weight: Floats) -> Floats:
    order = np.argsort(values, axis=1)
    reached = np.cumsum(weight[order], axis=1)
    middle = (reached >= reached[:, -1:] / 2).argmax(axis=1)
    return np.asarray(np.take_along_axis(values, np.take_along_axis(order, middle[:, None], axis=1), axis=1)[:, 0])


def _stretches(number: int, trace: Trace, missing: npt.NDArray[np.bool_]) -> Iterator[tuple[str, _Stretch]]:
    names = np.array([*(job.job_type for job in trace.jobs), UNKNOWN, IDLE])  # the last two at -2, -1
    for thread in range(trace.threads):
        state = np.where(missing[:, thread], -3, trace.job[:, thread])
        borders = np.concatenate([[0], np.flatnonzero(np.diff(state)) + 1, [state.size]])
        for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            job = int(state[begin]) if end > begin else -3
            if job > -3:
                alone = job if job >= 0 else -10 - thread
                yield str(names[job]), _Stretch(number, thread, begin, end, (number, alone))


def _spectrum(
    job_type: str, of_type: list[_Stretch], rates: list[npt.NDArray[np.float32]], step_s: float, rng: np.random.Generator
) -> Spectrum | None:
    """The mean spectrum of a type's stretches that hold at least one segment."""
    lengths = np.array([stretch.steps for stretch in of_type])
    segment = next((s for s in (int(second / step_s) for second in _SEGMENTS_S) if _half_seen(lengths, s)), 0)
    long_enough = [stretch for stretch in of_type if stretch.steps >= segment]
    if segment < 16 or not long_enough:
        return None
    picked = [long_enough[place] for place in np.sort(rng.permutation(len(long_enough))[:_STRETCHES])]
    total, weight, per_source = np.zeros((len(MODES), segment // 2)), 0, defaultdict[tuple[int, int], int](int)
    for stretch in picked:
        frequency_hz, power = _welch(rates[stretch.trace][stretch.begin : stretch.end, stretch.thread], segment, step_s)
        segments = stretch.steps // segment
        total, weight = total + power * segments, weight + segments
        per_source[stretch.source] = max(per_source[stretch.source], segments)
    mean = total / weight
    dominant_hz, floor = lowest_dominant(frequency_hz, mean.sum(axis=0), segments=sum(per_source.values()))
    if mean.sum() * frequency_hz[0] < QUIET:
        dominant_hz = None
    return Spectrum(job_type, frequency_hz, mean, floor, segment * step_s, len(picked), dominant_hz)


def _half_seen(lengths: npt.NDArray[np.int64], segment: int) -> bool:
    return bool(lengths[lengths >= segment].sum() >= lengths.sum() / 2)


def _welch(rates: npt.NDArray[np.float32], segment: int, step_s: float) -> tuple[Floats, Floats]:
    """Frequencies and densities (modes, frequencies) of one stretch (steps, modes), without frequency zero."""
    try:
        from scipy.signal import welch
    except ImportError as error:
        raise MissingExtraError("The spectral density of traces", "traces") from error
    frequency_hz, power = welch(rates.T.astype(np.float64), fs=1 / step_s, nperseg=segment, detrend="constant")
    return frequency_hz[1:], power[:, 1:]
