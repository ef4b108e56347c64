"""The detector: how rare a window is among this site's calm ones, for its thread, its job and its node.

Windows -> TraceDetector.fit -> score(windows, level) -> surprise. A window is compared with its kind of work (its embedding as
well), with the past of its own thread, with the other threads of its job, and its node with the node's own past, the job's other
nodes and this time of day; quiet windows are as odd as loud ones.
What a thread has not shown before and its neighbours do not show either is what counts.

A score is -log10 of the share of calm windows that are as odd: 3 means one in a thousand. The share is calibrated on calm blocks
of time that the node level was not learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from platform import python_version
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel import __version__
from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.arrays import Floats
from stormpetrel.records.windows import Windows
from stormpetrel.traces.detector.calibration import Calibration, calibrations_of_kinds, rows_of_kind
from stormpetrel.traces.detector.contrast import Contrast, contrast_features, disturbances, learnt_contrast
from stormpetrel.traces.detector.day import HOURS, covers_days, hours_on_days
from stormpetrel.traces.detector.embedding import EmbeddingRarity
from stormpetrel.traces.detector.kept_aside import KeptAside, keep_aside, node_novelty, short_blocks, time_blocks
from stormpetrel.traces.detector.layout import LOOK_BACK, Layout
from stormpetrel.traces.detector.node_level import NodeLevel
from stormpetrel.traces.detector.observation import Expectation, Groups, Level, Observation, Surprise, node_features
from stormpetrel.traces.detector.recent import RecentNodes, running_units, unit_of
from stormpetrel.traces.detector.reconstruction import Reconstruction
from stormpetrel.traces.detector.shared import SharedSurprise
from stormpetrel.traces.detector.statistics import movement, thread_statistics, top_mean
from stormpetrel.traces.detector.thread_level import ThreadLevel

Encoder = Callable[[Windows], npt.NDArray[np.float32]]  # embeddings (windows, embedding)

LEVELS: Final[tuple[Level, ...]] = ("thread", "job", "node")
KIND: Final = "traces-detector"
FORMAT_VERSION: Final = 5
ARRAYS: Final = "detector.safetensors"
_TOP_SHARE: Final = 0.25  # of a node's threads, the oddest: few are enough to make a node odd
_TOP_WEIGHT: Final = 0.5  # of the oddest threads beside the node's own features
_CONTRAST_WEIGHT: Final = 1.0  # of what trees have learnt to tell from calm, beside both
_NEW_WEIGHT: Final = 0.1  # of what no calm window has shown, for each unit of its tail beyond the border
_SEEN_FOR: Final = (1, 3, 6, LOOK_BACK)  # windows of past: what has been seen for longer is known better, and ranked apart
_KINDS: Final = len(_SEEN_FOR) + 1
_FEWEST_NODES: Final = 24  # calm node windows to learn from
_TRAIN_AGAIN: Final = "Train it again: stormpetrel traces train"


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """What can be chosen."""

    seed: int = 0
    components: int = 16  # of the reconstruction
    embedding: bool = True  # how rare the encoder's embedding is, where there is an encoder
    hour: bool = True  # what is usual at this time of day, where calm windows cover it on two days
    peers: bool = True  # the other nodes of a job, where calm ones move together
    contrast: bool = True  # trees that tell calm node windows from disturbed ones


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What was learnt for threads and nodes."""

    thread: ThreadLevel
    node: NodeLevel


