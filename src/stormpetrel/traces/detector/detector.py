"""The detector: how rare a window is among this site's calm ones, for its thread, its job and its node.

Windows -> TraceDetector.fit -> score(windows, level) -> surprise. A window is compared with its kind of work, with the past of
its own thread, with the other threads of its job, and its node with the node's own past; quiet windows are as odd as loud ones.
What a thread has not shown before and its neighbours do not show either is what counts.

A score is -log10 of the share of calm windows that are as odd: 3 means one in a thousand. The share is calibrated on calm blocks
of time that the node level was not learnt from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from platform import python_version
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from stormpetrel import __version__
from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.windows import Windows
from stormpetrel.traces.detector.calibration import TAIL, Calibration, Tail, excess_of, least_scale_of
from stormpetrel.traces.detector.kept_aside import KeptAside, keep_aside, node_novelty
from stormpetrel.traces.detector.layout import LOOK_BACK, Layout
from stormpetrel.traces.detector.node_level import NodeLevel
from stormpetrel.traces.detector.recent import RecentNodes, running_units, unit_of
from stormpetrel.traces.detector.reconstruction import Reconstruction
from stormpetrel.traces.detector.statistics import movement, over_threads, thread_statistics, top_mean
from stormpetrel.traces.detector.thread_level import ThreadLevel

Floats = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]
Level = Literal["thread", "job", "node"]

LEVELS: Final[tuple[Level, ...]] = ("thread", "job", "node")
KIND: Final = "traces-detector"
FORMAT_VERSION: Final = 3
ARRAYS: Final = "detector.safetensors"
_TOP_SHARE: Final = 0.25  # of a node's threads, the oddest: few are enough to make a node odd
_TOP_WEIGHT: Final = 0.5  # of the oddest threads beside the node's own features
_NEW_WEIGHT: Final = 0.1  # of what no calm window has shown, for each unit of its tail beyond the border
_SEEN_FOR: Final = (1, 3, 6, LOOK_BACK)  # windows of past: what has been seen for longer is known better, and ranked apart
_KINDS: Final = len(_SEEN_FOR) + 1
_FEWEST_OF_KIND: Final = 40  # calm windows; where fewer have been seen for as long, those that were seen for longer count, too
_FEWEST_IN_TAIL: Final = 50  # calm windows of a kind: fewer do not tell how the highest thin out
_FEWEST_NODES: Final = 24  # calm node windows to learn from
_TRAIN_AGAIN: Final = "Train it again: stormpetrel traces train"


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """What can be chosen."""

    seed: int = 0
    components: int = 16  # of the reconstruction


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What was learnt for threads and nodes."""

    thread: ThreadLevel
    node: NodeLevel


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Windows with their statistics, who stands beside whom, and what the past lets expect of each."""

    windows: Windows
    layout: Layout
    statistics: Floats  # (windows, statistics)
    movement: Floats  # (node groups, movement)

    def of_nodes(self, some: npt.NDArray[np.intp]) -> tuple[Observation, npt.NDArray[np.intp]]:
        """Some node groups alone, and the rows of their windows."""
        layout, rows = self.layout.of_nodes(some)
        return Observation(self.windows.take(rows), layout, self.statistics[rows], self.movement[some]), rows


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """What the past of threads and nodes lets expect: the same whatever a window itself shows."""

    thread_past: Floats  # (windows, statistics)
    thread_own: Floats  # (windows,) surprise before
    node_expected: Floats  # (groups, columns)
    node_spread: Floats  # (groups, columns)
    node_own: Floats  # (groups,) surprise before
    node_unit: Floats  # (groups, 2, 2) median and spread of surprises of late: of node features, of the oddest threads

    def take(self, rows: npt.NDArray[np.intp], some: npt.NDArray[np.intp]) -> Expectation:
        """What is expected of some windows and node groups."""
        of_nodes = (self.node_expected, self.node_spread, self.node_own, self.node_unit)
        return Expectation(self.thread_past[rows], self.thread_own[rows], *(values[some] for values in of_nodes))


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """How odd windows, jobs and nodes are; not calibrated yet. `job` and `node` are by the numbers of the layout."""

    thread: Floats
    job: Floats
    node: Floats
    node_features: Floats  # (groups,) of the node level alone
    node_top: Floats  # (groups,) of the oddest threads alone
    seen_for: dict[Level, Groups]  # how long each has been seen, as _SEEN_FOR counts


class TraceDetector:
    """Learns what is calm on a site, and says how rare windows are there."""

    levels_: Levels
    reconstruction_: Reconstruction
    novelty_: Calibration  # of node windows: how much of what was never seen calm ones show
    units_: Floats  # (known for, 2, 2) median and spread of node features and of the oddest threads, among calm windows
    calibrations_: dict[Level, tuple[Calibration, ...]]  # by how long a thread, job or node has been seen
    data_: dict[str, Any]
    versions_: dict[str, Any]

    def __init__(self, settings: DetectorSettings | None = None) -> None:
        self.settings = settings or DetectorSettings()

    def fit(self, windows: Windows) -> Self:
        """Learn from calm windows: those of jobs that are labelled as trouble, or that changed hands, are left out."""
        _check_finite(windows)
        layout = Layout.of(windows)
        if len(set(layout.node[layout.counted].tolist())) < _FEWEST_NODES:
            raise ModelError(
                f"There are {len(set(layout.node[layout.counted].tolist()))} calm node windows; the detector learns from"
                f" {_FEWEST_NODES} or more.",
                hint="Take in more: stormpetrel ingest traces --live, or name longer campaigns.",
            )
        self.reconstruction_ = Reconstruction.fit(
            windows.rates[layout.counted], self.settings.components, np.random.default_rng(self.settings.seed)
        )
        seen = self.observe(windows)
        thread = ThreadLevel.fit(seen.statistics, layout, layout.counted, self.settings.seed)
        past = thread.past(thread.away(seen.statistics, layout), layout)
        node = NodeLevel.fit(_node_features(thread, seen, past), layout.node_past, np.ones(layout.nodes, dtype=bool))
        calm = keep_aside(
            seen.statistics,
            layout,
            lambda level, before: _node_features(level, seen, before),
            windows.window_s,
            self.settings.seed,
            _TOP_SHARE,
        )
        self.levels_ = Levels(replace(thread, usual=calm.thread_usual), replace(node, usual=calm.node_usual))
        seen_for = _seen_for(layout)
        self.units_ = _units(calm, seen_for["node"])
        self.novelty_ = Calibration.fit(calm.node_new)
        of_calm: dict[Level, Floats] = {
            "thread": calm.thread,
            "job": top_mean(calm.thread, layout.work, len(layout.work_job), _TOP_SHARE),
            "node": _together(calm.node_features, calm.node_top, self.units_[seen_for["node"]]) + self._new(calm.node_new),
        }
        self.calibrations_ = {level: _calibrations(of_calm[level], seen_for[level]) for level in LEVELS}
        self.data_ = {
            "traces": list(windows.traces),
            "windows": int(layout.counted.sum()),
            "nodes": layout.nodes,
            "nodes_kept_aside": int(np.isfinite(calm.node_features).sum()),
            "steps": windows.steps,
            "step_s": windows.step_s,
        }
        self.versions_ = {"stormpetrel": __version__, "numpy": np.__version__, "python": python_version()}
        return self

    def observe(self, windows: Windows) -> Observation:
        """The statistics of windows, which are all that a score needs."""
        _check_finite(windows)
        layout = Layout.of(windows)
        return Observation(windows, layout, self._statistics(windows.rates), movement(windows.rates, layout.node, layout.nodes))

    def changed(self, seen: Observation, rates: npt.NDArray[np.float32]) -> Observation:
        """The same windows with other rates in them: what they would show with a fault, beside the same past."""
        layout, windows = seen.layout, replace(seen.windows, rates=rates)
        return Observation(windows, layout, self._statistics(rates), movement(rates, layout.node, layout.nodes))

    def expect(self, seen: Observation, recent: RecentNodes | None = None) -> Expectation:
        """What the past of these windows lets expect of each of them.

        `recent` are node windows that say what is usual of late; where none are given, those among the windows themselves do,
        each for the later ones.
        """
        plain = _expectation(self._fitted(), seen)
        now = self.recent(seen, plain)
        known = now.and_then(RecentNodes.none()) if recent is None else recent
        return replace(plain, node_unit=running_units(self.units_, now, known))

    def surprise(self, seen: Observation, expected: Expectation) -> Surprise:
        """How odd windows are beside what was expected; the windows may be changed ones."""
        levels, layout = self._fitted(), seen.layout
        thread, features, top = _surprise(levels, seen, expected)
        seen_for = _seen_for(layout)
        job = top_mean(thread, layout.work, len(layout.work_job), _TOP_SHARE)
        new = self._new(node_novelty(levels.thread.novelty(seen.statistics), layout))
        return Surprise(thread, job, _together(features, top, expected.node_unit) + new, features, top, seen_for)

    @property
    def calm_nodes(self) -> int:
        """How many calm node windows it has learnt from."""
        self._fitted()
        return int(self.data_["nodes"])

    def node_residuals(self, seen: Observation, expected: Expectation) -> Floats:
        """What is left of the features of each node group, in units of its own spread: (groups, columns)."""
        levels = self._fitted()
        features = _node_features(levels.thread, seen, expected.thread_past)
        return levels.node.left(features, expected.node_expected) / expected.node_spread

    def score(self, windows: Windows, level: Level = "thread") -> Floats:
        """-log10 of the share of calm windows that are as odd, for each window: of its thread, its job or its node.

        Windows of threads that changed hands, or that are labelled as trouble, are in no job and no node: they have 0 there.
        """
        self._fitted()
        _check_steps(self.data_, windows)
        if not len(windows):
            return np.empty(0)
        seen = self.observe(windows)
        scores = self.scores(self.surprise(seen, self.expect(seen)))[level]
        if level == "thread":
            return scores
        group = seen.layout.work if level == "job" else seen.layout.node
        return np.where(group >= 0, scores[np.maximum(group, 0)], 0.0)

    def scores(self, surprise: Surprise) -> dict[Level, Floats]:
        """Surprises as -log10 of shares of calm windows."""
        raw: dict[Level, Floats] = {"thread": surprise.thread, "job": surprise.job, "node": surprise.node}
        return {level: self._ranked(level, raw[level], surprise.seen_for[level]) for level in LEVELS}

    def _ranked(self, level: Level, surprise: Floats, seen_for: Groups) -> Floats:
        known = np.nan_to_num(surprise, nan=-np.inf)
        scores = np.zeros(len(known))
        for number, calibration in enumerate(self.calibrations_[level]):
            rows = seen_for == number
            scores[rows] = calibration.score(known[rows])
        return scores

    def _new(self, novelty: Floats) -> Floats:
        """What is added to the surprise of nodes for threads that show what no calm window has shown."""
        return _NEW_WEIGHT * np.maximum(novelty - self.novelty_.border, 0.0) / self.novelty_.tail.scale

    def save(self, folder: Path) -> None:
        """Write the detector to a folder that does not exist yet."""
        content = self.content()
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=self.metadata(), files={ARRAYS: content})

    def content(self) -> bytes:
        """All arrays, as safetensors."""
        levels = self._fitted()
        arrays: dict[str, Floats] = {
            **levels.thread.arrays(),
            **levels.node.arrays(),
            **self.reconstruction_.arrays("reconstruction"),
            **self.novelty_.arrays("novelty"),
            "units": self.units_,
        }
        for level, calibrations in self.calibrations_.items():
            for number, calibration in enumerate(calibrations):
                arrays |= calibration.arrays(f"calibration.{level}.{number}")
        content: bytes = _safetensors().save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return content

    def metadata(self) -> dict[str, Any]:
        """What it is, as JSON can hold it."""
        return {
            "format_version": FORMAT_VERSION,
            "settings": {"seed": self.settings.seed, "components": self.settings.components},
            "types": list(self._fitted().thread.types),
            "data": self.data_,
            "versions": self.versions_,
        }

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a detector; ModelFormatError says what is wrong with it."""
        record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
        return cls.of_content(record, files.get(ARRAYS, b""), str(folder))

    @classmethod
    def of_content(cls, record: Mapping[str, Any], content: bytes, where: str) -> Self:
        """The detector of which `metadata` and `content` were kept; ModelFormatError says what is wrong with them."""
        load = _safetensors().load
        if record.get("format_version") != FORMAT_VERSION:
            what = f"The detector in {where} has format {record.get('format_version')!r}; this version reads {FORMAT_VERSION}."
            raise ModelFormatError(what, hint=_TRAIN_AGAIN)
        try:
            arrays = load(content)
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ValueError("it holds values that are not numbers")
            settings = record["settings"]
            model = cls(DetectorSettings(int(settings["seed"]), int(settings["components"])))
            model.levels_ = Levels(ThreadLevel.of_arrays(arrays, record["types"]), NodeLevel.of_arrays(arrays))
            model.reconstruction_ = Reconstruction.of_arrays("reconstruction", arrays)
            model.novelty_ = Calibration.of_arrays("novelty", arrays)
            model.units_ = arrays["units"]
            model.calibrations_ = {
                level: tuple(Calibration.of_arrays(f"calibration.{level}.{number}", arrays) for number in range(_KINDS))
                for level in LEVELS
            }
            model.data_, model.versions_ = dict(record["data"]), dict(record["versions"])
        except (KeyError, TypeError, ValueError, OverflowError, _safetensors_error()) as error:
            raise ModelFormatError(f"The detector in {where} is damaged: {str(error)[:200]}", hint=_TRAIN_AGAIN) from None
        return model

    def _fitted(self) -> Levels:
        if not hasattr(self, "levels_"):
            raise ModelError("This detector has not been trained yet.", hint="Train it first: fit(windows).")
        return self.levels_

    def _statistics(self, rates: npt.NDArray[np.float32]) -> Floats:
        return np.concatenate([thread_statistics(rates), self.reconstruction_.log_error(rates)[:, None]], axis=1)

    def recent(self, seen: Observation, expected: Expectation) -> RecentNodes:
        """What node windows add to what is known of late."""
        _, features, top = _surprise(self._fitted(), seen, expected)
        return RecentNodes(seen.layout.node_start_s, _seen_for(seen.layout)["node"], np.stack([features, top], axis=1))


