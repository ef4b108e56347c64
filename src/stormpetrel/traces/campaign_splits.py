"""Splits of traces: by campaign where campaigns say what they are for, by span of time where they do not; never at random.

Traces -> split_traces -> SplitWindows (train, validation, test). Runs that overlap in time are never on two sides, and what
several of them saw of one node at one second counts once.

Spans of time: runs that overlap in time saw the same machines at the same seconds, and count as one.

Traces -> time_spans -> groups of overlapping runs, earliest first; traces -> counted_once -> the same with every node and second
in one of them only; parts of a split -> refuse_overlaps. Public recordings hold the same nodes at the same seconds under several
names (up to 96 % of the values equal): split by file, what a model has learnt is what it is judged on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import Split, Trace
from stormpetrel.records.windows import Windows, cut_windows, join_windows, short_job_windows
from stormpetrel.traces.networks.fitting_windows import fitted

WINDOW_S: Final = 100.0
TRAINING_SPANS: Final = (5, 8)  # of the spans of time of runs that do not say what they are for, the first five eighths teach
_SAME_TIME_S: Final = 1e-3  # of the times of two runs
VALIDATION_SHARE: Final = 0.15  # the last part of each training run, where no campaign is for validation


@dataclass(frozen=True, slots=True)
class Cut:
    """How traces are cut: windows of so many seconds, one every `stride_s` (by default side by side).

    With `short_jobs`, a job that contains no such window has one of its own, repeated where it is shorter.
    """

    window_s: float = WINDOW_S
    stride_s: float | None = None
    short_jobs: bool = False

    def windows(self, trace: Trace) -> Windows:
        """The windows of one trace."""
        steps = steps_of(self.window_s, trace.step_s)
        stride = None if self.stride_s is None else max(1, round(self.stride_s / trace.step_s))
        windows = cut_windows(trace, steps=steps, stride=stride)
        if not self.short_jobs:
            return windows
        short = short_job_windows(trace, steps=steps)
        return join_windows([windows, *(fitted(part, steps=steps, step_s=trace.step_s) for part in short)])


@dataclass(frozen=True, slots=True, eq=False)
class SplitWindows:
    """Windows to learn from, to stop training by, and to be judged on; all of them, the anomalous ones as well."""

    train: Windows
    validation: Windows
    test: Windows
    cut: Cut = field(default_factory=Cut)
    spans: Mapping[str, int] = field(default_factory=dict)  # run -> which span of time it lies in; runs of one overlap

    def counts(self) -> dict[str, int]:
        """How many windows each part has, and how many could not be cut."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        left_out = sum(sum(part.left_out.values()) for part in parts.values())
        return {**{name: len(part) for name, part in parts.items()}, "left_out": left_out}


def steps_of(window_s: float, step_s: float) -> int:
    """How many steps a window of so many seconds has."""
    return max(2, round(window_s / step_s))


def split_traces(traces: Sequence[Trace], cut: Cut | None = None) -> SplitWindows:
    """The windows of campaigns by what each is for; of runs that do not say it, by span of time.

    Of the latter, runs that overlap in time are one span; the first five eighths of the spans teach and the others test. A single
    span is split by its own time, in the same proportion. Where there is no validation campaign, the last 15 % of each training
    run's time is taken for it. Windows that overlap are always of the same part; UsageError where campaigns that overlap in time
    are for different parts.
    """
    cut = cut or Cut()
    _refuse_mixed_steps(traces)
    by_split = _by_campaign(traces) if _counts_text(traces) else _by_time(traces, cut)
    by_split = {split: _once(some, cut) for split, some in by_split.items()}
    train, validation = _teaching(by_split[Split.TRAIN], by_split[Split.VALIDATION], cut)
    return SplitWindows(train, validation, _windows(by_split[Split.TEST], Split.TEST, cut), cut, numbered_spans(traces))


def teaching_windows(traces: Sequence[Trace], cut: Cut | None = None) -> tuple[Windows, Windows]:
    """Windows to learn from and to stop by, where nothing is to be judged: test campaigns are left alone.

    Runs that do not say what they are for all teach.
    """
    cut = cut or Cut()
    _refuse_mixed_steps(traces)
    if not _counts_text(traces):
        return _teaching(sorted(traces, key=lambda trace: trace.name), [], cut)
    of_split = {split: [trace for trace in traces if trace.split is split] for split in Split}
    if not of_split[Split.TRAIN]:
        raise UsageError("None of the campaigns is for training.", hint="Name some that are: their split is `train`.")
    return _teaching(of_split[Split.TRAIN], of_split[Split.VALIDATION], cut)


