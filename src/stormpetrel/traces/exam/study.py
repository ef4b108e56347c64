"""The exam: how well the detector and its baselines tell node windows with a fault from untouched ones, fault by fault.

SplitWindows, faults -> run_fault_study -> FaultStudy (figures per fault and severity, and every score for whoever wants to judge
for himself). A fault begins in the window that it is put into: the windows before it, and the other nodes, are as they were.

How many faults a detector sees: each fault put into the same node windows, at one false alarm per node and day.

detector, Windows -> seen_faults -> Seen: yes or no for each fault and node window, so that two detectors can be compared pair by
pair. Without baselines and ceiling: a night has no time for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import USER
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.traces.campaign_splits import SplitWindows
from stormpetrel.traces.detector.detector import LEVELS, DetectorSettings, Encoder, TraceDetector
from stormpetrel.traces.detector.observation import Expectation, Observation
from stormpetrel.traces.detector.statistics import top_mean
from stormpetrel.traces.exam.baselines import Baseline, WindowsOfNodes, fitted_baselines
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import SEVERITIES, Fault, Severity, inject

Groups = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
DETECTOR: Final = "detector"
CEILING: Final = "ceiling"
VISIBLE: Final = 0.9  # a cell counts where a classifier that was trained on that very fault reaches this
BUSY_USER: Final = 0.05  # mean share of user from which a node is busy
SHARES: Final = (0.05, 0.01, 0.001)  # of calm windows that are promised to be flagged at most
MOST_NODES: Final = 400  # node windows that each fault is put into
_MOST_LEARNT: Final = 300  # of the training windows, for the ceiling
_TOP_SHARE: Final = 0.25
_DAY_S: Final = 86400.0
_RESAMPLES: Final = 1000
_TREES: Final = 150
RECALL_NODES: Final = 40


@dataclass(frozen=True, slots=True)
class Figures:
    """ROC area, and the share of faults that are seen at one false alarm per node and day."""

    roc_auc: float | None
    recall: float | None


@dataclass(frozen=True, slots=True, eq=False)
class ScoredWindows:
    """The scores of one scorer at one level: of which windows, with which fault in them ("" for none)."""

    level: str
    trace: Sequence[str]
    node: Sequence[str]
    start_s: Floats
    fault: str
    severity: str
    scorer: str
    score: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FaultStudy:
    """What came of it; the figures are per node window."""

    figures: Mapping[str, Mapping[str, Mapping[str, Figures]]]  # fault -> severity -> scorer
    strata: Mapping[str, Mapping[str, float | None]]  # busy, idle -> scorer -> mean ROC area over visible cells
    strata_windows: Mapping[str, int]
    mean: Mapping[str, float | None]  # scorer -> mean ROC area over visible cells
    interval: Mapping[str, tuple[float, float] | None]  # of the same, 95 %, by resampling spans of time
    visible: tuple[tuple[str, str], ...]
    not_visible: tuple[tuple[str, str], ...]
    promised: Mapping[float, float]  # share promised -> share of untouched node windows that are flagged
    promised_levels: Mapping[str, Mapping[float, float]]  # the same for threads, jobs and nodes
    learnt: int  # calm node windows that the detector learnt from
    calm_windows: int
    spans: int
    windows_per_second: float | None  # thread windows that the detector scores in a second of one core, all levels


Sink = Callable[[ScoredWindows], None]


def run_fault_study(
    split: SplitWindows,
    faults: Sequence[Fault],
    *,
    seed: int = 0,
    most_nodes: int = MOST_NODES,
    sink: Sink | None = None,
    references: Collection[str] | None = None,
    settings: DetectorSettings | None = None,
    encoder: Encoder | None = None,
    progress: Progress = no_progress,
) -> FaultStudy:
    """Fit detector and baselines on the calm windows of training and validation, and judge them on the test windows.

    `references` names the baselines (and CEILING) that stand beside the detector; all of them where it is left out. `encoder`
    gives the embeddings that the detector looks at; without one it goes without.
    """
    progress(0.0, "learning what is calm")
    detector = TraceDetector(replace(settings or DetectorSettings(), seed=seed), encoder)
    exam = _Exam(split, detector, seed, most_nodes, sink, references)
    cells: dict[tuple[str, Severity], _Cell] = {}
    for number, (fault, severity) in enumerate((fault, severity) for fault in faults for severity in SEVERITIES):
        progress(number / (len(faults) * len(SEVERITIES)), f"{fault.name}, {severity}")
        cells[fault.name, severity] = exam.judged(fault, severity)
    return exam.together(cells)


class _Exam:
    """Detector and baselines, fitted, and the scores of the untouched node windows."""

    def __init__(
        self,
        split: SplitWindows,
        detector: TraceDetector,
        seed: int,
        most_nodes: int,
        sink: Sink | None,
        references: Collection[str] | None,
    ) -> None:
        self.seed, self.sink = seed, sink
        self.has_ceiling = find_spec("sklearn") is not None and (references is None or CEILING in references)
        train = join_windows([split.train, split.validation])
        self.detector = detector.fit(train)
        self.train, self.test = (ObservedNodes.of(self.detector, windows) for windows in (train, split.test))
        self.windows_per_second = _speed(self.detector, split.test)
        calm, _, _ = self.train.part(self.train.whole)
        layout = calm.layout
        of_calm = WindowsOfNodes(calm.windows.rates, calm.statistics, layout.node, layout.nodes)
        self.baselines = fitted_baselines(of_calm, seed, references)
        rng = np.random.default_rng([seed, 7])
        self.some, self.learn = _drawn(rng, self.test.whole, most_nodes), _drawn(rng, self.train.whole, _MOST_LEARNT)
        self.calm = self._scored(*self.test.part(self.test.whole)[:2], "", "")  # of all untouched node windows
        self.span = _span_numbers(split, self.test)
        self.is_busy = _is_busy(self.test)

    def judged(self, fault: Fault, severity: Severity) -> _Cell:
        """The scores of the chosen node windows with a fault in them."""
        part, expected, _ = self.test.part(self.some)
        changed = self.detector.changed(part, put_fault(part, fault, severity, self.seed))
        scores = self._scored(changed, expected, fault.name, severity)
        return _Cell(scores, self._ceiling(fault, severity, changed, expected))

    def _ceiling(
        self, fault: Fault, severity: Severity, changed: Observation, expected: Expectation
    ) -> tuple[Floats, Floats] | None:
        """Scores of a classifier that was trained on this very fault, of windows without it and with it."""
        if not self.has_ceiling:
            return None
        from sklearn.ensemble import ExtraTreesClassifier

        part, context, _ = self.train.part(self.learn)
        faulty = self.detector.changed(part, put_fault(part, fault, severity, self.seed + 1))
        calm, bad = self._features(part, context), self._features(faulty, context)
        classifier = ExtraTreesClassifier(_TREES, min_samples_leaf=3, random_state=self.seed)
        classifier.fit(np.concatenate([calm, bad]), np.repeat([0, 1], [len(calm), len(bad)]))
        untouched = self._features(*self.test.part(self.some)[:2])
        both = (classifier.predict_proba(rows)[:, 1] for rows in (untouched, self._features(changed, expected)))
        without, with_fault = (np.asarray(scores, dtype=np.float64) for scores in both)
        return without, with_fault

    def _features(self, part: Observation, expected: Expectation) -> Floats:
        """All that the detector sees of nodes, and the same without their own spread."""
        residuals = self.detector.node_residuals(part, expected)
        return np.concatenate([residuals, residuals * expected.node_spread], axis=1)

    def _scored(self, part: Observation, expected: Expectation, fault: str, severity: str) -> dict[str, Floats]:
        """The score of each node group by each scorer; the sink hears of all levels."""
        layout = part.layout
        windows = WindowsOfNodes(part.windows.rates, part.statistics, layout.node, layout.nodes)
        surprise = self.detector.surprise(part, expected)
        scores = {DETECTOR: surprise.node}
        calibrated = self.detector.scores(surprise)
        if not fault:
            self.promised_levels = {str(level): _flagged(calibrated[level]) for level in LEVELS}
        self._report(part, fault, severity, DETECTOR, {str(level): values for level, values in calibrated.items()})
        for baseline in self.baselines:
            levels = _levels(part, baseline, windows)
            scores[baseline.name] = levels["node"]
            self._report(part, fault, severity, baseline.name, levels)
        return scores

    def _report(self, part: Observation, fault: str, severity: str, scorer: str, levels: Mapping[str, Floats]) -> None:
        if self.sink is not None:
            for level, scores in levels.items():
                self.sink(_named(part, level, fault, severity, scorer, scores))

    def together(self, cells: Mapping[tuple[str, Severity], _Cell]) -> FaultStudy:
        """The figures of all cells."""
        window_s = self.test.seen.windows.window_s
        place = np.searchsorted(self.test.whole, self.some)  # of the chosen windows among the untouched ones
        figures: dict[str, dict[str, dict[str, Figures]]] = {}
        for (fault, severity), cell in cells.items():
            by_scorer = {name: _figures(self.calm[name], scores, window_s) for name, scores in cell.scores.items()}
            if cell.ceiling is not None:
                by_scorer[CEILING] = _figures(*cell.ceiling, window_s)
            figures.setdefault(fault, {})[severity] = by_scorer
        visible = [key for key in cells if _is_visible(figures[key[0]][key[1]])]
        everywhere = np.ones(len(self.test.whole), dtype=bool)
        mean = self._mean(cells, visible, place, everywhere)
        strata = {"busy": self.is_busy, "idle": ~self.is_busy}
        return FaultStudy(
            figures=figures,
            strata={name: self._mean(cells, visible, place, rows) for name, rows in strata.items()},
            strata_windows={name: int(rows.sum()) for name, rows in strata.items()},
            mean=mean,
            interval=self._interval(cells, visible, place),
            visible=tuple((fault, str(severity)) for fault, severity in visible),
            not_visible=tuple((fault, str(severity)) for fault, severity in cells if (fault, severity) not in visible),
            promised=self.promised_levels["node"],
            promised_levels=self.promised_levels,
            learnt=self.detector.calm_nodes,
            calm_windows=len(self.test.whole),
            spans=int(np.unique(self.span).size),
            windows_per_second=self.windows_per_second,
        )

    def _mean(
        self, cells: Mapping[tuple[str, Severity], _Cell], visible: Sequence[tuple[str, Severity]], place: Groups, rows: Mask
    ) -> dict[str, float | None]:
        """The mean ROC area of each scorer over visible cells, on some of the windows."""
        names = [*self.calm, *([CEILING] if any(cell.ceiling is not None for cell in cells.values()) else [])]
        by_scorer: dict[str, float | None] = {}
        for name in names:
            areas = [self._area(cells[key], name, np.flatnonzero(rows), place) for key in visible]
            known = [area for area in areas if area is not None]
            by_scorer[name] = float(np.mean(known)) if known else None
        return by_scorer

    def _area(self, cell: _Cell, name: str, rows: Groups, place: Groups) -> float | None:
        """The ROC area of one scorer on untouched windows `rows`, which may repeat, and faulty ones at the same places."""
        count = np.bincount(rows, minlength=len(self.test.whole))
        chosen = np.repeat(np.arange(place.size), count[place])
        if name == CEILING:
            assert cell.ceiling is not None
            return _roc(cell.ceiling[0][chosen], cell.ceiling[1][chosen])
        return _roc(self.calm[name][rows], cell.scores[name][chosen])

    def _interval(
        self, cells: Mapping[tuple[str, Severity], _Cell], visible: Sequence[tuple[str, Severity]], place: Groups
    ) -> dict[str, tuple[float, float] | None]:
        """The middle 95 % of the mean ROC area when spans of time are drawn again; None where there is one span only."""
        spans = np.unique(self.span)
        if spans.size < 2 or not visible:
            return dict.fromkeys(self.calm)
        rng = np.random.default_rng([self.seed, 11])
        draws = [tuple(sorted(rng.choice(spans, spans.size))) for _ in range(_RESAMPLES)]
        by_scorer: dict[str, tuple[float, float] | None] = {}
        for name in self.calm:
            known: dict[tuple[int, ...], float] = {}
            for draw in draws:
                if draw not in known:
                    rows = np.concatenate([np.flatnonzero(self.span == span) for span in draw])
                    areas = [self._area(cells[key], name, rows, place) for key in visible]
                    known[draw] = float(np.mean([area for area in areas if area is not None] or [np.nan]))
            low, high = np.nanquantile([known[draw] for draw in draws], [0.025, 0.975])
            by_scorer[name] = (float(low), float(high))
        return by_scorer


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """Scores of node windows with one fault in them, and of the ceiling without it and with it."""

    scores: dict[str, Floats]
    ceiling: tuple[Floats, Floats] | None


@dataclass(frozen=True, slots=True, eq=False)
class ObservedNodes:
    """Observed windows with what their past lets expect; `whole` are the node groups that have counted threads."""

    seen: Observation
    expected: Expectation
    whole: Groups

    @classmethod
    def of(cls, detector: TraceDetector, windows: Windows) -> ObservedNodes:
        """Return windows as a detector sees them."""
        seen = detector.observe(windows)
        threads = np.bincount(seen.layout.node[seen.layout.node >= 0], minlength=seen.layout.nodes)
        return cls(seen, detector.expect(seen), np.flatnonzero(threads))

    def part(self, some: Groups) -> tuple[Observation, Expectation, Groups]:
        """Return some node groups, what is expected of them, and the rows of their windows."""
        part, rows = self.seen.of_nodes(some)
        return part, self.expected.take(rows, some), rows


def put_fault(part: Observation, fault: Fault, severity: Severity, seed: int) -> npt.NDArray[np.float32]:
    """The rates of all windows with the fault in each node group, each with a seed of its own."""
    rates = part.windows.rates.copy()
    for node, rows in enumerate(_rows_of_nodes(part)):
        changed = inject(fault, rates[rows].transpose(1, 0, 2), severity, (seed * 1_000_003 + node) % 2**31)
        rates[rows] = changed.transpose(1, 0, 2)
    return rates


def _rows_of_nodes(part: Observation) -> Iterator[Groups]:
    order = np.argsort(part.layout.node, kind="stable")
    borders = np.searchsorted(part.layout.node[order], np.arange(part.layout.nodes + 1))
    return (order[begin:end] for begin, end in pairwise(borders))


def _levels(part: Observation, baseline: Baseline, windows: WindowsOfNodes) -> dict[str, Floats]:
    by_scorer, layout = baseline.score(windows), part.layout
    if baseline.per_node:
        return {"node": by_scorer}
    job = top_mean(by_scorer, layout.work, len(layout.work_job), _TOP_SHARE)
    return {"thread": by_scorer, "job": job, "node": top_mean(by_scorer, layout.node, layout.nodes, _TOP_SHARE)}


def _named(part: Observation, level: str, fault: str, severity: str, scorer: str, scores: Floats) -> ScoredWindows:
    """Scores with the names of what they are of: a node, a thread as node/cpu, a job as node:id."""
    layout, windows = part.layout, part.windows
    node = layout.node if level == "thread" else layout.work_node if level == "job" else np.arange(layout.nodes)
    names = [windows.nodes[number] for number in layout.node_of[node]]
    if level == "thread":
        names = [f"{name}/{cpu}" for name, cpu in zip(names, windows.cpu, strict=True)]
    elif level == "job":
        ids = [windows.jobs[number].job_id if number >= 0 else "" for number in layout.work_job]
        names = [f"{name}:{job_id}" for name, job_id in zip(names, ids, strict=True)]
    traces = [windows.traces[number] for number in layout.node_trace[node]]
    return ScoredWindows(level, traces, names, layout.node_start_s[node], fault, severity, scorer, scores)


def _speed(detector: TraceDetector, windows: Windows) -> float | None:
    """Windows per second of CPU time, scored for threads, jobs and nodes; None where it is too short to be measured."""
    began = time.process_time()
    seen = detector.observe(windows)
    detector.scores(detector.surprise(seen, detector.expect(seen)))
    took_s = time.process_time() - began
    return len(windows) / took_s if took_s > 0 else None


def _drawn(rng: np.random.Generator, groups: Groups, most: int) -> Groups:
    return groups if groups.size <= most else np.sort(rng.choice(groups, most, replace=False))


def _span_numbers(split: SplitWindows, test: ObservedNodes) -> Groups:
    """The span of time of each whole node group."""
    layout, traces = test.seen.layout, test.seen.windows.traces
    return np.array([split.spans.get(traces[number], 0) for number in layout.node_trace[test.whole]], dtype=np.intp)


def _flagged(scores: Floats) -> dict[float, float]:
    """The share of scores beyond each share that is promised."""
    return {share: float((scores >= -np.log10(share)).mean()) if scores.size else 0.0 for share in SHARES}


def _is_busy(test: ObservedNodes) -> Mask:
    """Which of the whole node groups show a mean share of user of a twentieth or more."""
    layout = test.seen.layout
    user = test.seen.windows.rates[:, :, USER].mean(axis=1)
    inside = layout.node >= 0
    total = np.bincount(layout.node[inside], weights=user[inside], minlength=layout.nodes)
    threads = np.bincount(layout.node[inside], minlength=layout.nodes)
    return np.asarray((total / np.maximum(threads, 1))[test.whole] >= BUSY_USER)


def _roc(calm: Floats, faulty: Floats) -> float | None:
    truth = np.repeat([False, True], [calm.size, faulty.size])
    return roc_auc(truth, np.concatenate([calm, faulty])) if calm.size and faulty.size else None


def _figures(calm: Floats, faulty: Floats, window_s: float) -> Figures:
    """The ROC area, and the recall at the score that calm windows exceed once per node and day (none, where they are fewer)."""
    if not calm.size or not faulty.size:
        return Figures(None, None)
    allowed = int(calm.size * window_s / _DAY_S)
    threshold = np.sort(calm)[::-1][min(allowed, calm.size - 1)]
    return Figures(_roc(calm, faulty), float((faulty > threshold).mean()))


def _is_visible(by_scorer: Mapping[str, Figures]) -> bool:
    """Whether the ceiling is high enough for a cell to count; without a ceiling all count."""
    ceiling = by_scorer.get(CEILING)
    return ceiling is None or (ceiling.roc_auc is not None and ceiling.roc_auc >= VISIBLE)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Which faults were seen in which node windows, and the node of each window."""

    seen: npt.NDArray[np.bool_]  # (faults × severities, node windows)
    node: npt.NDArray[np.int64]  # (node windows,)

    @property
    def recall(self) -> float:
        """The share of faults that were seen."""
        return float(self.seen.mean())


def seen_faults(
    detector: TraceDetector,
    windows: Windows,
    *,
    faults: Sequence[Fault] = BENCH,
    severities: Sequence[Severity] = SEVERITIES,
    most_nodes: int = RECALL_NODES,
    seed: int = 0,
) -> Seen:
    """Put every fault into the same node windows and ask the detector; the score to pass is that of untouched ones.

    It is passed by untouched node windows once per node and day, or by none of them where they are fewer.
    """
    nodes = ObservedNodes.of(detector, windows)
    chosen = nodes.whole
    if chosen.size > most_nodes:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most_nodes, replace=False))
    calm, expected, _ = nodes.part(nodes.whole)
    untouched = np.sort(detector.surprise(calm, expected).node)[::-1]
    allowed = int(untouched.size * windows.window_s / _DAY_S)
    threshold = untouched[min(allowed, untouched.size - 1)]
    part, expected, _ = nodes.part(chosen)
    rows = []
    for fault in faults:
        for severity in severities:
            changed = detector.changed(part, put_fault(part, fault, severity, seed))
            rows.append(detector.surprise(changed, expected).node > threshold)
    return Seen(np.array(rows), np.asarray(nodes.seen.layout.node_of[chosen], dtype=np.int64))
