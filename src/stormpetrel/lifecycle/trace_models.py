"""Trace models of a site: train one on its windows, enter it in the registry, load it, score what is new.

Site -> train_trace_model -> registry -> load_trace_model -> TraceModel -> score_new_windows -> trace_scores. A site without a
model of its own scores with the shipped encoder, which flags nothing until the site's own windows have set a threshold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel import __version__
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.learn.family import BY_HAND
from stormpetrel.learn.model_record import Unit
from stormpetrel.lifecycle.family import SiteFamily, TrainingRequest, incomplete_entry, operator
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.traces import ANOMALOUS_TYPES, MIXED, MIXED_JOB, Trace
from stormpetrel.records.window_frames import COUNTED, TRACE_SCORE_SCHEMA, WINDOW_KEY, windows_of
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.store.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site
from stormpetrel.traces.architecture import FORMAT_VERSION, KIND, Architecture, AutoencoderSettings, Scorer
from stormpetrel.traces.campaign_splits import Cut, teaching_windows
from stormpetrel.traces.diagnosis import Trouble, known_bad_io, place
from stormpetrel.traces.fitting_windows import FittingScorer, fitted
from stormpetrel.traces.promise import Calm, Promise, promised
from stormpetrel.traces.separability import PcaMap
from stormpetrel.traces.shipped import NAME as SHIPPED_NAME
from stormpetrel.traces.shipped import NOT_TRAINED_HERE, load_shipped

FAMILY: Final = ModelFamily.TRACES
LATE_SHARE: Final = 0.2  # of the time of windows without a campaign, the last part says when to stop
MOST_WINDOWS: Final = 200_000  # to learn from: the newest; a third of a gigabyte of memory
CHUNK_WINDOWS: Final = 20_000  # scored and committed at once
_MAP_WINDOWS: Final = 50_000  # a plane is not better known by more
_CALIBRATION: Final = "traces_shipped_promise"  # a fact of the state store: what the shipped encoder can promise on this site
_PARTS: Final = 4  # in which windows are scored while a threshold is being set, so that the later ones can be flagged


@dataclass(frozen=True, slots=True, eq=False)
class LearningWindows:
    """Windows to learn from and to stop by, anomalous ones among them, and where they came from."""

    train: Windows
    validation: Windows
    about: dict[str, Any]


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

    @property
    def centroid(self) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """The centre of Bad IO in the space of embeddings."""
        return None if self.bad_io is None else self.bad_io.centre


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
    from stormpetrel.traces.autoencoder import TraceAutoencoder

    chosen = architecture or Architecture(site.settings.traces.model)
    seen = windows or learning_windows(site)
    fitting = replace(settings or AutoencoderSettings(), architecture=chosen, steps=seen.train.steps)
    model = TraceAutoencoder(fitting).fit(seen.train, seen.validation, device=device, progress=progress)
    progress(1.0, "drawing the map")
    about = {**_learnt(model, seen, site.settings.traces.alarm_share), **seen.about, "why": why, "code_version": __version__}
    training = site.models.add_together(
        {model_name(chosen): NewModel(model.save, about)}, promoted_by=user or operator(), action="traces train"
    )
    return training.models[0]


def _learnt(model: Scorer, seen: LearningWindows, alarm_share: float) -> dict[str, Any]:
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


def learning_windows(site: Site) -> LearningWindows:
    """The windows that a site's model learns from: of its training campaigns, or else of everything it has seen, by time."""
    version = site.cpu_windows.table.version()
    rows, steps = _of_one_length(site.cpu_windows.read(), site.settings.traces.window_s)
    campaigns = rows.filter(pl.col("split") == "train")
    of_campaigns = campaigns.select(pl.len()).collect().item() > 0
    if of_campaigns:
        train = _newest(campaigns)
        validation = rows.filter(pl.col("split") == "validation").collect()
    else:
        train, validation = _newest(rows.filter(pl.col("split").is_null())), pl.DataFrame(schema=rows.collect_schema())
    if not validation.height:
        train, validation = _cut_in_time(train)
    if not train.height or not validation.height:
        raise ModelError(
            "The site has too few windows to learn from and to know when to stop.",
            hint="Take in more: stormpetrel ingest traces --live, or a campaign: stormpetrel ingest traces FILE",
        )
    spans = {"train": _span(train), "validation": _span(validation)}
    about = {
        "table_version": version,
        "data": spans,
        "from": "campaigns" if of_campaigns else "time",
        "trained_until": max(span["last"] for span in spans.values()),
    }
    return LearningWindows(_fitted_windows(train, steps), _fitted_windows(validation, steps), about)


def campaign_windows(traces: Sequence[Trace], *, window_s: float) -> LearningWindows:
    """The windows of campaigns that are not in the site's table: learnt from and forgotten; test campaigns are left alone."""
    train, validation = teaching_windows(traces, Cut(window_s, short_jobs=True))
    last = float(max(validation.start_s.max(), train.start_s.max())) + train.window_s
    about = {
        "data": {"train": {"traces": list(train.traces)}, "validation": {"traces": list(validation.traces)}},
        "from": "campaign files",
        "trained_until": datetime.fromtimestamp(last, UTC).isoformat(),
    }
    return LearningWindows(train, validation, about)


