"""Trace models of a site: train one on its windows, enter it in the registry, load it, score what is new.

Site -> train_trace_model -> registry -> load_trace_model -> TraceModel -> score_new_windows -> trace_scores. A site without a
model of its own scores with the shipped encoder, which flags nothing until the site's own windows have set a threshold.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel import __version__
from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.learn.family import BY_HAND, Unit
from stormpetrel.lifecycle.contests.decision import Stopwatch
from stormpetrel.lifecycle.family import SiteFamily, TrainingRequest, incomplete_entry, operator
from stormpetrel.lifecycle.node_summaries import learnt_hierarchy, node_scores
from stormpetrel.lifecycle.trace_learning import (
    LearningWindows,
    in_order,
    is_of_length,
    learning_windows,
)
from stormpetrel.lifecycle.trace_regions import known_regions, labelled_trouble
from stormpetrel.lifecycle.window_scoring import WindowScorer, score_frame
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.trace_coverage import drawn_in_turn
from stormpetrel.records.traces import MIXED, MIXED_JOB
from stormpetrel.records.window_frames import COUNTED, WINDOW_KEY
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.store.registry.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site
from stormpetrel.traces.detector.detector import ARRAYS as DETECTOR
from stormpetrel.traces.detector.detector import FORMAT_VERSION as DETECTOR_FORMAT
from stormpetrel.traces.detector.detector import DetectorSettings, TraceDetector
from stormpetrel.traces.diagnosis import Trouble, known_bad_io
from stormpetrel.traces.hierarchy import ARRAYS as HIERARCHY
from stormpetrel.traces.hierarchy import NodeHierarchy
from stormpetrel.traces.networks.architecture import FORMAT_VERSION, KIND, Architecture, AutoencoderSettings, Scorer
from stormpetrel.traces.networks.fitting_windows import FittingScorer
from stormpetrel.traces.promise import Calm, Promise, promised
from stormpetrel.traces.regions import Regions
from stormpetrel.traces.separability import PcaMap
from stormpetrel.traces.shipped import NAME as SHIPPED_NAME
from stormpetrel.traces.shipped import NOT_TRAINED_HERE, load_shipped, shipped_version

FAMILY: Final = ModelFamily.TRACES
CHUNK_WINDOWS: Final = 20_000  # scored and committed at once
_MAP_WINDOWS: Final = 50_000  # a plane is not better known by more
_CALIBRATION: Final = "traces_shipped_promise"  # facts of the state store: what a shipped encoder can promise on this site
_PARTS: Final = 4  # in which windows are scored while a threshold is being set, so that the later ones can be flagged


@dataclass(frozen=True, slots=True, eq=False)
class TraceModel:
    """The trace model in use: what scores, the map, where Bad IO lies (if anybody knows), and the score from which it flags."""

    scorer: Scorer
    map: PcaMap
    bad_io: Trouble | None
    promise: Promise
    name: str
    version: int
    step_s: float
    regions: Regions = field(default_factory=Regions)  # that people have named, as this model sees them
    detector: TraceDetector | None = None
    hierarchy: NodeHierarchy | None = None  # sums up jobs, nodes and the cluster

    @property
    def threshold(self) -> float | None:
        """The score above which windows are flagged; None where no threshold can be kept: nothing is flagged then."""
        return self.promise.threshold

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the package, and was not trained on this site."""
        return self.name == SHIPPED_NAME

    @property
    def title(self) -> str:
        """What it is called where its scores are shown."""
        return shown_name(self.name, self.version)


@dataclass(frozen=True, slots=True)
class Scored:
    """What scoring did: windows scored now, known before, and left out because the model sees others."""

    scored: int
    flagged: int
    other_length: int
    commits: int
    promise: Promise  # of the model, after it
    shipped: bool = False  # whether it was the shipped encoder, which was not trained here


def model_name(architecture: Architecture) -> str:
    """The name of an architecture's model in the registry."""
    return f"{FAMILY}-{architecture}"


def shown_name(name: str, version: int) -> str:
    """What a model is called where its scores are shown: the shipped encoder says that it was not trained here."""
    if name == SHIPPED_NAME:
        return f"{NOT_TRAINED_HERE} (version {version})"
    return f"{name} version {version}"