def _together(node_features: Floats, node_top: Floats, unit: Floats) -> Floats:
    """Node features and oddest threads, added, in units of the calm spread of nodes that have been seen for as long."""
    both = np.stack([node_features, np.where(np.isnan(node_features), np.nan, np.nan_to_num(node_top))], axis=1)
    features, top = ((both - unit[:, :, 0]) / unit[:, :, 1]).T
    return np.asarray((features + _TOP_WEIGHT * top) / (1 + _TOP_WEIGHT))


def _node_features(thread: ThreadLevel, seen: Observation, past: Floats) -> Floats:
    """What the node level looks at: how its threads have changed, over its threads, and how their mean moves."""
    changed = thread.changed(thread.away(seen.statistics, seen.layout), past, seen.layout)
    return np.concatenate([over_threads(changed, seen.layout.node, seen.layout.nodes), seen.movement], axis=1)


def _node_view(node: NodeLevel, features: Floats, layout: Layout) -> tuple[Floats, Floats]:
    """What is left of node features in units of each node's own spread, and how odd each node was before."""
    left = node.left(features, node.expected(features, layout.node_past))
    scaled = left / node.spread(left, layout.node_past)
    return scaled, node.own_surprise(node.surprise(scaled, layout.node_past), layout.node_past)


def _expectation(levels: Levels, seen: Observation) -> Expectation:
    layout, thread, node = seen.layout, levels.thread, levels.node
    away = thread.away(seen.statistics, layout)
    past = thread.past(away, layout)
    own = thread.own_surprise(thread.surprise(thread.left(away, past, layout), layout), layout)
    features = _node_features(thread, seen, past)
    expected = node.expected(features, layout.node_past)
    spread = node.spread(node.left(features, expected), layout.node_past)
    unit = np.empty((layout.nodes, 0, 2))  # of late: known when the surprises of all windows are
    return Expectation(past, own, expected, spread, _node_view(node, features, layout)[1], unit)