class TraceDetector:
    """Learns what is calm on a site, and says how rare windows are there."""

    levels_: Levels
    reconstruction_: Reconstruction
    embedding_: EmbeddingRarity | None  # None where there was no encoder in training
    novelty_: Calibration  # of node windows: how much of what was never seen calm ones show
    shared_: SharedSurprise
    contrast_: Contrast  # of node windows
    _block: Groups | None  # of time, of each window that it learns from
    units_: Floats  # (known for, 3, 2) median and spread of node features, oddest threads and contrast, among calm windows
    calibrations_: dict[Level, tuple[Calibration, ...]]  # by how long a thread, job or node has been seen
    data_: dict[str, Any]
    versions_: dict[str, Any]

    def __init__(self, settings: DetectorSettings | None = None, encoder: Encoder | None = None) -> None:
        self.settings, self.encoder = settings or DetectorSettings(), encoder

    def fit(self, windows: Windows) -> Self:
        """Learn from calm windows: those of jobs that are labelled as trouble, or that changed hands, are left out."""
        _check_finite(windows)
        layout = Layout.of(windows)
        calm_nodes = len(np.unique(layout.node[layout.counted]))
        if calm_nodes < _FEWEST_NODES:
            raise ModelError(
                f"There are {calm_nodes} calm node windows; the detector learns from {_FEWEST_NODES} or more.",
                hint="Take in more: stormpetrel ingest traces --live, or name longer campaigns.",
            )
        self.reconstruction_ = Reconstruction.fit(
            windows.rates[layout.counted], self.settings.components, np.random.default_rng(self.settings.seed)
        )
        by_hour = self.settings.hour and covers_days(layout.start_s[layout.counted])
        how = {"by_hour": by_hour, "with_peers": self.settings.peers}
        seen = Observation(
            windows, layout, self._learnt_statistics(windows, layout), movement(windows.rates, layout.node, layout.nodes)
        )
        thread = ThreadLevel.fit(seen.statistics, layout, layout.counted, self.settings.seed, by_hour=by_hour)
        past = thread.past(thread.away(seen.statistics, layout), layout)
        node = NodeLevel.fit(node_features(thread, seen, past), layout, np.ones(layout.nodes, dtype=bool), **how)
        changed = disturbances(seen, self._changed_in_training, self.settings.seed) if self.settings.contrast else []
        seed = self.settings.seed
        calm = keep_aside(
            seen.statistics,
            layout,
            lambda level, before: node_features(level, seen, before),
            lambda level, nodes, before, learn: learnt_contrast(level, nodes, seen, before, changed, learn, seed)[1],
            windows.window_s,
            self.settings.seed,
            _TOP_SHARE,
            **how,
        )
        self.levels_ = Levels(replace(thread, usual=calm.thread_usual), replace(node, usual=calm.node_usual))
        self.contrast_, _ = learnt_contrast(thread, node, seen, past, changed, np.ones(layout.nodes, dtype=bool), seed)
        seen_for = _seen_for(layout)
        self.units_ = _units(calm, seen_for["node"])
        self.novelty_ = Calibration.fit(calm.node_new)
        of_nodes = _together(calm.node_features, calm.node_top, calm.node_contrast, self.units_[seen_for["node"]])
        self.shared_ = SharedSurprise.fit(of_nodes, layout)
        of_calm: dict[Level, Floats] = {
            "thread": calm.thread,
            "job": top_mean(calm.thread, layout.work, len(layout.work_job), _TOP_SHARE),
            "node": of_nodes - self.shared_.expected(of_nodes, layout) + self._new(calm.node_new),
        }
        self.calibrations_ = {level: calibrations_of_kinds(of_calm[level], seen_for[level], _KINDS) for level in LEVELS}
        self.data_ = {
            "traces": list(windows.traces),
            "windows": int(layout.counted.sum()),
            "nodes": calm_nodes,
            "nodes_kept_aside": int(np.isfinite(calm.node_features).sum()),
            "steps": windows.steps,
            "step_s": windows.step_s,
            "inputs": self._inputs(layout, node),
        }
        self.versions_ = {"stormpetrel": __version__, "numpy": np.__version__, "python": python_version()}
        return self

    def observe(self, windows: Windows) -> Observation:
        """The statistics of windows, which are all that a score needs."""
        _check_finite(windows)
        layout = Layout.of(windows)
        statistics = self._statistics(windows, layout)
        return Observation(windows, layout, statistics, movement(windows.rates, layout.node, layout.nodes))

    def changed(self, seen: Observation, rates: npt.NDArray[np.float32]) -> Observation:
        """The same windows with other rates in them: what they would show with a fault, beside the same past."""
        layout, windows = seen.layout, replace(seen.windows, rates=rates)
        return Observation(windows, layout, self._statistics(windows, layout), movement(rates, layout.node, layout.nodes))

    def expect(self, seen: Observation, recent: RecentNodes | None = None) -> Expectation:
        """What the past of these windows lets expect of each of them.

        `recent` are node windows that say what is usual of late; where none are given, those among the windows themselves do,
        each for the later ones.
        """
        plain = _expectation(self._fitted(), seen)
        now = self.recent(seen, plain)
        known = now.and_then(RecentNodes.none()) if recent is None else recent
        unit = running_units(self.units_, now, known)
        features, top, contrast = now.surprise.T
        shared = self.shared_.expected(_together(features, top, contrast, unit), seen.layout)
        return replace(plain, node_unit=unit, node_shared=shared)

    def surprise(self, seen: Observation, expected: Expectation) -> Surprise:
        """How odd windows are beside what was expected; the windows may be changed ones."""
        levels, layout = self._fitted(), seen.layout
        thread, features, top, contrast = _surprise(levels, self.contrast_, seen, expected)
        seen_for = _seen_for(layout)
        job = top_mean(thread, layout.work, len(layout.work_job), _TOP_SHARE)
        new = self._new(node_novelty(levels.thread.novelty(seen.statistics), layout))
        node = _together(features, top, contrast, expected.node_unit) - expected.node_shared + new
        return Surprise(thread, job, node, features, top, contrast, seen_for)

    @property
    def calm_nodes(self) -> int:
        """How many calm node windows it has learnt from."""
        self._fitted()
        return int(self.data_["nodes"])

    def node_residuals(self, seen: Observation, expected: Expectation) -> Floats:
        """What is left of the features of each node group, in units of its own spread: (groups, columns)."""
        levels = self._fitted()
        features = node_features(levels.thread, seen, expected.thread_past)
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
        arrays: dict[str, npt.NDArray[Any]] = {
            **levels.thread.arrays(),
            **levels.node.arrays(),
            **self.reconstruction_.arrays("reconstruction"),
            **self.novelty_.arrays("novelty"),
            **self.shared_.arrays(),
            **self.contrast_.arrays(),
            **({} if self.embedding_ is None else self.embedding_.arrays("embedding")),
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
            "settings": asdict(self.settings),
            "types": list(self._fitted().thread.types),
            "embedding_types": None if self.embedding_ is None else list(self.embedding_.types),
            "data": self.data_,
            "versions": self.versions_,
        }

    @classmethod
    def load(cls, folder: Path, encoder: Encoder | None = None) -> Self:
        """Read a detector, with the encoder that it was trained beside; ModelFormatError says what is wrong with it."""
        record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
        return cls.of_content(record, files.get(ARRAYS, b""), str(folder), encoder)

    @classmethod
    def of_content(cls, record: Mapping[str, Any], content: bytes, where: str, encoder: Encoder | None = None) -> Self:
        """The detector of which `metadata` and `content` were kept; ModelFormatError says what is wrong with them."""
        load = _safetensors().load
        if record.get("format_version") != FORMAT_VERSION:
            what = f"The detector in {where} has format {record.get('format_version')!r}; this version reads {FORMAT_VERSION}."
            raise ModelFormatError(what, hint=_TRAIN_AGAIN)
        try:
            arrays = load(content)
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ValueError("it holds values that are not numbers")
            model = cls(_settings(record["settings"]), encoder)
            model.levels_ = Levels(ThreadLevel.of_arrays(arrays, record["types"]), NodeLevel.of_arrays(arrays))
            model.reconstruction_ = Reconstruction.of_arrays("reconstruction", arrays)
            types = record["embedding_types"]
            model.embedding_ = None if types is None else EmbeddingRarity.of_arrays("embedding", arrays, types)
            model.novelty_ = Calibration.of_arrays("novelty", arrays)
            model.shared_, model.units_ = SharedSurprise.of_arrays(arrays), arrays["units"]
            model.contrast_ = Contrast.of_arrays(arrays)
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

    def _statistics(self, windows: Windows, layout: Layout) -> Floats:
        columns = [thread_statistics(windows.rates), self.reconstruction_.log_error(windows.rates)[:, None]]
        if self.embedding_ is not None:
            columns.append(self.embedding_.log_distance(self._embedded(windows), layout.job_type)[:, None])
        return np.concatenate(columns, axis=1)

    def _learnt_statistics(self, windows: Windows, layout: Layout) -> Floats:
        """The statistics of the windows that it learns from: their neighbours are those of other blocks of time."""
        self.embedding_, self._block = None, None
        statistics = self._statistics(windows, layout)
        if self.encoder is None or not self.settings.embedding:
            return statistics
        embeddings = self._embedded(windows)
        self.embedding_ = EmbeddingRarity.fit(embeddings, layout.job_type, layout.counted, self.settings.seed)
        block, is_apart = time_blocks(layout.start_s, windows.window_s)
        if not is_apart:
            block = short_blocks(layout.start_s)
        if len(np.unique(block)) < 2:  # a single moment: there is no other time to find neighbours in
            return np.concatenate([statistics, self.embedding_.log_distance(embeddings, layout.job_type)[:, None]], axis=1)
        self._block = block
        rarity = self.embedding_.log_distance_across(embeddings, layout.job_type, block)
        return np.concatenate([statistics, rarity[:, None]], axis=1)

    def _changed_in_training(self, seen: Observation, rates: npt.NDArray[np.float32], rows: Groups) -> Observation:
        """Some of the windows that it learns from with other rates in them; their neighbours are of other blocks, too."""
        changed = self.changed(seen, rates)
        if self.embedding_ is None or self._block is None:
            return changed
        embeddings = self._embedded(changed.windows)
        rarity = self.embedding_.log_distance_across(embeddings, seen.layout.job_type, self._block, rows)
        return replace(changed, statistics=np.concatenate([changed.statistics[:, :-1], rarity[:, None]], axis=1))

    def _embedded(self, windows: Windows) -> npt.NDArray[np.float32]:
        if self.encoder is None:
            raise ModelError(
                "This detector looks at embeddings, and there is no encoder beside it.",
                hint="Load it with the encoder that it was trained beside: TraceDetector.load(folder, encoder).",
            )
        return self.encoder(windows)

    def _inputs(self, layout: Layout, node: NodeLevel) -> dict[str, Any]:
        """Which of the inputs that not every site can have are in use, and what they rest on."""
        hours = hours_on_days(layout.start_s[layout.counted])
        return {
            "embedding": {"active": self.embedding_ is not None},
            "contrast": {"active": self.contrast_.trees is not None},
            "hour": {"active": node.habit is not None, "hours_on_two_days": hours, "hours_needed": HOURS},
            "peers": {
                "active": bool(node.peer.any()),
                "node_windows": int((layout.peers >= 0).sum()),
                "features": int((node.peer > 0).sum()),
            },
        }

    def recent(self, seen: Observation, expected: Expectation) -> RecentNodes:
        """What node windows add to what is known of late."""
        _, *of_nodes = _surprise(self._fitted(), self.contrast_, seen, expected)
        return RecentNodes(seen.layout.node_start_s, _seen_for(seen.layout)["node"], np.stack(of_nodes, axis=1))