def load_trace_model(site: Site, *, threads: int | None = None) -> TraceModel:
    """The trace model in use, to be run without torch: the site's own, or the shipped encoder where it has none."""
    training = site.models.current_training(FAMILY)
    return shipped_model(site, threads=threads) if training is None else loaded_traces(site, training, threads)


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


def shipped_model(site: Site, *, threads: int | None = None) -> TraceModel:
    """The shipped encoder, with what the site's own windows let it promise so far."""
    shipped = load_shipped(threads=threads)
    promise = shipped_promise(site)
    return TraceModel(shipped.scorer, shipped.map, shipped.bad_io, promise, SHIPPED_NAME, shipped.version, shipped.step_s)


def shipped_promise(site: Site) -> Promise:
    """What the shipped encoder can promise on this site: nothing before the site's own windows have set a threshold."""
    asked = site.settings.traces.alarm_share
    try:
        promise = Promise.of_record(json.loads(site.state.fact(_CALIBRATION) or "null"))
    except (KeyError, TypeError, ValueError):
        return Promise(asked, None, None, Calm(0, 0, 0.0))
    return promise if promise.asked == asked else Promise(asked, None, None, promise.calm)


def calibrated(site: Site, model: TraceModel) -> TraceModel:
    """The shipped encoder with a threshold set by the calm windows of the site that it has scored; other models as they are.

    None of these windows was learnt from: all are kept aside. Once they promise what the settings ask for, the threshold stays.
    """
    if not model.is_shipped or model.promise.is_kept:
        return model
    known = site.trace_scores.read(model=model.name, version=model.version).filter(
        ~pl.col("job_type").is_in([*ANOMALOUS_TYPES, MIXED])
    )
    rows = known.select("trace", "window_start", "node", "job_id", "job_type", "window_s", "score", counted=COUNTED).collect()
    if not rows.height:
        return model
    together = rows.select("trace", "window_start", "node", "job_id", "job_type").n_unique()
    moments = rows.group_by("trace", "window_start").agg(pl.col("window_s").max()).sort("trace", "window_start")
    covered = pl.min_horizontal(pl.col("window_start").diff(-1).over("trace").dt.total_microseconds().abs() / 1e6, "window_s")
    hours = float(moments.select(covered.fill_null(pl.col("window_s")).sum()).item()) / 3600
    scores = np.repeat(rows["score"].to_numpy(), rows["counted"].to_numpy())
    promise = promised(scores, Calm(scores.size, together, hours), site.settings.traces.alarm_share)
    site.state.set_fact(_CALIBRATION, json.dumps(promise.as_dict()))
    return replace(model, promise=promise)


def loaded_traces(site: Site, training: Training, threads: int | None) -> TraceModel:
    """The model of a training, read and checked."""
    from stormpetrel.traces.runtime import TraceScorer

    entry = training.models[0]
    about = entry.about
    try:
        chart, promise, step_s = PcaMap.from_dict(about["map"]), Promise.of_about(about), float(about["step_s"])
        bad_io = None if about.get("bad_io") is None else Trouble.of_record(about["bad_io"])
    except (KeyError, TypeError, ValueError):
        raise incomplete_entry(training) from None
    scorer = TraceScorer.load(site.models.verified_folder(entry.name, entry.version), threads=threads)
    return TraceModel(FittingScorer(scorer, step_s), chart, bad_io, promise, entry.name, entry.version, step_s)