def _refuse_mixed_steps(traces: Sequence[Trace]) -> None:
    by_step = {trace.step_s: trace.name for trace in traces}
    if len(by_step) > 1:
        steps = " and ".join(f"{step_s:g} s ({name[:80]!r})" for step_s, name in sorted(by_step.items())[:3])
        raise UsageError(
            f"The runs have steps of different lengths, such as {steps}: their windows cannot be compared.",
            hint="Name runs of one step at a time.",
        )


def _counts_text(traces: Sequence[Trace]) -> bool:
    """Whether all campaigns say what they are for, or none does; UsageError where they disagree."""
    untold = [trace.name for trace in traces if trace.split is None]
    if untold and len(untold) < len(traces):
        raise UsageError(
            f"Some campaigns say what they are for and others do not, such as {untold[0][:80]!r}.",
            hint="Take those with a split (train, validation, test) and those without apart from each other.",
        )
    return bool(traces) and not untold


def _teaching(train: Sequence[Trace], validation: Sequence[Trace], cut: Cut) -> tuple[Windows, Windows]:
    if not validation:
        long = [trace for trace in train if trace.steps >= 2 * steps_of(cut.window_s, trace.step_s)] or train
        parts = [_cut_in_time(trace, steps_of(cut.window_s, trace.step_s)) for trace in long]
        short = [trace for trace in train if trace not in long]  # too short to be cut: they teach
        train, validation = [*(early for early, _ in parts), *short], [late for _, late in parts]
    return _windows(train, Split.TRAIN, cut), _windows(validation, Split.VALIDATION, cut)


def _by_campaign(traces: Sequence[Trace]) -> dict[Split, list[Trace]]:
    by_split = {split: [trace for trace in traces if trace.split is split] for split in Split}
    for split in (Split.TRAIN, Split.TEST):
        if not by_split[split]:
            there = ", ".join(f"{len(those)} for {name}" for name, those in by_split.items() if those)
            raise UsageError(
                f"There is no campaign for {split}; there are {there}.",
                hint="Name a folder with campaigns for train and for test, or make one: stormpetrel campaign simulate",
            )
    refuse_overlaps({str(split): some for split, some in by_split.items()})
    return by_split