def _together(node_features: Floats, node_top: Floats, node_contrast: Floats, unit: Floats) -> Floats:
    """Node features, oddest threads and contrast, added, in units of the calm spread of nodes that have been seen for as long."""
    gone = np.isnan(node_features)
    others = (np.where(gone, np.nan, np.nan_to_num(values)) for values in (node_top, node_contrast))
    features, top, contrast = ((np.stack([node_features, *others], axis=1) - unit[:, :, 0]) / unit[:, :, 1]).T
    distance = (features + _TOP_WEIGHT * top) / (1 + _TOP_WEIGHT)
    return np.asarray((distance + _CONTRAST_WEIGHT * contrast) / (1 + _CONTRAST_WEIGHT))


def _node_view(node: NodeLevel, features: Floats, layout: Layout) -> tuple[Floats, Floats]:
    """What is left of node features in units of each node's own spread, and how odd each node was before."""
    left = node.left(features, node.expected(features, layout))
    scaled = left / node.spread(left, layout)
    return scaled, node.own_surprise(node.surprise(scaled, layout.node_past), layout.node_past)


def _expectation(levels: Levels, seen: Observation) -> Expectation:
    layout, thread, node = seen.layout, levels.thread, levels.node
    away = thread.away(seen.statistics, layout)
    past = thread.past(away, layout)
    own = thread.own_surprise(thread.surprise(thread.left(away, past, layout), layout), layout)
    features = node_features(thread, seen, past)
    expected = node.expected(features, layout)
    spread = node.spread(node.left(features, expected), layout)
    unit = np.empty((layout.nodes, 0, 2))  # of late, as what is shared: known when the surprises of all windows are
    return Expectation(past, own, expected, spread, _node_view(node, features, layout)[1], unit, np.zeros(layout.nodes))


