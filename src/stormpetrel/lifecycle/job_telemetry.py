"""What the first two minutes of a job's telemetry tell the model of that moment: columns `telemetry_…` of the job frame.

Site, job frame -> with_telemetry -> the same jobs, in the same order, with a summary of their first windows and their place in
the embedding of the trace model in use. These windows begin with the job, wherever the others of the site lie, and count only
where they lie wholly in [start, start + 120 s]: nothing later is seen. A job without such a window has nulls.

Embeddings and scores of two versions of a trace model do not compare, so that these columns carry the version in their names: a
job model that has learnt those of one version sees nulls where another is in use.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.jobs.moments import TELEMETRY_PREFIX, TWO_MINUTES_S
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.window_frames import KEPT_MODES, WINDOW_KEY
from stormpetrel.store.site import Site

FEWEST_JOBS: Final = 50  # with telemetry, that a model may learn it from
_TWO_MINUTES: Final = timedelta(seconds=TWO_MINUTES_S)
_ROW: Final = "_telemetry_row"


def trace_version(site: Site) -> tuple[str, int]:
    """Name and version of the trace model in use: the shipped encoder where the site has trained none."""
    from stormpetrel.traces.shipped import NAME, shipped_about

    training = site.models.current_training(ModelFamily.TRACES)
    return (NAME, int(shipped_about()["version"])) if training is None else (training.models[0].name, training.models[0].version)


def with_telemetry(
    site: Site, jobs: pl.DataFrame, *, between: tuple[datetime, datetime] | None = None, fewest: int = 1
) -> pl.DataFrame:
    """The jobs with the columns of their first two minutes; as they are where fewer than `fewest` have any.

    `between` looks only at jobs whose two minutes are over in that span of time (excluded, included): those that a live loop is
    about to judge.
    """
    if any(name.startswith(TELEMETRY_PREFIX) for name in jobs.columns):
        return jobs
    started = _started(jobs, between)
    if not started.height:
        return jobs
    columns = _summary(site, started).join(_embedding(site, started), on=_ROW, how="full", coalesce=True)
    if columns.height < fewest:
        return jobs
    numbered = jobs.with_row_index(_ROW)
    return numbered.join(columns, on=_ROW, how="left", maintain_order="left").drop(_ROW)


def _started(jobs: pl.DataFrame, between: tuple[datetime, datetime] | None) -> pl.DataFrame:
    """The jobs that lived for two minutes, each under every id that a node may call it by."""
    lived = pl.col("end_time").is_null() | (pl.col("end_time") >= pl.col("start_time") + _TWO_MINUTES)
    rows = jobs.with_row_index(_ROW).filter(pl.col("start_time").is_not_null(), lived)
    if between is not None:
        over = pl.col("start_time") + _TWO_MINUTES
        rows = rows.filter(over > between[0], over <= between[1])
    number = pl.col("job_id").cast(pl.String)
    shown = (
        pl.when(pl.col("array_task").is_null())
        .then(number)
        .otherwise(pl.concat_str(number, pl.lit("_"), pl.col("array_task").cast(pl.String)))
    )
    ids = [rows.select(_ROW, "cluster", "start_time", id=name) for name in (shown, pl.col("job_id_raw").cast(pl.String))]
    return pl.concat(ids).drop_nulls("id").unique()


def _inside(site: Site, rows: pl.LazyFrame, started: pl.DataFrame, window_s: pl.Expr) -> pl.LazyFrame:
    """Rows of windows with the job whose first two minutes they lie in; it may have begun within the first step."""
    first, last = started["start_time"].min(), started["start_time"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)
    step = timedelta(seconds=site.settings.prometheus.step_s)
    near = rows.filter(
        pl.col("window_start").is_between(first - step, last + _TWO_MINUTES),
        pl.col("job_id").is_in(started["id"].unique().implode()),
    )
    ends = pl.col("window_start") + pl.duration(microseconds=(window_s.cast(pl.Float64) * 1e6).round().cast(pl.Int64))
    joined = near.join(started.lazy().rename({"id": "job_id"}), on=["cluster", "job_id"])
    return joined.filter(pl.col("window_start") > pl.col("start_time") - step, ends <= pl.col("start_time") + _TWO_MINUTES)


def _summary(site: Site, started: pl.DataFrame) -> pl.DataFrame:
    """What the threads did, without any model: means of the modes, how they vary over time and from thread to thread."""
    means = {mode: pl.col(mode).list.mean().cast(pl.Float64) for mode in KEPT_MODES}
    spread = pl.col("user").list.std().cast(pl.Float64)
    rows = _inside(site, site.job_starts.read(), started, pl.col("user").list.len() * pl.col("step_s"))
    peak = pl.col("iowait").list.max().cast(pl.Float64)
    windows = rows.select(_ROW, "node", "of_threads", **means, unrest=spread, peak=peak).collect()
    figures = {
        **{f"{mode}_mean": pl.col(mode).mean() for mode in KEPT_MODES},
        "user_between_threads": pl.col("user").std(ddof=0),
        "user_over_time": pl.col("unrest").mean(),
        "iowait_peak": pl.col("peak").max(),
    }
    of_nodes = windows.group_by(_ROW, "node").agg(pl.col("of_threads").max())
    threads = of_nodes.group_by(_ROW).agg(pl.col("of_threads").sum().cast(pl.Float64).alias(f"{TELEMETRY_PREFIX}threads"))
    summed = windows.group_by(_ROW).agg(**{f"{TELEMETRY_PREFIX}{name}": figure for name, figure in figures.items()})
    return summed.join(threads, on=_ROW)


def _embedding(site: Site, started: pl.DataFrame) -> pl.DataFrame:
    """Where the trace model in use puts the threads, on average, and how unusual it finds them."""
    model, version = trace_version(site)
    rows = _inside(site, site.job_start_scores.read(model=model, version=version), started, pl.col("window_s"))
    scored = rows.select(_ROW, *WINDOW_KEY, "score", "flagged", "embedding").collect().unique([_ROW, *WINDOW_KEY])
    sizes = scored["embedding"].list.len().drop_nulls()
    size = int(sizes[0]) if sizes.len() else 0
    suffix = f"@{model}/{version}"
    figures = {
        "score_mean": pl.col("score").mean(),
        "score_max": pl.col("score").max(),
        "flagged_share": pl.col("flagged").mean().cast(pl.Float64),
        **{
            f"e{place:02d}": pl.col("embedding").list.get(place, null_on_oob=True).mean().cast(pl.Float64)
            for place in range(size)
        },
    }
    return scored.group_by(_ROW).agg(**{f"{TELEMETRY_PREFIX}{name}{suffix}": figure for name, figure in figures.items()})
