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
from stormpetrel.traces.detector.calibration import Calibration
from stormpetrel.traces.detector.layout import Layout
from stormpetrel.traces.detector.node_level import NodeLevel
from stormpetrel.traces.detector.reconstruction import Reconstruction
from stormpetrel.traces.detector.statistics import movement, over_threads, thread_statistics, top_mean
from stormpetrel.traces.detector.thread_level import ThreadLevel

Floats = npt.NDArray[np.float64]
Level = Literal["thread", "job", "node"]

LEVELS: Final[tuple[Level, ...]] = ("thread", "job", "node")
KIND: Final = "traces-detector"
FORMAT_VERSION: Final = 1
ARRAYS: Final = "detector.safetensors"
_TOP_SHARE: Final = 0.25  # of a node's threads, the oddest: few are enough to make a node odd
_TOP_WEIGHT: Final = 0.5  # of the oddest threads beside the node's own features
_BLOCKS: Final = 10  # of time; each is scored by a node level that was learnt from the others
_SEEN_FOR: Final = (1, 6)  # windows of past from which a node counts as seen for a while, and for long
_FEWEST_OF_UNIT: Final = 40  # calm node windows for a unit of their own
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

    def take(self, rows: npt.NDArray[np.intp], some: npt.NDArray[np.intp]) -> Expectation:
        """What is expected of some windows and node groups."""
        return Expectation(
            self.thread_past[rows], self.thread_own[rows], self.node_expected[some], self.node_spread[some], self.node_own[some]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """How odd windows, jobs and nodes are; not calibrated yet. `job` and `node` are by the numbers of the layout."""

    thread: Floats
    job: Floats
    node: Floats
    node_features: Floats  # (groups,) of the node level alone
    node_top: Floats  # (groups,) of the oddest threads alone


class TraceDetector:
    """Learns what is calm on a site, and says how rare windows are there."""

    levels_: Levels
    reconstruction_: Reconstruction
    units_: Floats  # (known for, 2, 2) median and spread of node features and of the oddest threads, among calm windows
    calibrations_: dict[Level, Calibration]
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
        features = _node_features(thread, seen, past)
        self.levels_ = Levels(thread, NodeLevel.fit(features, layout.node_past, np.ones(layout.nodes, dtype=bool)))
        calm = self._kept_aside(seen, features)
        self.units_ = _units(calm, _known_for(layout))
        self.calibrations_ = {
            "thread": Calibration.fit(calm.thread[layout.counted]),
            "job": Calibration.fit(top_mean(calm.thread, layout.work, len(layout.work_job), _TOP_SHARE)),
            "node": Calibration.fit(self._together(calm, layout)),
        }
        self.data_ = {
            "traces": list(windows.traces),
            "windows": int(layout.counted.sum()),
            "nodes": layout.nodes,
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

    def expect(self, seen: Observation) -> Expectation:
        """What the past of these windows lets expect of each of them."""
        return _expectation(self._fitted(), seen)

    def surprise(self, seen: Observation, expected: Expectation) -> Surprise:
        """How odd windows are beside what was expected; the windows may be changed ones."""
        surprise = _surprise(self._fitted(), seen, expected)
        return Surprise(
            surprise.thread,
            top_mean(surprise.thread, seen.layout.work, len(seen.layout.work_job), _TOP_SHARE),
            self._together(surprise, seen.layout),
            surprise.node_features,
            surprise.node_top,
        )

    @property
    def calm_nodes(self) -> int:
        """How many calm node windows its shares are ranks among."""
        self._fitted()
        return self.calibrations_["node"].windows

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
        return {level: -np.log10(self.calibrations_[level].share(np.nan_to_num(raw[level], nan=-np.inf))) for level in LEVELS}

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
            "units": self.units_,
        }
        for level, calibration in self.calibrations_.items():
            arrays |= calibration.arrays(f"calibration.{level}")
        content: bytes = _safetensors().save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return content

    def metadata(self) -> dict[str, Any]:
        """What it is, as JSON can hold it."""
        return {
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
        try:
            arrays = load(content)
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ValueError("it holds values that are not numbers")
            settings = record["settings"]
            model = cls(DetectorSettings(int(settings["seed"]), int(settings["components"])))
            model.levels_ = Levels(ThreadLevel.of_arrays(arrays, record["types"]), NodeLevel.of_arrays(arrays))
            model.reconstruction_ = Reconstruction.of_arrays("reconstruction", arrays)
            model.units_ = arrays["units"]
            model.calibrations_ = {level: Calibration.of_arrays(f"calibration.{level}", arrays) for level in LEVELS}
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

    def _kept_aside(self, seen: Observation, features: Floats) -> Surprise:
        """The surprise of every node window by a node level that was not learnt from its block of time.

        There are a thousand windows for each statistic of a thread: that level may be learnt from all.
        """
        layout = seen.layout
        whole = _surprise(self.levels_, seen, _expectation(self.levels_, seen))
        of_node, block = np.full(layout.nodes, np.nan), _blocks(layout.node_start_s)
        for kept in np.unique(block):
            learn = block != kept
            node = NodeLevel.fit(features, layout.node_past, learn if learn.any() else ~learn)
            scaled, own = _node_view(node, features, layout)
            surprise = node.surprise(scaled, layout.node_past) - own
            of_node[block == kept] = surprise[block == kept]
        return Surprise(
            whole.thread, np.empty(0), np.empty(0), np.where(np.isnan(whole.node_top), np.nan, of_node), whole.node_top
        )

    def _together(self, surprise: Surprise, layout: Layout) -> Floats:
        """Node features and oddest threads, added, in units of the calm spread of nodes that have been seen for as long."""
        unit = self.units_[_known_for(layout)]  # (groups, 2, 2)
        both = np.stack([surprise.node_features, np.nan_to_num(surprise.node_top)], axis=1)
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
    return Expectation(past, own, expected, spread, _node_view(node, features, layout)[1])


def _surprise(levels: Levels, seen: Observation, expected: Expectation) -> Surprise:
    layout, thread, node = seen.layout, levels.thread, levels.node
    away = thread.away(seen.statistics, layout)
    of_thread = thread.surprise(thread.left(away, expected.thread_past, layout), layout) - expected.thread_own
    features = _node_features(thread, seen, expected.thread_past)
    scaled = node.left(features, expected.node_expected) / expected.node_spread
    of_node = node.surprise(scaled, layout.node_past) - expected.node_own
    top = top_mean(of_thread, layout.node, layout.nodes, _TOP_SHARE)
    return Surprise(of_thread, np.empty(0), np.empty(0), np.where(np.isnan(top), np.nan, of_node), top)


def _blocks(start_s: Floats) -> npt.NDArray[np.intp]:
    """Which of the blocks of time each start lies in; as many different moments in each."""
    moments, place = np.unique(start_s, return_inverse=True)
    return np.asarray(place.ravel() * min(_BLOCKS, moments.size) // max(1, moments.size))


def _known_for(layout: Layout) -> npt.NDArray[np.intp]:
    """How long each node has been seen at the same work: 0 not yet, 1 for a while, 2 for long. What is new is less certain."""
    return np.searchsorted(_SEEN_FOR, layout.node_past.counts(), "right")


def _units(calm: Surprise, known_for: npt.NDArray[np.intp]) -> Floats:
    """Median and spread of node features and oddest threads, (known for, 2, 2); of all where there are too few."""
    units = []
    for number in range(len(_SEEN_FOR) + 1):
        rows = (known_for == number) & np.isfinite(calm.node_features)
        if rows.sum() < _FEWEST_OF_UNIT:
            rows = np.isfinite(calm.node_features)
        units.append([_unit(calm.node_features[rows]), _unit(calm.node_top[rows])])
    return np.array(units)


def _unit(values: Floats) -> tuple[float, float]:
    middle, high = np.quantile(values, [0.5, 0.9]) if values.size else (0.0, 1.0)
    return float(middle), max(float(high - middle) / 1.28, 1e-3)


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