def _surprise(levels: Levels, trees: Contrast, seen: Observation, expected: Expectation) -> tuple[Floats, Floats, Floats, Floats]:
    """The surprise of threads, of node features, of the oddest threads of each node, and the contrast of each node."""
    layout, thread, node = seen.layout, levels.thread, levels.node
    away = thread.away(seen.statistics, layout)
    of_thread = thread.surprise(thread.left(away, expected.thread_past, layout), layout) - expected.thread_own
    features = node_features(thread, seen, expected.thread_past)
    left = node.left(features, expected.node_expected)
    of_node = node.surprise(left / expected.node_spread, layout.node_past) - expected.node_own
    top = top_mean(of_thread, layout.node, layout.nodes, _TOP_SHARE)
    contrast = trees.margin(contrast_features(node, left, expected.node_spread, layout))
    return of_thread, np.where(np.isnan(top), np.nan, of_node), top, contrast


def _seen_for(layout: Layout) -> dict[Level, Groups]:
    """How long each thread, job and node has been seen at the same work, as _SEEN_FOR counts: 0 is not yet."""
    threads = layout.thread_past.counts()
    inside = layout.work >= 0
    size = np.bincount(layout.work[inside], minlength=len(layout.work_job))
    of_job = np.bincount(layout.work[inside], weights=threads[inside], minlength=len(layout.work_job)) / np.maximum(size, 1)
    counts: dict[Level, npt.NDArray[Any]] = {"thread": threads, "job": np.round(of_job), "node": layout.node_past.counts()}
    return {level: np.searchsorted(_SEEN_FOR, values, "right") for level, values in counts.items()}


def _units(calm: KeptAside, seen_for: Groups) -> Floats:
    """Median and spread of node features, oddest threads and contrast, (seen for, 3, 2)."""
    parts = (calm.node_features, calm.node_top, calm.node_contrast)
    return np.array([[unit_of(rows_of_kind(values, seen_for, number)) for values in parts] for number in range(_KINDS)])


def _settings(record: Mapping[str, Any]) -> DetectorSettings:
    return DetectorSettings(
        seed=int(record["seed"]),
        components=int(record["components"]),
        embedding=bool(record["embedding"]),
        hour=bool(record["hour"]),
        peers=bool(record["peers"]),
        contrast=bool(record["contrast"]),
    )


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
