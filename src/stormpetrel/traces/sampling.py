"""How often to scrape, and how long a window should be: what the traces themselves say.

Traces -> study_sampling -> SamplingStudy. Welch's spectral density of each job type gives the lowest dominant frequency, and that
the length of a window; principal components of windows at slower and slower sampling, and their silhouette, give the interval.

Slower sampling is looked at in two ways. *Picked*: one step's rates out of every interval, which is what thinning out a
recording or `irate` gives. *Means*: the mean rates of every interval, which is what counters scraped less often give. Two linear
components of a window see little beside its levels, and a mean keeps a level: that curve stays flat by construction, so that the
advice rests on the picked one; what a mean does lose is told as `movement_kept`.

Spectral density of each job type by Welch's method, and the lowest frequency that stands out of the noise.

Traces -> spectra_of -> one Spectrum per job type. A peak counts only above a floor of red noise (that of a process which forgets
at a constant rate), since almost every trace has more power at low frequencies and that alone is no rhythm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress
from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import IDLE, MIXED, MODES, UNKNOWN, Trace
from stormpetrel.records.windows import BRIDGE_STEPS, Windows, bridge, cut_windows, join_windows
from stormpetrel.traces.separability import SUBSET_SIZE, SUBSETS, MeanStd, PcaMap, silhouette

INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
USABLE_WINDOWS_S: Final = (10, 20, 30, 50, 60, 100, 120, 200, 300, 500, 600, 1000, 1200)
USUAL_WINDOW_S: Final = 100.0  # the paper's, where no frequency stands out
TOLERANCE: Final = 0.02  # of the silhouette: less than this is not worth more scrapes
MOVEMENT: Final = 0.9  # of the variance within windows must be left: a model cannot learn what a mean has flattened
_DRAWN: Final = 3000  # points of the scatter plot
PEAK_SHARE: Final = 0.1  # a dominant peak has at least this share of the largest peak's power …
ABOVE_FLOOR: Final = 1.5  # … and at least so many times the floor's, more where few segments were averaged
QUIET: Final = 1e-3  # variance of all modes together below which a type counts as still: a few ticks of 10 ms
_SEGMENTS_S: Final = (512, 256, 128, 64, 32)  # the longest in which half of a type's time can be seen is taken
_STRETCHES: Final = 400  # per job type; more change nothing but the time it takes
_FORGETTING: Final = np.concatenate([[0.0], 1 - np.geomspace(0.9, 0.002, 120)])  # lag-one correlations tried for the floor


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """How well job types separate at one sampling interval."""

    interval_s: float
    samples: int  # per window and mode
    silhouette: MeanStd  # of picked rates
    explained: tuple[float, ...]  # share of the variance of their two components
    silhouette_of_means: MeanStd
    movement_kept: float  # share of the variance within windows that means of this interval still show


@dataclass(frozen=True, slots=True, eq=False)
class SamplingStudy:
    """What the traces say about sampling; `advice` is the whole of it in one sentence."""

    spectra: tuple[Spectrum, ...]
    lowest_hz: float | None  # the lowest dominant frequency of any job type
    window_s: float
    scores: tuple[IntervalScore, ...]
    interval_s: float
    advice: str
    windows: int
    points: npt.NDArray[np.float32]  # (drawn, 2) windows at the finest interval on their two components
    labels: npt.NDArray[np.str_]  # (drawn,)


def study_sampling(
    traces: Sequence[Trace],
    *,
    intervals_s: Sequence[float] = INTERVALS_S,
    window_s: float | None = None,
    subsets: int = SUBSETS,
    size: int = SUBSET_SIZE,
    seed: int = 0,
    progress: Progress | None = None,
) -> SamplingStudy:
    """Spectra, window length, separability at each interval, advice; `window_s` is taken from the spectra unless it is given."""
    tell = progress or _quiet
    tell(0.0, "spectra")
    spectra = spectra_of(traces, seed=seed)
    lowest_hz = min((spectrum.dominant_hz for spectrum in spectra if spectrum.dominant_hz), default=None)
    length_s = window_s or usable_window_s(lowest_hz)
    windows = labelled_windows(traces, length_s)
    labels = windows.job_types()
    movement = _movement(mean_rates(windows, windows.step_s))
    scores, finest = [], np.empty((0, 2), dtype=np.float32)
    possible = [interval for interval in sorted(intervals_s) if _fits(interval, windows)]
    if not possible:
        raise UsageError(f"No interval of {list(intervals_s)} fits windows of {length_s:g} s at {windows.step_s:g} s.")
    for number, interval_s in enumerate(possible):
        tell((number + 1) / (len(possible) + 1), f"every {interval_s:g} s")
        kept = picked(windows, interval_s)  # (windows, samples × 3)
        means = mean_rates(windows, interval_s)
        plane = PcaMap.fit(kept)
        points = plane.transform(kept)
        finest = finest if number else points
        score = silhouette(points, labels, subsets=subsets, size=size, seed=seed)
        of_means = silhouette(PcaMap.fit(means).transform(means), labels, subsets=subsets, size=size, seed=seed)
        seen = _movement(means) / movement if movement > 0 else 1.0
        explained = tuple(map(float, plane.explained))
        scores.append(IntervalScore(interval_s, kept.shape[1] // 3, score, explained, of_means, seen))
    chosen, advice = advise(scores, length_s)
    drawn = np.sort(np.random.default_rng(seed).permutation(len(windows))[:_DRAWN])
    tell(1.0, "done")
    return SamplingStudy(spectra, lowest_hz, length_s, tuple(scores), chosen, advice, len(windows), finest[drawn], labels[drawn])


def usable_window_s(lowest_hz: float | None) -> float:
    """The length of a window that holds one whole period of the lowest dominant frequency, as a round number of seconds."""
    if lowest_hz is None:
        return USUAL_WINDOW_S
    period_s = 1 / lowest_hz
    # Within a tenth counts: the frequency itself is known no better than the spectrum's resolution.
    return float(next((length for length in USABLE_WINDOWS_S if length >= 0.9 * period_s), USABLE_WINDOWS_S[-1]))


def labelled_windows(traces: Sequence[Trace], window_s: float) -> Windows:
    """The windows of all traces whose job type is known and the same from end to end."""
    if not traces:
        raise UsageError("There is no trace to look at.")
    if len({trace.step_s for trace in traces}) > 1:
        steps_text = ", ".join(sorted({f"{trace.step_s:g} s" for trace in traces}))
        raise UsageError(f"The traces have different steps: {steps_text}.", hint="Look at those of one step at a time.")
    steps = max(2, round(window_s / traces[0].step_s))
    windows = join_windows([cut_windows(trace, steps=steps) for trace in traces])
    windows = windows.take(~np.isin(windows.job_types(), [MIXED, UNKNOWN]))
    types = np.unique(windows.job_types())
    if len(windows) < 4 or types.size < 2:
        raise UsageError(
            f"Telling job types apart needs four windows of at least two types; there are {len(windows):,} of {window_s:g} s with"
            f" a known type ({', '.join(types) or 'none'}).",
            hint="Record a campaign whose threads are labelled, or try --simulated.",
        )
    return windows


def picked(windows: Windows, interval_s: float) -> npt.NDArray[np.float32]:
    """One rate out of every interval, the last one: (windows, samples × 3), other left out."""
    return _flat(_by_interval(windows, interval_s)[:, :, -1])


def mean_rates(windows: Windows, interval_s: float) -> npt.NDArray[np.float32]:
    """What counters scraped every `interval_s` show: the mean rates of each interval: (windows, samples × 3), other left out."""
    return _flat(_by_interval(windows, interval_s).mean(axis=2))


def _by_interval(windows: Windows, interval_s: float) -> npt.NDArray[np.float32]:
    """Rates as (windows, intervals, steps of an interval, 3); what is left over at the end of a window is not seen."""
    every = round(interval_s / windows.step_s)
    samples = windows.steps // every
    return windows.rates[:, : samples * every, :3].reshape(len(windows), samples, every, 3)


def _flat(rates: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return rates.reshape(len(rates), -1)


def _movement(flat: npt.NDArray[np.float32]) -> float:
    """The mean variance of the modes within windows."""
    return float(flat.reshape(len(flat), -1, 3).var(axis=1).mean())


def advise(scores: Sequence[IntervalScore], window_s: float) -> tuple[float, str]:
    """The slowest sampling that is as good as the best, and what the next slower one would cost.

    As good: the mean silhouette is within the best one's standard deviation, or within TOLERANCE where that is more, and at least
    MOVEMENT of the variance within windows is left.
    """
    known = [score for score in scores if score.silhouette.n]
    if not known:
        raise UsageError("No interval gave a silhouette: there are too few windows of each job type.")
    best = max(known, key=lambda score: score.silhouette.mean)
    limit = best.silhouette.mean - max(best.silhouette.std, TOLERANCE)
    good = [score for score in known if score.silhouette.mean >= limit and score.movement_kept >= MOVEMENT]
    chosen = max(good, key=lambda score: score.interval_s, default=known[0])
    advice = f"scrape every {chosen.interval_s:g} s, windows of {window_s:g} s"
    after = next((slow for near, slow in pairwise(known) if near is chosen), None)
    if after is None:
        return chosen.interval_s, f"{advice}; slower was not tried"
    return chosen.interval_s, f"{advice}; {after.interval_s:g} s would cost {_cost(chosen, after)}"


def _cost(chosen: IntervalScore, after: IntervalScore) -> str:
    """What a slower interval loses, in words; movement is named where it is what was lost."""
    separability = f"{_short(max(chosen.silhouette.mean - after.silhouette.mean, 0.0))} of separability"
    if after.movement_kept >= MOVEMENT:
        return separability
    return f"{separability} and {chosen.movement_kept - after.movement_kept:.0%} of the movement within windows"


def _fits(interval_s: float, windows: Windows) -> bool:
    """Whether an interval is a whole number of steps and at least one of it fits into a window."""
    every = interval_s / windows.step_s
    return every > 0.999 and abs(every - round(every)) < 1e-3 and round(every) <= windows.steps


def _short(value: float) -> str:
    """A share without its leading zero: .08."""
    return f"{value:.2f}".lstrip("0") if 0 <= value < 1 else f"{value:.2f}"


def _quiet(_fraction: float, _words: str) -> None:
    """No progress is shown."""


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