def _by_time(traces: Sequence[Trace], cut: Cut) -> dict[Split, list[Trace]]:
    spans = time_spans(traces)
    if not spans:
        raise UsageError("There is no run: nothing would be left to test on.", hint="Name a run, or several.")
    if len(spans) == 1:
        return _by_part_of_one(spans[0], cut)
    taught = max(1, len(spans) * TRAINING_SPANS[0] // TRAINING_SPANS[1])
    train, test = ([trace for span in part for trace in span] for part in (spans[:taught], spans[taught:]))
    return {Split.TRAIN: train, Split.VALIDATION: [], Split.TEST: test}


def _by_part_of_one(span: Sequence[Trace], cut: Cut) -> dict[Split, list[Trace]]:
    """The first five eighths of the time of a single run, or of runs that overlap, for training, the rest for test."""
    begin_s, end_s = _begin_s(span[0]), max(float(trace.time_s[-1]) for trace in span)
    at_s = begin_s + (end_s - begin_s) * TRAINING_SPANS[0] / TRAINING_SPANS[1]
    parts = [(trace, int(np.searchsorted(trace.time_s, at_s + _SAME_TIME_S, "right"))) for trace in span]
    train = [_steps(trace, slice(0, at)) for trace, at in parts if at]
    test = [_steps(trace, slice(at, None)) for trace, at in parts if at < trace.steps]
    window_steps = steps_of(cut.window_s, span[0].step_s)
    if not train or max((trace.steps for trace in test), default=0) < window_steps:
        those = f"The run {span[0].name[:80]!r} has" if len(span) == 1 else f"The {len(span)} runs overlap in time, and have"
        raise UsageError(
            f"{those} {round((end_s - begin_s) / span[0].step_s):,} steps, too few to be split by time into windows of"
            f" {window_steps}.",
            hint="Record a longer one, name two runs of different times, or ask for shorter windows (traces evaluate --window).",
        )
    return {Split.TRAIN: train, Split.VALIDATION: [], Split.TEST: test}


def _once(traces: Sequence[Trace], cut: Cut) -> list[Trace]:
    """The runs of a part with nothing in them twice; what is left of a run that another has seen must be two windows long."""
    whole = {trace.name: trace.steps for trace in traces}
    return [
        trace
        for trace in counted_once(traces)
        if trace.steps == whole[trace.name] or trace.steps >= 2 * steps_of(cut.window_s, trace.step_s)
    ]


def _cut_in_time(trace: Trace, window_steps: int) -> tuple[Trace, Trace]:
    """The earlier and the later part of a run; the later is a window long at least."""
    at = min(int(trace.steps * (1 - VALIDATION_SHARE)), trace.steps - window_steps)
    if at < window_steps:
        raise UsageError(
            f"Of the run {trace.name[:80]!r}, {trace.steps} steps are for training; to learn and to know when to stop takes"
            f" {2 * window_steps}.",
            hint="Record longer runs, add a campaign for validation, or ask for shorter windows (traces evaluate --window).",
        )
    return _steps(trace, slice(0, at)), _steps(trace, slice(at, None))


def _steps(trace: Trace, some: slice) -> Trace:
    return replace(trace, time_s=trace.time_s[some], rates=trace.rates[some], job=trace.job[some])


def _windows(traces: Sequence[Trace], split: Split, cut: Cut) -> Windows:
    windows = join_windows([cut.windows(trace) for trace in traces])
    if not len(windows):
        why = ", ".join(f"{number:,} {reason}" for reason, number in windows.left_out.items()) or "the traces are empty"
        raise UsageError(
            f"The campaigns for {split} have no whole window of {cut.window_s:g} s ({why}).",
            hint="Record longer ones, or ask for shorter windows (traces evaluate --window).",
        )
    return windows


def time_spans(traces: Sequence[Trace]) -> list[tuple[Trace, ...]]:
    """Group runs that overlap in time, directly or through others; groups by their first second, runs within them too."""
    spans: list[list[Trace]] = []
    end_s = -np.inf
    for trace in sorted((trace for trace in traces if trace.steps), key=lambda trace: (_begin_s(trace), trace.name)):
        if _begin_s(trace) >= end_s:
            spans.append([])
        spans[-1].append(trace)
        end_s = max(end_s, float(trace.time_s[-1]))
    return [tuple(span) for span in spans]


def counted_once(traces: Sequence[Trace]) -> list[Trace]:
    """Return the runs without what an earlier run of the same span has seen of the same node.

    Such steps become gaps, and steps that are nothing but gaps at either end are cut off; a run of which nothing is left is left
    out. Runs that overlap nobody are returned as they are, and the order is by span and time.
    """
    return [trace for span in time_spans(traces) for trace in _unseen(span)]


def refuse_overlaps(parts: Mapping[str, Sequence[Trace]]) -> None:
    """UsageError where runs of two parts of a split overlap in time."""
    for (name, some), (other_name, others) in combinations(parts.items(), 2):
        for trace in some:
            for other in others:
                if overlap_s(trace, other) > 0:
                    raise UsageError(
                        f"The run {trace.name[:80]!r} is for {name} and {other.name[:80]!r} for {other_name}, and they overlap by"
                        f" {overlap_s(trace, other):,.0f} s: what is learnt from one would be judged on the other.",
                        hint="Give runs that overlap in time the same split, or leave one of them out.",
                    )


def overlap_s(trace: Trace, other: Trace) -> float:
    """Seconds that two runs share."""
    if not trace.steps or not other.steps:
        return 0.0
    begin_s, end_s = max(_begin_s(trace), _begin_s(other)), min(float(trace.time_s[-1]), float(other.time_s[-1]))
    return max(0.0, end_s - begin_s)


def numbered_spans(traces: Sequence[Trace]) -> dict[str, int]:
    """The number of the span of each run, by its name, counted from 0 in the order of time."""
    return {trace.name: number for number, span in enumerate(time_spans(traces)) for trace in span}


def _begin_s(trace: Trace) -> float:
    return float(trace.time_s[0]) - trace.step_s


def _unseen(span: Sequence[Trace]) -> list[Trace]:
    if len(span) == 1:
        return list(span)
    kept = []
    covered: dict[str, list[tuple[float, float]]] = {}  # node -> (first, last) seconds that runs before have seen
    for trace in span:
        kept.extend(_without(trace, covered))
        for node in set(trace.nodes):
            covered.setdefault(node, []).append((float(trace.time_s[0]), float(trace.time_s[-1])))
    return kept


def _without(trace: Trace, covered: Mapping[str, Sequence[tuple[float, float]]]) -> list[Trace]:
    """The run with gaps where a node was covered already; none where nothing is left of it."""
    rates, nodes = trace.rates.copy(), np.array(trace.nodes)
    for node in set(trace.nodes) & covered.keys():
        for first_s, last_s in covered[node]:
            steps = (trace.time_s >= first_s - trace.step_s / 2) & (trace.time_s <= last_s + trace.step_s / 2)
            rates[np.ix_(steps, nodes == node)] = np.nan
    seen = np.flatnonzero(~np.isnan(rates[:, :, 0]).all(axis=1))
    if not seen.size:
        return []
    rows = slice(int(seen[0]), int(seen[-1]) + 1)
    return [replace(trace, time_s=trace.time_s[rows], rates=rates[rows], job=trace.job[rows])]