def _surprise(levels: Levels, seen: Observation, expected: Expectation) -> tuple[Floats, Floats, Floats]:
    """The surprise of threads, of node features, and of the oddest threads of each node."""
    layout, thread, node = seen.layout, levels.thread, levels.node
    away = thread.away(seen.statistics, layout)
    of_thread = thread.surprise(thread.left(away, expected.thread_past, layout), layout) - expected.thread_own
    features = _node_features(thread, seen, expected.thread_past)
    scaled = node.left(features, expected.node_expected) / expected.node_spread
    of_node = node.surprise(scaled, layout.node_past) - expected.node_own
    top = top_mean(of_thread, layout.node, layout.nodes, _TOP_SHARE)
    return of_thread, np.where(np.isnan(top), np.nan, of_node), top


def _seen_for(layout: Layout) -> dict[Level, Groups]:
    """How long each thread, job and node has been seen at the same work, as _SEEN_FOR counts: 0 is not yet."""
    threads = layout.thread_past.counts()
    inside = layout.work >= 0
    size = np.bincount(layout.work[inside], minlength=len(layout.work_job))
    of_job = np.bincount(layout.work[inside], weights=threads[inside], minlength=len(layout.work_job)) / np.maximum(size, 1)
    counts: dict[Level, npt.NDArray[Any]] = {"thread": threads, "job": np.round(of_job), "node": layout.node_past.counts()}
    return {level: np.searchsorted(_SEEN_FOR, values, "right") for level, values in counts.items()}


