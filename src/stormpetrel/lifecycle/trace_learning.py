"""Windows to learn from: which windows of a site or of campaigns a trace model is trained on, and which say when to stop.

Site or campaigns -> LearningWindows: training and validation windows, cut by campaign where there are campaigns, else by time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from stormpetrel.errors import ModelError
from stormpetrel.lifecycle.frozen_spans import known_calm
from stormpetrel.lifecycle.trace_regions import labelled_trouble
from stormpetrel.records.traces import Trace
from stormpetrel.records.window_frames import WINDOW_KEY, windows_of
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.store.site import Site
from stormpetrel.traces.campaign_splits import Cut, teaching_windows
from stormpetrel.traces.fitting_windows import fitted

LATE_SHARE: Final = 0.2  # of the time of windows without a campaign, the last part says when to stop
MOST_CLEARED: Final = 20_000  # windows of dismissed incidents among them, the newest
MOST_WINDOWS: Final = 200_000  # to learn from: the newest; a third of a gigabyte of memory


@dataclass(frozen=True, slots=True, eq=False)
class LearningWindows:
    """Windows to learn from and to stop by, anomalous ones among them, and where they came from."""

    train: Windows
    validation: Windows
    about: dict[str, Any]


def learning_windows(site: Site) -> LearningWindows:
    """The windows that a site's model learns from: of its training campaigns, or else of everything it has seen, by time."""
    version = site.cpu_windows.table.version()
    trouble = pl.col("anomalous").fill_null(False) | labelled_trouble(site)
    labelled = site.cpu_windows.read().with_columns(anomalous=pl.when(trouble).then(True))
    rows, steps = _of_one_length(labelled, site.settings.traces.window_s)
    campaigns = rows.filter(pl.col("split") == "train")
    of_campaigns = campaigns.select(pl.len()).collect().item() > 0
    if of_campaigns:
        train = _newest(campaigns)
        validation = rows.filter(pl.col("split") == "validation").collect()
    else:
        train, validation = _newest(rows.filter(pl.col("split").is_null())), pl.DataFrame(schema=rows.collect_schema())
    if not validation.height:
        train, validation = _cut_in_time(train)
    train = _with_cleared(train, rows.filter(pl.col("split").is_null(), known_calm(site)), validation)
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
    return LearningWindows(frame_windows(train, steps), frame_windows(validation, steps), about)


def campaign_windows(traces: Sequence[Trace], *, window_s: float, trouble: Collection[str] = ()) -> LearningWindows:
    """The windows of campaigns that are not in the site's table: learnt from and forgotten; test campaigns are left alone.

    `trouble` names job types that are trouble although the campaigns do not say so.
    """
    labelled = [
        replace(
            trace, jobs=tuple(replace(job, labelled_anomalous=True) if job.job_type in trouble else job for job in trace.jobs)
        )
        for trace in traces
    ]
    train, validation = teaching_windows(labelled, Cut(window_s, short_jobs=True))
    last = float(max(validation.start_s.max(), train.start_s.max())) + train.window_s
    about = {
        "data": {"train": {"traces": list(train.traces)}, "validation": {"traces": list(validation.traces)}},
        "from": "campaign files",
        "trained_until": datetime.fromtimestamp(last, UTC).isoformat(),
    }
    return LearningWindows(train, validation, about)


def is_of_length(steps: int, step_s: float) -> pl.Expr:
    """Windows of so many steps, or of a whole job that was shorter (it is repeated)."""
    length = pl.col("user").list.len()
    whole_job = (length < steps) & pl.col("job_id").is_not_null()
    return ((length == steps) | whole_job) & ((pl.col("step_s") - step_s).abs() < 0.01 * step_s)


def frame_windows(rows: pl.DataFrame, steps: int) -> Windows:
    """The windows of rows, each in as many steps; those of whole jobs that were shorter are repeated."""
    parts = [windows_of(part) for part in rows_by_length(in_order(rows))]
    step_s = next((part.step_s for part in parts if part.steps == steps), parts[0].step_s)
    return join_windows([fitted(part, steps=steps, step_s=step_s) for part in parts])


def _of_one_length(rows: pl.LazyFrame, window_s: float) -> tuple[pl.LazyFrame, int]:
    """Windows of the length that the settings name, and of short jobs; of several step lengths, those that there are most of."""
    steps = pl.col("user").list.len()
    fits = (steps * pl.col("step_s") - window_s).abs() < 0.5 * pl.col("step_s")
    lengths = rows.filter(fits).group_by(steps.alias("steps"), "step_s").len().sort("len", "steps", descending=True).collect()
    if not lengths.height:
        raise ModelError(
            f"The site has no windows of {window_s:g} s (traces.window_s).", hint="Take some in: stormpetrel ingest traces --live"
        )
    most, step_s = int(lengths["steps"][0]), float(lengths["step_s"][0])
    return rows.filter(is_of_length(most, step_s)), most


def _newest(rows: pl.LazyFrame) -> pl.DataFrame:
    """The newest windows, in whole moments, as many as can be learnt from."""
    moments = rows.group_by("window_start").len().sort("window_start", descending=True).collect()
    within = moments.filter((pl.col("len").cum_sum() <= MOST_WINDOWS) | (pl.int_range(pl.len()) == 0))
    if not within.height:
        return rows.head(0).collect()
    return rows.filter(pl.col("window_start") >= within["window_start"].min()).collect()


def _with_cleared(train: pl.DataFrame, cleared: pl.LazyFrame, validation: pl.DataFrame) -> pl.DataFrame:
    """The training windows, with those of dismissed incidents that are older: what somebody found calm is never forgotten.

    Those among the validation windows stay there: they say how high calm scores are.
    """
    newest = cleared.sort("window_start", descending=True).head(MOST_CLEARED).collect()
    known = pl.concat([train.select(WINDOW_KEY), validation.select(WINDOW_KEY)])
    return pl.concat([train, newest.join(known, on=list(WINDOW_KEY), how="anti", nulls_equal=True)])


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


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """In the order that windows are cut in."""
    return rows.sort("trace", "window_start", "node", "cpu", maintain_order=True)


def rows_by_length(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Windows of one length together; one part, empty, where there are none."""
    marked = rows.with_columns(_steps=pl.col("user").list.len())
    return marked.partition_by("_steps", "step_s", maintain_order=True) if rows.height else [marked]