def train_trace_model(
    site: Site,
    architecture: Architecture | None = None,
    *,
    windows: LearningWindows | None = None,
    settings: AutoencoderSettings | None = None,
    device: str = "auto",
    why: str = BY_HAND,
    user: str | None = None,
    progress: Progress = no_progress,
) -> ModelVersion:
    """Train a model on the windows of the site (or on others that are given), save it and make it current.

    The architecture is that of site.toml where none is named, the steps are those of the windows, whatever the settings say.
    Nothing changes before the model is whole: a training that is killed leaves the site as it was.
    """
    chosen = architecture or Architecture(site.settings.traces.model)
    fitted = fit_trace_model(site, windows or learning_windows(site), chosen, settings=settings, device=device, progress=progress)
    return enter_trace_model(site, fitted, why=why, promoted_by=user or operator()).models[0]


@dataclass(frozen=True, slots=True, eq=False)
class FittedTraces:
    """A trace model before it is entered: what scores, what is kept about it, the detector beside it, and how it is saved."""

    scorer: Scorer
    architecture: Architecture
    about: dict[str, Any]
    detector: TraceDetector | None
    save: Callable[[Path], None]


def fit_trace_model(
    site: Site,
    seen: LearningWindows,
    architecture: Architecture,
    *,
    settings: AutoencoderSettings | None = None,
    device: str = "auto",
    progress: Progress = no_progress,
) -> FittedTraces:
    """Train a model on these windows; nothing is saved. The steps are those of the windows, whatever the settings say."""
    fit = TraceFit(
        settings or AutoencoderSettings(), site.settings.traces.alarm_share, site.node_metrics.read().collect(), device
    )
    return fit(seen, architecture, progress)


@dataclass(frozen=True, slots=True, eq=False)
class TraceFit:
    """What a training needs of a site besides the windows: it can be sent to a worker, where no site is open."""

    settings: AutoencoderSettings
    alarm_share: float
    metrics: pl.DataFrame  # of NODE_METRIC_SCHEMA
    device: str = "auto"

    def __call__(self, seen: LearningWindows, architecture: Architecture, progress: Progress) -> FittedTraces:
        """Train a model on these windows."""
        from stormpetrel.traces.networks.autoencoder import TraceAutoencoder

        watch = Stopwatch()
        fitting = replace(self.settings, architecture=architecture, steps=seen.train.steps)
        model = TraceAutoencoder(fitting).fit(seen.train, seen.validation, device=self.device, progress=progress)
        progress(1.0, "drawing the map")
        about = {**learnt_about(model, seen, self.alarm_share), **seen.about, "code_version": __version__}
        progress(1.0, "learning what is calm")
        detector, no_detector = fit_detector(seen, model, fitting.seed)
        hierarchy = learnt_hierarchy(model, seen, self.metrics)
        kept = {} if detector is None else {DETECTOR: detector.content()}
        kept |= {} if hierarchy is None else {HIERARCHY: hierarchy.content()}
        about |= {
            "detector": None if detector is None else detector.metadata(),
            "no_detector": no_detector,
            "hierarchy": None if hierarchy is None else hierarchy.metadata(),
            "settings": fitting.record(),
            "seed": fitting.seed,
            "compute": watch.read().as_dict(),
        }
        return FittedTraces(model, architecture, about, detector, partial(model.save, others=kept))


def enter_trace_model(
    site: Site, fitted: FittedTraces, *, why: str, promoted_by: str | None = None, action: str = "traces train"
) -> Training:
    """Save a trace model and enter it; with `promoted_by` it is current at once."""
    new = NewModel(fitted.save, {**fitted.about, "why": why})
    return site.models.add_together({model_name(fitted.architecture): new}, promoted_by=promoted_by, action=action)


def fit_detector(seen: LearningWindows, scorer: Scorer, seed: int = 0) -> tuple[TraceDetector | None, str]:
    """The detector of the same windows, beside what embeds them; where there are too few calm ones to learn from, why not."""
    try:
        return TraceDetector(DetectorSettings(seed=seed), scorer.embed).fit(join_windows([seen.train, seen.validation])), ""
    except ModelError as error:
        return None, str(error)


