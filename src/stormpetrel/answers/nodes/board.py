"""The scored windows of a site, kept in memory next to the jobs that they are of; read anew only where a table has changed.

LiveSite.boards.nodes.peek -> NodeBoard: the latest windows of the model in use, each with its job's user, name and reference.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from stormpetrel.answers.background import Background, Snapshot
from stormpetrel.answers.overview.overview import again
from stormpetrel.lifecycle.trace_models import load_trace_model, shipped_promise
from stormpetrel.records.jobs import JOB_SCHEMA, ref_text
from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA
from stormpetrel.traces.promise import Promise
from stormpetrel.traces.shipped import NAME as SHIPPED
from stormpetrel.traces.shipped import shipped_about

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.store.site import Site

MOST_WINDOWS: Final = 500_000  # that are kept in memory: the latest; 160 threads make as many in four days
FAMILY: Final = "traces"  # of the registry
_REST_S: Final = 15.0
Lack = Literal["windows", "scores"]
_MOMENT: Final = ("cluster", "job_id", "window_start")
_JOB: Final = {"user": JOB_SCHEMA["user"], "job_name": JOB_SCHEMA["job_name"], "ref": pl.String()}


class Network:
    """The model in use, loaded for the first window that is drawn with it and kept as long as it is in use."""

    def __init__(self) -> None:
        self._model: TraceModel | None = None
        self._lock = threading.Lock()

    def load(self, site: Site) -> TraceModel:
        """The model itself; what keeps it from being loaded is raised, and tried again the next time."""
        with self._lock:
            if self._model is None:
                self._model = load_trace_model(site)
            return self._model


@dataclass(frozen=True, slots=True)
class NodeBoard:
    """The latest scored windows of one version of one model.

    `windows` has the columns of TRACE_SCORE_SCHEMA; user, job_name and ref of the job (null where the job table does not know
    it, or where two people's jobs could be meant); and kind: the job type, or the job's name where nobody said its type.
    """

    windows: pl.DataFrame
    lack: Lack | None  # the first step that has not been done; None: nothing is lacking
    model: str
    model_version: int
    threshold: float | None
    promise: str  # what the threshold promises, or why nothing is flagged; empty where nobody knows
    near: float | None  # distance from the centre of Bad IO
    left_out: int  # older windows that are not kept here
    tables: tuple[Any, ...]  # what it was read from
    scored: pl.DataFrame
    jobs: pl.DataFrame
    network: Network


def node_background() -> Background[Snapshot[NodeBoard]]:
    """The work on the windows of one site."""
    return Background(make_node_board, rest_s=_REST_S, most=1, always=True)


def make_node_board(live: LiveSite, key: str, before: Snapshot[NodeBoard] | None) -> Snapshot[NodeBoard]:
    """The board of a site; the one before, with all answers out of it, where nothing has changed."""
    del key
    last = None if before is None else before.value
    in_use = (*_in_use(live), live.site.trace_regions.version())  # a region that is named changes what the model says
    tables = (live.site.cpu_windows.table.version(), live.site.trace_scores.table.version(), *in_use)
    if before is not None and last is not None and last.tables == tables:
        scored, left_out = last.scored, last.left_out
        jobs = _jobs_of(live, scored)
        if jobs.equals(last.jobs):
            return before
    else:
        scored, left_out = again(lambda: _read(live))
        jobs = _jobs_of(live, scored)
    model, version = (scored["model"].item(0), scored["model_version"].item(0)) if scored.height else ("", 0)
    about = _about(live, model, version)
    board = NodeBoard(
        windows=_with_jobs(scored, jobs),
        lack=None if scored.height else _lack(live),
        model=model,
        model_version=version,
        threshold=_threshold(about, scored),
        promise=_promise(about),
        near=_near(about),
        left_out=left_out,
        tables=tables,
        scored=scored,
        jobs=jobs,
        network=last.network if last is not None and last.tables[2:] == in_use else Network(),
    )
    return Snapshot(board, live.version, live.now())


def stamp_of(board: Snapshot[NodeBoard]) -> str:
    """What changes with the board."""
    return f"{board.version} {board.value.tables}"


def _jobs_of(live: LiveSite, scored: pl.DataFrame) -> pl.DataFrame:
    first = scored["window_start"].min()
    return jobs_of(scored, live.overview.lazy(since=first if isinstance(first, datetime) else live.now()))


def jobs_of(scored: pl.DataFrame, jobs: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """The jobs that windows are of: cluster, job_id and window_start of a window, and user, job_name and ref of its job.

    A window names its job as the scheduler does on the node: by its id, `12345_7`, or by the internal one of an array's task.
    Ids wrap and repeat: only a job that ran at the time can be meant. Where jobs of two people could be, it is nobody's.
    """
    ends = pl.col("window_start") + pl.duration(milliseconds=(1000 * pl.col("window_s")).cast(pl.Int64))
    moments = scored.filter(pl.col("job_id").is_not_null()).select(*_MOMENT, window_end=ends).unique()
    ids = moments["job_id"].unique()
    started = jobs.lazy().filter(pl.col("start_time").is_not_null())
    named = [started.with_columns(id=name) for name in (pl.col("job"), pl.col("job_id_raw").cast(pl.String))]
    runs = pl.concat(named).filter(pl.col("id").is_in(ids.implode()))
    runs = runs.select("cluster", "start_time", "end_time", "user", "job_name", ref_text(), job_id="id").unique()
    ran = (pl.col("start_time") < pl.col("window_end")) & (pl.col("end_time") > pl.col("window_start")).fill_null(True)
    matches = moments.lazy().join(runs, on=["cluster", "job_id"]).filter(ran).sort("start_time", "ref", descending=True)
    one_person = pl.col("user").n_unique() == 1
    single = matches.group_by(_MOMENT).agg(
        *(pl.when(one_person).then(pl.col(name).first()).alias(name) for name in _JOB),
    )
    return single.sort(_MOMENT).collect()


def _with_jobs(scored: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    joined = scored.join(jobs, on=list(_MOMENT), how="left", maintain_order="left")
    kind = pl.when(pl.col("job_type") != "").then("job_type").otherwise(pl.coalesce("job_name", pl.lit("")))
    return joined.with_columns(pl.col("job_type").fill_null("")).with_columns(kind=kind)


def _read(live: LiveSite) -> tuple[pl.DataFrame, int]:
    """The latest scores of the model in use, and how many older ones there are."""
    rows = live.site.trace_scores.read()
    versions = rows.group_by("model", "model_version").agg(windows=pl.len(), last=pl.col("window_start").max()).collect()
    if versions.is_empty():
        return pl.DataFrame(schema=TRACE_SCORE_SCHEMA), 0
    model, version, windows, _ = max(versions.iter_rows(), key=lambda row: _preference(live, *row))
    wanted = (pl.col("model") == model) & (pl.col("model_version") == version)
    if windows > MOST_WINDOWS:
        since = rows.filter(wanted).select(pl.col("window_start").top_k(MOST_WINDOWS).min()).collect().item()
        wanted &= pl.col("window_start") >= since
    scored = rows.filter(wanted).with_columns(embedding=pl.lit(None, dtype=TRACE_SCORE_SCHEMA["embedding"])).collect()
    return scored, windows - scored.height


def _preference(live: LiveSite, model: str, version: int, windows: int, last: Any) -> tuple[Any, ...]:
    """The version in use before others, then versions of the same model, the newest first, then what was scored last."""
    del windows
    name, current = _in_use(live)
    return (model, version) == (name, current), model == name, version if model == name else 0, last, version


def _in_use(live: LiveSite) -> tuple[str, int]:
    """Name and version of the model in use: the shipped encoder where the site has trained none."""
    training = live.site.models.current_training(FAMILY)
    if training is None:
        return SHIPPED, int(shipped_about()["version"])
    return training.models[0].name, training.models[0].version


def _lack(live: LiveSite) -> Lack:
    if live.site.cpu_windows.read().select("node").head(1).collect().is_empty():
        return "windows"
    return "scores"


def _about(live: LiveSite, model: str, version: int) -> Mapping[str, Any]:
    """The registry's record of the model that scored, or the shipped encoder's; empty where the model was deleted."""
    if model == SHIPPED:
        promise = shipped_promise(live.site)
        return {"bad_io": shipped_about()["bad_io"], "threshold": promise.threshold, "promise": promise.as_dict()}
    return next((entry.about for entry in live.site.models.versions(model) if entry.version == version), {})


def _threshold(about: Mapping[str, Any], scored: pl.DataFrame) -> float | None:
    """The score above which a window is flagged: as the model says, else the lowest of those that were."""
    threshold = about.get("threshold")
    if isinstance(threshold, int | float):
        return float(threshold)
    lowest = scored.filter(pl.col("flagged"))["score"].min()
    return float(lowest) if isinstance(lowest, int | float) else None


def _promise(about: Mapping[str, Any]) -> str:
    """What may be expected of the threshold, in words."""
    try:
        return Promise.of_about(about).words()
    except (KeyError, TypeError, ValueError):
        return ""


def _near(about: Mapping[str, Any]) -> float | None:
    """The distance from the centre of Bad IO within which windows count as near it."""
    bad_io = about.get("bad_io")
    radius = bad_io.get("radius") if isinstance(bad_io, Mapping) else None
    return float(radius) if isinstance(radius, int | float) else None