def _rows_of_kind(values: Floats, seen_for: Groups, number: int) -> Floats:
    """The values of what has been seen for as long; with what has been seen for longer, where these are few; else all."""
    known = np.isfinite(values)
    for rows in (seen_for == number, seen_for >= number):
        if (rows & known).sum() >= _FEWEST_OF_KIND:
            return values[rows & known]
    return values[known]


def _units(calm: KeptAside, seen_for: Groups) -> Floats:
    """Median and spread of node features and oddest threads, (seen for, 2, 2)."""
    parts = (calm.node_features, calm.node_top)
    return np.array([[unit_of(_rows_of_kind(values, seen_for, number)) for values in parts] for number in range(_KINDS)])


def _calibrations(calm: Floats, seen_for: Groups) -> tuple[Calibration, ...]:
    """Ranks by how long a thread, job or node has been seen; where few of a kind are in the tail, all kinds together tell it."""
    kinds = [_rows_of_kind(calm, seen_for, number) for number in range(_KINDS)]
    apart = [values for number in range(_KINDS) if (values := calm[(seen_for == number) & np.isfinite(calm)]).size]
    everybody = np.concatenate(apart) if apart else np.zeros(1)
    tail = Tail.fit(np.concatenate([excess_of(values) for values in apart or [everybody]]), least_scale_of(everybody))
    return tuple(Calibration.fit(values, tail if len(values) * TAIL < _FEWEST_IN_TAIL else None) for values in kinds)


def _check_finite(windows: Windows) -> None:
    if not np.isfinite(windows.rates).all():
        raise ModelError("Some windows have steps that are not numbers.", hint="Leave out windows with gaps: cut_windows does.")


def _check_steps(data: Mapping[str, Any], windows: Windows) -> None:
    if windows.steps != data["steps"]:
        raise ModelError(
            f"The windows have {windows.steps} steps, and the detector sees {data['steps']}.",
            hint=f"Cut windows of {data['steps']} steps, or train one for {windows.steps}.",
        )


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtraError("A saved detector of CPU traces", "scoring") from error
    return safetensors.numpy


def _safetensors_error() -> type[Exception]:
    from safetensors import SafetensorError

    error: type[Exception] = SafetensorError
    return error