def learnt_about(model: Scorer, seen: LearningWindows, alarm_share: float) -> dict[str, Any]:
    """The threshold out of validation windows, the map out of training windows, Bad IO out of both."""
    calm = ~seen.validation.is_anomalous() & (seen.validation.job != MIXED_JOB)
    scores = model.score(seen.validation)[calm]
    promise = _promise_of(seen.validation.take(calm), scores, alarm_share)
    normal = seen.train.of_normal()
    step = max(1, -(-len(normal) // _MAP_WINDOWS))
    trouble = known_bad_io(model, join_windows([seen.train, seen.validation]))
    return {
        "threshold": promise.threshold,
        "alarm_share": alarm_share,
        "promise": promise.as_dict(),
        "validation_error": float(scores.mean()),
        "windows": {"train": len(normal), "validation": int(calm.sum())},
        "step_s": seen.train.step_s,
        "window_s": seen.train.window_s,
        "map": PcaMap.fit(model.embed(normal)[::step]).as_dict(),
        "bad_io": None if trouble is None else trouble.record(),
    }


def _promise_of(calm: Windows, scores: npt.NDArray[np.float64], alarm_share: float) -> Promise:
    if not len(calm):
        raise ModelError("There are no calm windows to judge the model by.", hint="Record or simulate a campaign first.")
    return promised(scores, Calm(len(calm), calm.independent(), calm.hours()), alarm_share)


def load_trace_model(site: Site, *, threads: int | None = None, device: str = "cpu") -> TraceModel:
    """The trace model in use, to be run without torch on the CPU: the site's own, or the shipped encoder where it has none."""
    training = site.models.current_training(FAMILY)
    if training is None:
        model = shipped_model(site, threads=threads, device=device)
    else:
        model = loaded_traces(site, training, threads, device)
    return with_regions(site, model)


def with_regions(site: Site, model: TraceModel) -> TraceModel:
    """The model with the site's known regions as they are now."""
    return replace(model, regions=known_regions(site, model.scorer, model=model.name, version=model.version))


class TraceFamily(SiteFamily[TraceModel]):
    """Models of CPU windows: one autoencoder with its map and its threshold; the shipped encoder where a site has none."""

    name = ModelFamily.TRACES
    unit = Unit.WINDOWS
    metrics = ("threshold", "alarm_share", "validation_error", "promise")

    def train_and_enter(self, site: Site, request: TrainingRequest) -> str:
        """Train the architecture that is named, or that of site.toml."""
        architecture = None if request.sort is None else Architecture(request.sort)
        model = train_trace_model(site, architecture, why=request.why, user=request.user, progress=request.progress)
        return str(model.about["training"])

    def formats(self) -> Mapping[str, int]:
        """One for all architectures."""
        return {KIND: FORMAT_VERSION}

    def read(self, site: Site, training: Training) -> TraceModel:
        """On one thread, as it is for a look."""
        return loaded_traces(site, training, threads=1)

    def without_model(self, site: Site) -> TraceModel:
        """The shipped encoder."""
        return shipped_model(site)

    def rows_of(self, about: Mapping[str, Any]) -> int:
        """Normal windows to learn from."""
        return int(about.get("windows", {}).get("train", 0))

    def since_of(self, about: Mapping[str, Any]) -> object:
        """The first window; campaigns that are not in the table have none."""
        return about.get("data", {}).get("train", {}).get("first")

    def summary_of(self, model: ModelVersion) -> str:
        """Windows, and the score from which one is flagged."""
        threshold = model.about.get("threshold")
        flags = "flags nothing yet" if threshold is None else f"flags from a score of {threshold:.3g} on"
        return f"{self.rows_of(model.about):,} windows; {flags}"


TRACES: Final = TraceFamily()


def shipped_model(site: Site, *, threads: int | None = None, device: str = "cpu") -> TraceModel:
    """The shipped encoder, with what the site's own windows let it promise so far."""
    shipped = load_shipped(threads=threads, device=device)
    promise = shipped_promise(site)
    return TraceModel(shipped.scorer, shipped.map, shipped.bad_io, promise, SHIPPED_NAME, shipped.version, shipped.step_s)


def calibration_fact(version: int) -> str:
    """The fact that keeps the threshold of one version of the shipped encoder: scores of another are not comparable."""
    return _CALIBRATION if version == 1 else f"{_CALIBRATION}_{version}"


def shipped_promise(site: Site) -> Promise:
    """What the shipped encoder can promise on this site: nothing before the site's own windows have set a threshold."""
    share = site.settings.traces.alarm_share
    try:
        promise = Promise.of_record(json.loads(site.state.fact(calibration_fact(shipped_version())) or "null"))
    except (KeyError, TypeError, ValueError):
        return Promise(share, None, None, Calm(0, 0, 0.0))
    return promise if promise.asked == share else Promise(share, None, None, promise.calm)


def calibrated(site: Site, model: TraceModel) -> TraceModel:
    """The shipped encoder with a threshold set by the calm windows of the site that it has scored; other models as they are.

    None of these windows was learnt from: all are kept aside. Once they promise what the settings ask for, the threshold stays.
    """
    if not model.is_shipped or model.promise.is_kept:
        return model
    known = site.trace_scores.read(model=model.name, version=model.version).filter(
        ~labelled_trouble(site) & (pl.col("job_type") != MIXED)
    )
    rows = known.select("trace", "window_start", "node", "job_id", "job_type", "window_s", "score", counted=COUNTED).collect()
    rows = drawn_in_turn(rows, site.trace_coverage.read().collect())
    if not rows.height:
        return model
    together = rows.select("trace", "window_start", "node", "job_id", "job_type").n_unique()
    moments = rows.group_by("trace", "window_start").agg(pl.col("window_s").max()).sort("trace", "window_start")
    covered = pl.min_horizontal(pl.col("window_start").diff(-1).over("trace").dt.total_microseconds().abs() / 1e6, "window_s")
    hours = float(moments.select(covered.fill_null(pl.col("window_s")).sum()).item()) / 3600
    scores = np.repeat(rows["score"].to_numpy(), rows["counted"].to_numpy())
    promise = promised(scores, Calm(scores.size, together, hours), site.settings.traces.alarm_share)
    site.state.set_fact(calibration_fact(model.version), json.dumps(promise.as_dict()))
    return replace(model, promise=promise)


def loaded_traces(site: Site, training: Training, threads: int | None, device: str = "cpu") -> TraceModel:
    """The model of a training, read and checked."""
    from stormpetrel.traces.networks.scorers import load_scorer

    entry = training.models[0]
    about = entry.about
    try:
        chart, promise, step_s = PcaMap.from_dict(about["map"]), Promise.of_about(about), float(about["step_s"])
        bad_io = None if about.get("bad_io") is None else Trouble.of_record(about["bad_io"])
    except (KeyError, TypeError, ValueError):
        raise incomplete_entry(training) from None
    folder = site.models.verified_folder(entry.name, entry.version)
    scorer = FittingScorer(load_scorer(folder, threads=threads, device=device), step_s)
    return TraceModel(
        scorer,
        chart,
        bad_io,
        promise,
        entry.name,
        entry.version,
        step_s,
        detector=_kept_detector(folder, about.get("detector"), scorer),
        hierarchy=_kept_hierarchy(folder, about.get("hierarchy")),
    )


def _kept_detector(folder: Path, record: Any, scorer: Scorer) -> TraceDetector | None:
    """The detector beside a model; None where it has none that this version reads: the next training makes one."""
    if not isinstance(record, dict) or record.get("format_version") != DETECTOR_FORMAT or not (folder / DETECTOR).is_file():
        return None
    return TraceDetector.of_content(record, (folder / DETECTOR).read_bytes(), str(folder), scorer.embed)


def _kept_hierarchy(folder: Path, record: Any) -> NodeHierarchy | None:
    """The summaries beside a model; None where it has none, as models from before there were any."""
    if not isinstance(record, dict) or not (folder / HIERARCHY).is_file():
        return None
    return NodeHierarchy.of_content(record, (folder / HIERARCHY).read_bytes(), str(folder))


def score_new_windows(
    site: Site,
    model: TraceModel,
    *,
    since: datetime | None = None,
    chunk_windows: int = CHUNK_WINDOWS,
    progress: Progress = no_progress,
    engine: Engine = ONE_PROCESS,
) -> Scored:
    """Score the windows (since a moment) that this version of the model has not scored, in whole moments, one commit per chunk.

    A moment is scored with all its threads, those that were scored before as well: they are neighbours of the late ones. A chunk
    is an item of the engine: workers score, and this process reads and commits, in the order of time. The shipped encoder sets
    its threshold on the way, one chunk after the other: until it has one, it scores here.
    """
    pending = _pending(site, model, since)
    scored, flagged, other, commits, done = 0, 0, 0, 0, 0
    sets_threshold = model.is_shipped and not model.promise.is_kept
    size = min(chunk_windows, pending.height // _PARTS) if sets_threshold else chunk_windows
    place_of_work = ONE_PROCESS if model.is_shipped else engine
    is_sent = place_of_work != ONE_PROCESS
    scorer = WindowScorer(model, site.models.verified_folder(model.name, model.version) if is_sent else None)
    in_work: deque[tuple[datetime, datetime, pl.DataFrame, pl.DataFrame]] = deque()

    def chunks() -> Iterator[pl.DataFrame]:
        for first, last, waiting in _chunks(pending, size):
            rows = site.cpu_windows.read(since=first, until=last + timedelta(microseconds=1)).collect()
            fitting = in_order(rows.filter(seen_by(model)))
            in_work.append((first, last, waiting, fitting.select(WINDOW_KEY)))
            if fitting.height:
                scorer.model = calibrated(site, scorer.model)
            progress(done / max(1, pending.height), f"scoring {done:,} of {pending.height:,} windows")
            yield fitting

    for scores in place_of_work.map(scorer, chunks(), name=lambda rows: f"{rows.height:,} windows"):
        first, last, waiting, fitting = in_work.popleft()
        if scores is not None:
            late = scores.join(waiting, on=list(WINDOW_KEY), how="semi", nulls_equal=True, maintain_order="left")
            added = site.trace_scores.append(late)
            if model.hierarchy is not None:
                metrics = site.node_metrics.read(since=first, until=last + timedelta(microseconds=1)).collect()
                site.node_scores.append(node_scores(model.hierarchy, scores, metrics))
            scored, flagged, commits = scored + added, flagged + int(late["flagged"].sum()), commits + (added > 0)
        other += waiting.join(fitting, on=list(WINDOW_KEY), how="anti", nulls_equal=True).height
        done += waiting.height
    _score_job_starts(site, scorer.model, since)
    return Scored(scored, flagged, other, commits, calibrated(site, scorer.model).promise, model.is_shipped)


def _score_job_starts(site: Site, model: TraceModel, since: datetime | None) -> None:
    """Score the first windows of jobs that this version of the model has not scored, in commits of as many as a chunk."""
    known = site.job_start_scores.read(since=since, model=model.name, version=model.version).select(WINDOW_KEY)
    keys = site.job_starts.read(since=since).select(WINDOW_KEY)
    pending = keys.join(known, on=list(WINDOW_KEY), how="anti", nulls_equal=True).collect()
    for first, last, waiting in _chunks(pending, CHUNK_WINDOWS):
        rows = site.job_starts.read(since=first, until=last + timedelta(microseconds=1)).collect()
        late = rows.join(waiting, on=list(WINDOW_KEY), how="semi", nulls_equal=True, maintain_order="left")
        if (fitting := late.drop("of_threads").filter(seen_by(model))).height:
            site.job_start_scores.append(score_frame(model, fitting))


def _pending(site: Site, model: TraceModel, since: datetime | None) -> pl.DataFrame:
    known = site.trace_scores.read(since=since, model=model.name, version=model.version).select(WINDOW_KEY)
    keys = site.cpu_windows.read(since=since).select(WINDOW_KEY)
    return keys.join(known, on=list(WINDOW_KEY), how="anti", nulls_equal=True).collect()


def _chunks(pending: pl.DataFrame, size: int) -> Iterator[tuple[datetime, datetime, pl.DataFrame]]:
    """Windows that wait, in spans of whole moments with about `size` windows each: first and last moment, and the windows."""
    moments = pending.group_by("window_start").len().sort("window_start")
    if not moments.height:
        return
    chunk = (pl.col("len").cum_sum() - 1) // max(1, size)
    for (_,), part in moments.with_columns(chunk=chunk).group_by("chunk", maintain_order=True):
        first, last = part["window_start"][0], part["window_start"][-1]
        yield first, last, pending.filter(pl.col("window_start").is_between(first, last))


def seen_by(model: TraceModel) -> pl.Expr:
    """Windows that a model scores: the shipped encoder all of them, another those of its length and the short ones of jobs."""
    if model.is_shipped:
        return pl.lit(True)
    return is_of_length(model.scorer.settings.steps, model.step_s)
