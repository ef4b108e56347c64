"""What the trace model in use says of a site's newest windows: who is the most abnormal, the map, who lies near Bad IO.

Site + Viewer -> scored_windows -> ScoredWindows -> most_abnormal, trace_map, trace_diagnosis, site_traces; the act: score_traces.
All of it names everybody's jobs: administrators only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.nodes.regions import fitted_regions, like_before, region_suspects, with_region
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
    ThresholdPromise,
    TraceDiagnosis,
    TraceMap,
    WholeNode,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import ModelError
from stormpetrel.lifecycle.odd_nodes import newest_findings
from stormpetrel.lifecycle.trace_models import FAMILY, load_trace_model, score_new_windows
from stormpetrel.records.traces import job_types_in_order
from stormpetrel.records.window_frames import COUNTED, FLAGGED
from stormpetrel.traces.diagnosis import diagnose
from stormpetrel.traces.shipped import NAME as SHIPPED

if TYPE_CHECKING:
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
    site: Site, viewer: Viewer, *, top: int = _MOST, progress: Progress = lambda _share, _step: None
) -> ScoringReceipt:
    """Score the windows that the model in use has not seen, and name the `top` most abnormal nodes, threads and jobs."""
    viewer.require(MANAGE)
    viewer.require_admin()
    model = load_trace_model(site)
    scoring = score_new_windows(site, model, progress=progress)
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
        SimilarNodeWindow(node=one.node, window_start=_moment(one.start_s), likeness=one.likeness) for one in finding.similar
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
) -> TraceDiagnosis:
    """Odd nodes, who lies near Bad IO or in a known region, and what was like it; ModelError where the model knows none."""
    _refuse_empty(windows)
    model = windows.model
    if model.bad_io is None and not len(model.regions) and findings is None:
        raise ModelError(
            "The model knows no Bad IO windows and no named region: there is nothing to measure a distance from.",
            hint="Name a trouble (stormpetrel traces label), or take in a campaign with Bad IO jobs: stormpetrel traces train",
        )
    near = _NOTHING_NEAR if model.bad_io is None else near_bad_io(windows.points, model.bad_io)
    points = with_region(windows.points, model)
    return TraceDiagnosis(
        **_about(model),
        **near.model_dump(),
        findings=findings,
        nodes=list(nodes),
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
        pl.col("score").max().alias("highest_score"),
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