def score_new_windows(
    site: Site,
    model: TraceModel,
    *,
    since: datetime | None = None,
    chunk_windows: int = CHUNK_WINDOWS,
    progress: Progress = no_progress,
) -> Scored:
    """Score the windows (since a moment) that this version of the model has not scored, in whole moments, one commit per chunk.

    A moment is scored with all its threads, those that were scored before as well: they are neighbours of the late ones.
    """
    pending = _pending(site, model, since)
    scored, flagged, other, commits, done = 0, 0, 0, 0, 0
    sets_threshold = model.is_shipped and not model.promise.is_kept
    size = min(chunk_windows, pending.height // _PARTS) if sets_threshold else chunk_windows
    for first, last, waiting in _chunks(pending, size):
        progress(done / max(1, pending.height), f"scoring {done:,} of {pending.height:,} windows")
        rows = site.cpu_windows.read(since=first, until=last + timedelta(microseconds=1)).collect()
        fitting = _sorted(rows.filter(seen_by(model)))
        if fitting.height:
            model = calibrated(site, model)
            scores = score_frame(model, fitting)
            late = scores.join(waiting, on=list(WINDOW_KEY), how="semi", nulls_equal=True, maintain_order="left")
            added = site.trace_scores.append(late)
            scored, flagged, commits = scored + added, flagged + int(late["flagged"].sum()), commits + (added > 0)
        other += waiting.join(fitting, on=list(WINDOW_KEY), how="anti", nulls_equal=True).height
        done += waiting.height
    return Scored(scored, flagged, other, commits, calibrated(site, model).promise, model.is_shipped)


def score_frame(model: TraceModel, rows: pl.DataFrame) -> pl.DataFrame:
    """What a model says of windows of CPU_WINDOW_SCHEMA, as a frame of TRACE_SCORE_SCHEMA, in the order of the rows."""
    numbered = rows.with_row_index("_row")
    parts = [_scores_of_length(model, part) for part in _by_length(numbered)]
    return pl.concat(parts).sort("_row").drop("_row")


def _scores_of_length(model: TraceModel, rows: pl.DataFrame) -> pl.DataFrame:
    windows = windows_of(rows)
    found = place(model.scorer, model.map, model.bad_io, windows)
    threshold = np.inf if model.threshold is None else model.threshold
    distance = pl.lit(None, dtype=pl.Float32) if found.bad_io_distance is None else pl.Series(found.bad_io_distance)
    return rows.select(
        "_row",
        *WINDOW_KEY,
        "split",
        "job_id",
        "job_type",
        window_s=pl.lit(windows.window_s, dtype=pl.Float32),
        model=pl.lit(model.name),
        model_version=pl.lit(model.version, dtype=pl.Int64),
        score=pl.Series(found.score),
        # A thread that changed hands is unlike anything learnt, and everybody knows why.
        flagged=pl.Series((found.score > threshold) & (windows.job != MIXED_JOB)),
        x=pl.Series(found.x),
        y=pl.Series(found.y),
        max_iowait=pl.Series(found.max_iowait),
        bad_io_distance=distance,
        stands_for=pl.lit(None, dtype=pl.Int32),
    ).cast({name: dtype for name, dtype in TRACE_SCORE_SCHEMA.items()})  # noqa: C416  a Schema is refused beside `_row`


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
    return _is_of_length(model.scorer.settings.steps, model.step_s)


def _is_of_length(steps: int, step_s: float) -> pl.Expr:
    """Windows of so many steps, or of a whole job that was shorter (it is repeated)."""
    found = pl.col("user").list.len()
    whole_job = (found < steps) & pl.col("job_id").is_not_null()
    return ((found == steps) | whole_job) & ((pl.col("step_s") - step_s).abs() < 0.01 * step_s)


def _by_length(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Windows of one length together; one part, empty, where there are none."""
    marked = rows.with_columns(_steps=pl.col("user").list.len())
    return marked.partition_by("_steps", "step_s", maintain_order=True) if rows.height else [marked]


def _fitted_windows(rows: pl.DataFrame, steps: int) -> Windows:
    """The windows of rows, each in as many steps; those of whole jobs that were shorter are repeated."""
    parts = [windows_of(part) for part in _by_length(_sorted(rows))]
    step_s = next((part.step_s for part in parts if part.steps == steps), parts[0].step_s)
    return join_windows([fitted(part, steps=steps, step_s=step_s) for part in parts])


def _of_one_length(rows: pl.LazyFrame, window_s: float) -> tuple[pl.LazyFrame, int]:
    """Windows of the length that the settings name, and of short jobs; of several step lengths, those that there are most of."""
    steps = pl.col("user").list.len()
    fits = (steps * pl.col("step_s") - window_s).abs() < 0.5 * pl.col("step_s")
    found = rows.filter(fits).group_by(steps.alias("steps"), "step_s").len().sort("len", "steps", descending=True).collect()
    if not found.height:
        raise ModelError(
            f"The site has no windows of {window_s:g} s (traces.window_s).", hint="Take some in: stormpetrel ingest traces --live"
        )
    most, step_s = int(found["steps"][0]), float(found["step_s"][0])
    return rows.filter(_is_of_length(most, step_s)), most


def _newest(rows: pl.LazyFrame) -> pl.DataFrame:
    """The newest windows, in whole moments, as many as can be learnt from."""
    moments = rows.group_by("window_start").len().sort("window_start", descending=True).collect()
    within = moments.filter((pl.col("len").cum_sum() <= MOST_WINDOWS) | (pl.int_range(pl.len()) == 0))
    if not within.height:
        return rows.head(0).collect()
    return rows.filter(pl.col("window_start") >= within["window_start"].min()).collect()


def _cut_in_time(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The earlier windows and the later ones; what reaches over the cut is left out."""
    moments = rows["window_start"].unique().sort()
    if len(moments) < 2:
        return rows, rows.head(0)
    cut = moments[min(len(moments) - 1, int((1 - LATE_SHARE) * len(moments)))]
    length = pl.duration(
        microseconds=(pl.col("user").list.len() * pl.col("step_s").cast(pl.Float64) * 1e6).round().cast(pl.Int64)
    )
    return rows.filter(pl.col("window_start") + length <= cut), rows.filter(pl.col("window_start") >= cut)


def _span(rows: pl.DataFrame) -> dict[str, Any]:
    first, last = rows["window_start"].min(), rows["window_start"].max()
    return {"windows": rows.height, "first": first.isoformat(), "last": last.isoformat()}  # type: ignore[union-attr]


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    """In the order that windows are cut in."""
    return rows.sort("trace", "window_start", "node", "cpu", maintain_order=True)
