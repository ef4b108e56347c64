"""Scoring of windows as they end: the windows of a moment -> scores and windows that are kept, each in one commit.

Site, TraceModel, LiveMoment -> take_moment -> TakenMoment. Scores first, the windows with the cursor behind them: killed in
between, the moment is read again, what was scored stays, and the tables are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from stormpetrel.ingest.live_windows import LiveMoment
from stormpetrel.lifecycle.node_summaries import node_scores
from stormpetrel.lifecycle.trace_models import Scored, TraceModel, calibrated, seen_by
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.records.window_frames import NODE_SCORE_SCHEMA, TRACE_SCORE_SCHEMA
from stormpetrel.store.site import Site
from stormpetrel.traces.keeping import Quota, kept_scores, kept_windows


@dataclass(frozen=True, slots=True, eq=False)
class TakenMoment:
    """What became of a moment: the model after it, the counts, and the scores of all its windows, kept or not."""

    model: TraceModel
    scored: Scored
    scores: pl.DataFrame  # of TRACE_SCORE_SCHEMA
    nodes: pl.DataFrame  # of NODE_SCORE_SCHEMA


def take_moment(
    site: Site,
    model: TraceModel,
    moment: LiveMoment,
    *,
    share: float = 1.0,
    before_cursor: Callable[[pl.DataFrame, pl.DataFrame], None] = lambda scores, nodes: None,
) -> TakenMoment:
    """Score the windows of a moment and keep what the settings leave room for, with the cursor that stands for them.

    Parameters
    ----------
    share
        The part of the site's nodes that the moment is of: they get that part of the room.
    before_cursor
        Called with the scores of windows and of nodes before the cursor is committed: what it commits is there with the cursor.
    """
    take_job_starts(site, model, moment.starts)
    model = calibrated(site, model)
    fits = moment.windows.with_columns(fits=seen_by(model))["fits"]
    fitting = moment.windows.filter(fits)
    scores = score_frame(model, fitting) if fitting.height else pl.DataFrame(schema=TRACE_SCORE_SCHEMA)
    settings = site.settings.traces
    steps = max(2, round(settings.window_s / site.settings.prometheus.step_s))
    quota = Quota.of_day(
        windows_mb=settings.keep_windows_mb, scores_mb=settings.keep_scores_mb, window_s=settings.window_s, steps=steps
    )
    quota = quota.of_share(share)
    kept = kept_windows(scores, quota.windows)
    with_place = pl.when(kept | pl.col("flagged")).then("embedding").alias("embedding")  # the rest would triple what is kept
    rows = kept_scores(scores.with_columns(with_place), kept, quota.scores)
    added = site.trace_scores.append_moment(rows, moment.start)
    site.node_metrics.append(moment.metrics)
    nodes = pl.DataFrame(schema=NODE_SCORE_SCHEMA)
    if model.hierarchy is not None:
        nodes = node_scores(model.hierarchy, scores, moment.metrics)
        site.node_scores.append(nodes)
    strange = moment.windows.filter(~fits)  # of another length than the model sees: for the one that comes after it
    before_cursor(scores, nodes)
    room = max(0, quota.windows - int(kept.sum()))
    keep = pl.concat([fitting.filter(kept), strange.head(room)])
    done = site.cpu_windows.commit(keep, cursor=moment.cursor)
    report = moment.report
    report.kept, report.known, report.changed = report.kept + done.kept, report.known + done.known, report.changed + done.changed
    flagged = int(scores["flagged"].sum())
    scored = Scored(scores.height if added else 0, flagged, strange.height, int(added > 0), model.promise, model.is_shipped)
    return TakenMoment(model, scored, scores, nodes)


def take_job_starts(site: Site, model: TraceModel, starts: pl.DataFrame) -> None:
    """Keep the first windows of jobs, and score them: no moment of a node is made of them, and no threshold is set by them.

    Killed in between, they are scored with the next model that is taken up, or the next time that windows are scored.
    """
    if not starts.height:
        return
    site.job_starts.append(starts)
    fitting = starts.drop("of_threads").filter(seen_by(model))
    if fitting.height:
        site.job_start_scores.append(score_frame(model, fitting))
