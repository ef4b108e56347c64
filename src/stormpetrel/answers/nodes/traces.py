"""What the trace model in use says of a site's newest windows: who is the most abnormal, the map, who lies near Bad IO.

Site + Viewer -> scored_windows -> ScoredWindows -> most_abnormal, trace_map, trace_diagnosis, site_traces; the act: score_traces.
All of it names everybody's jobs: administrators only.

One window and what the model makes of it, next to the other threads of its job and its node at the same moment.

LiveSite + Viewer + key of a window -> window_traces -> WindowTraces. Of other threads a user sees those of the own jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.nodes.board import NodeBoard
from stormpetrel.answers.nodes.nodes import WORST_SCORE, find_window, window_key, windows_seen
from stormpetrel.answers.nodes.regions import fitted_regions, like_before, region_suspects, with_region
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.base import Problem
from stormpetrel.answers.schemas.nodes import ScoredWindow, ThreadTrace, WindowTraces
from stormpetrel.answers.schemas.traces import (
    AbnormalJob,
    AbnormalNode,
    AbnormalThread,
    JobTypeOnMap,
    MapPoint,
    MostAbnormal,
    NearBadIo,
    OddNode,
    ScoringReceipt,
    SimilarNodeWindow,
    SiteTraces,
    SlidingNow,
    ThresholdPromise,
    TraceDiagnosis,
    TraceMap,
    WholeNode,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import ModelError, NotThereError, StormpetrelError
from stormpetrel.lifecycle.odd_nodes import newest_findings
from stormpetrel.lifecycle.trace_models import FAMILY, load_trace_model, score_new_windows
from stormpetrel.records.traces import MODES, Rates, job_types_in_order
from stormpetrel.records.window_frames import COUNTED, FLAGGED, WINDOW_KEY, windows_of
from stormpetrel.traces.diagnosis import diagnose
from stormpetrel.traces.shipped import NAME as SHIPPED

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.store.site import Site
    from stormpetrel.traces.detector.reasons import NodeFinding
    from stormpetrel.traces.diagnosis import Trouble
    from stormpetrel.traces.promise import Promise

Progress = Callable[[float, str], None]
NEWEST_SCORES: Final = 200_000  # windows that an answer is made of
_MOST: Final = 10  # nodes, threads or jobs in a ranking
_NOTHING_NEAR: Final = NearBadIo(windows=0, near=0, radius=None, high_iowait=None, rank_correlation=None, suspects=[])
MOST_THREADS: Final = 128  # that are drawn next to each other
_THREAD: Final = ("key", "node", "cpu", "kind", "job_id", "ref", "score", "flagged", "max_iowait")


@dataclass(frozen=True, slots=True, eq=False)
class ScoredWindows:
    """The newest windows that a model has scored, and the model.

    `points` has the columns of TRACE_SCORE_SCHEMA, oldest first: up to 200,000 rows that maps draw, and so they stay a frame.
    """

    model: TraceModel
    points: pl.DataFrame


def scored_windows(site: Site, viewer: Viewer) -> ScoredWindows:
    """The windows that the model in use has scored; there may be none."""
    viewer.require(READ)
    viewer.require_admin()
    return _newest(site, load_trace_model(site))


def is_scored(site: Site) -> bool:
    """Whether the site has a model of its own, or scores of the shipped encoder; neither is loaded."""
    own = site.models.current_training(FAMILY) is not None
    return own or not site.trace_scores.read().filter(pl.col("model") == SHIPPED).head(1).collect().is_empty()


def score_traces(
    site: Site,
    viewer: Viewer,
    *,
    top: int = _MOST,
    device: str = "cpu",
    progress: Progress = lambda _share, _step: None,
    engine: Engine = ONE_PROCESS,
) -> ScoringReceipt:
    """Score the windows that the model in use has not seen, and name the `top` most abnormal nodes, threads and jobs."""
    viewer.require(MANAGE)
    viewer.require_admin()
    model = load_trace_model(site, device=device)
    scoring = score_new_windows(site, model, progress=progress, engine=engine)
    counts = {name: getattr(scoring, name) for name in ("scored", "flagged", "other_length", "commits")}
    return ScoringReceipt(
        **most_abnormal(_newest(site, model), top=top).model_dump(),
        **counts,
        threshold=scoring.promise.threshold,
        promise=_promise(scoring.promise),
    )


def most_abnormal(windows: ScoredWindows, *, top: int = _MOST) -> MostAbnormal:
    """The nodes, threads and jobs with the largest share of flagged windows, then with the highest mean score."""
    points = windows.points
    return MostAbnormal(
        **_about(windows.model),
        nodes=[AbnormalNode(**row) for row in _ranking(points, ("node",), top)],
        threads=[AbnormalThread(**row) for row in _ranking(points, ("node", "cpu"), top)],
        jobs=[AbnormalJob(**row) for row in _ranking(points.drop_nulls("job_id"), ("job_id", "job_type"), top)],
    )


def trace_map(windows: ScoredWindows, *, with_points: bool = False) -> TraceMap:
    """Where the windows of each job type lie; with every single one where they are requested."""
    _refuse_empty(windows)
    points = with_region(windows.points, windows.model).select(*MapPoint.model_fields).to_dicts() if with_points else []
    return TraceMap.model_validate(
        {
            **_about(windows.model),
            "explained": _explained(windows.model),
            "job_types": _job_types(windows.points),
            "points": points,
            "regions": fitted_regions(windows.model),
        }
    )


def odd_nodes(site: Site, viewer: Viewer, model: TraceModel) -> list[OddNode] | None:
    """The nodes whose newest windows the detector finds odd, oddest first; None where the model has no detector."""
    viewer.require(READ)
    viewer.require_admin()
    findings = newest_findings(site, model)
    return None if findings is None else [_odd_node(finding) for finding in findings]


def _odd_node(finding: NodeFinding) -> OddNode:
    similar = [
        SimilarNodeWindow(node=window.node, window_start=_moment(window.start_s), likeness=window.likeness)
        for window in finding.similar
    ]
    return OddNode(
        sentence=finding.sentence,
        node=finding.node,
        window_start=_moment(finding.start_s),
        since=_moment(finding.since_s),
        score=finding.score,
        threads=list(finding.threads),
        of_threads=finding.of_threads,
        mode=finding.mode,
        before=finding.before,
        now=finding.now,
        similar=similar,
    )


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)


def trace_diagnosis(
    windows: ScoredWindows,
    site: Site | None = None,
    findings: list[OddNode] | None = None,
    nodes: Sequence[WholeNode] = (),
    sliding: SlidingNow | None = None,
) -> TraceDiagnosis:
    """Odd nodes, who is above the threshold now, who lies near Bad IO or in a known region, and what was like it.

    ModelError where the model knows none of these.
    """
    _refuse_empty(windows)
    model = windows.model
    knows_nothing = model.bad_io is None and not len(model.regions) and findings is None
    if knows_nothing and not (sliding is not None and sliding.fresh):
        raise ModelError(
            "The model has no detector, and knows no Bad IO windows and no named region: there is nothing to diagnose by.",
            hint="Take in more windows or a campaign with Bad IO jobs (stormpetrel ingest traces), then run: stormpetrel traces"
            " train; or name a trouble: stormpetrel traces label",
        )
    near = _NOTHING_NEAR if model.bad_io is None else near_bad_io(windows.points, model.bad_io)
    points = with_region(windows.points, model)
    return TraceDiagnosis(
        **_about(model),
        **near.model_dump(),
        findings=findings,
        nodes=list(nodes),
        sliding=sliding,
        regions=fitted_regions(model),
        inside=region_suspects(points),
        like=[] if site is None else like_before(site, model, points),
    )


def site_traces(windows: ScoredWindows) -> SiteTraces:
    """All of it at once, for a report."""
    _refuse_empty(windows)
    model, points = windows.model, windows.points
    return SiteTraces(
        **most_abnormal(windows).model_dump(),
        windows=int(points.select(COUNTED.sum()).item()),
        node_count=points["node"].n_unique(),
        job_count=points["job_id"].drop_nulls().n_unique(),
        flagged=int(points.select(FLAGGED).item()),
        first=points["window_start"][0],
        last=points["window_start"][-1],
        promise=_promise(model.promise),
        explained=_explained(model),
        job_types=_job_types(points),
        diagnosis=None if model.bad_io is None else near_bad_io(points, model.bad_io),
    )


def near_bad_io(points: pl.DataFrame, bad_io: Trouble) -> NearBadIo:
    """Who lies near Bad IO among windows with job_id, job_type, node, cpu, bad_io_distance and max_iowait."""
    diagnosis = diagnose(
        points["job_id"].to_list(),
        points["job_type"].to_list(),
        points["node"].to_list(),
        points["cpu"].to_list(),
        points["bad_io_distance"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        points["max_iowait"].cast(pl.Float64).to_numpy(),
        bad_io,
    )
    return NearBadIo.model_validate(asdict(diagnosis))


def _newest(site: Site, model: TraceModel) -> ScoredWindows:
    rows = site.trace_scores.read(model=model.name, version=model.version)
    newest = rows.sort("window_start", "node", "cpu", descending=True).head(NEWEST_SCORES).collect()
    return ScoredWindows(model, newest.reverse())


def _refuse_empty(windows: ScoredWindows) -> None:
    if windows.points.is_empty():
        raise ModelError(f"No window has been scored yet by {windows.model.title}.", hint="Run: stormpetrel traces score")


def _about(model: TraceModel) -> dict[str, Any]:
    return {"model": model.name, "version": model.version, "title": model.title, "shipped": model.is_shipped}


def _explained(model: TraceModel) -> list[float]:
    return [float(share) for share in model.map.explained[:2]]


def _promise(promise: Promise) -> ThresholdPromise:
    return ThresholdPromise.model_validate({**promise.as_dict(), "sentence": promise.words()})


def _ranking(points: pl.DataFrame, keys: Sequence[str], top: int) -> list[dict[str, Any]]:
    sums = points.group_by(keys).agg(
        COUNTED.sum().alias("windows"),
        FLAGGED.alias("flagged"),
        _mean("score").alias("mean_score"),
        WORST_SCORE.alias("highest_score"),
        pl.col("max_iowait").max().alias("max_iowait"),
    )
    share = pl.col("flagged") / pl.col("windows")
    return sums.sort(share, "mean_score", *keys, descending=[True, True, *([False] * len(keys))]).head(top).to_dicts()


def _mean(column: str) -> pl.Expr:
    """The mean over the windows that rows are counted as."""
    return (pl.col(column).cast(pl.Float64) * COUNTED).sum() / COUNTED.sum()


def _job_types(points: pl.DataFrame) -> list[JobTypeOnMap]:
    """The known types first, in their own order, then the others by name."""
    sums = points.group_by("job_type").agg(
        COUNTED.sum().alias("windows"),
        _mean("x").alias("x"),
        _mean("y").alias("y"),
        pl.col("score").repeat_by(COUNTED).explode().median().alias("median_score"),
        (FLAGGED / COUNTED.sum()).alias("flagged_share"),
    )
    order = job_types_in_order(sums["job_type"].drop_nulls().to_list())
    ordered = sums.sort(pl.col("job_type").replace_strict(order, range(len(order)), default=len(order)))
    return [JobTypeOnMap.model_validate(row) for row in ordered.iter_rows(named=True)]


def window_traces(live: LiveSite, viewer: Viewer, key: str) -> WindowTraces:
    """A window by its key, as this viewer may see it, with the threads of its job first, then the rest of its node."""
    viewer.require(READ)
    board = live.boards.nodes.latest(live).value
    window = find_window(board, viewer, key)
    neighbours = _neighbours(windows_seen(board, viewer), window, key)
    kept = again(lambda: _kept(live, window, neighbours["node"].unique().to_list()))
    if not kept.filter(pl.col("node") == window["node"], pl.col("cpu") == window["cpu"]).height:
        raise NotThereError("The window itself is no longer kept, only its score.", hint="Choose a later one.")
    return _answer(live, board.value, window, neighbours, kept)


def model_of(live: LiveSite, board: NodeBoard) -> TraceModel:
    """The model in use, by which windows are drawn once more."""
    return board.network.load(live.site)


def _answer(
    live: LiveSite, board: NodeBoard, window: dict[str, Any], neighbours: pl.DataFrame, kept: pl.DataFrame
) -> WindowTraces:
    matches = neighbours.join(kept.with_row_index("row").select("node", "cpu", "row"), on=["node", "cpu"], maintain_order="left")
    shown = matches.filter((pl.int_range(pl.len()) < MOST_THREADS) | pl.col("chosen"))
    windows = windows_of(kept)  # with the threads of others: a network that looks at neighbours needs all of them
    order = shown["row"].to_numpy()
    reconstruction, error = None, None
    try:
        reconstruction = model_of(live, board).scorer.reconstruct(windows)[order]
    except StormpetrelError as problem:
        error = problem
    return WindowTraces(
        window_start=window["window_start"],
        window=ScoredWindow.model_validate(window),
        judged=window["flagged"] or (board.threshold is not None and window["score"] <= board.threshold),
        step_s=windows.step_s,
        modes=list(MODES),
        of_threads=matches.height,
        problem=None if error is None else str(error),
        error=None if error is None else Problem(what=error.what, hint=error.hint),
        threads=_threads(shown.select(*_THREAD, "same_job"), windows.rates[order], reconstruction),
    )


def _threads(rows: pl.DataFrame, original: Rates, reconstruction: Rates | None) -> list[ThreadTrace]:
    """One thread for each row; the traces are (threads, steps, 4). A hundred thousand numbers out of arrays are not checked."""
    measured = original.transpose(0, 2, 1).tolist()  # (threads, 4, steps)
    drawn = [None] * len(measured) if reconstruction is None else reconstruction.transpose(0, 2, 1).tolist()
    threads = zip(rows.iter_rows(named=True), measured, drawn, strict=True)
    return [ThreadTrace.model_construct(**row, original=before, reconstruction=after) for row, before, after in threads]


def _neighbours(seen: pl.DataFrame, window: dict[str, Any], key: str) -> pl.DataFrame:
    """The scored windows of the same moment: of the same node, and of the same job on others."""
    moment = (pl.col("window_start") == window["window_start"]) & (pl.col("trace") == window["trace"])
    same_job = (pl.col("job_id") == pl.lit(window["job_id"], dtype=pl.String)).fill_null(False)
    rows = seen.filter(moment, pl.col("cluster") == window["cluster"]).with_columns(window_key(), same_job=same_job)
    near = rows.filter(pl.col("same_job") | (pl.col("node") == window["node"])).with_columns(chosen=pl.col("key") == key)
    here = pl.col("node") == window["node"]
    ordered = near.sort("same_job", here, "node", "cpu", descending=[True, True, False, False])
    return ordered.select(*_THREAD, "same_job", "chosen")


def _kept(live: LiveSite, window: dict[str, Any], nodes: list[str]) -> pl.DataFrame:
    """The windows themselves, of these nodes at that moment, everybody's."""
    start = window["window_start"]
    rows = live.site.cpu_windows.read(
        since=start, until=start + timedelta(seconds=1), nodes=[*nodes], traces=[window["trace"]]
    ).filter(pl.col("window_start") == start, pl.col("cluster") == window["cluster"])
    windows = rows.collect().unique(WINDOW_KEY, keep="last").sort("node", "cpu")
    length = (pl.col("user").list.len() * pl.col("step_s") - window["window_s"]).abs() < 0.5 * pl.col("step_s")
    return windows.filter(length)  # one model sees windows of one length
