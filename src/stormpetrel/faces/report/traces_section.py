"""Traces in the report: the published study's table and figures from campaigns, and what a site's model says of its nodes.

TraceStudy -> study_sections; Site -> site_trace_sections -> Section. A site without trace windows or without a model has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.report import trace_figures, trace_tables
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table
from stormpetrel.figures import trace_models

if TYPE_CHECKING:
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.records.traces import Trace
    from stormpetrel.store.site import Site
    from stormpetrel.traces.study import TraceStudy

Progress = Callable[[str], None]

NEWEST_SCORES: Final = 200_000  # windows of a site that its section is made of
_NO_BAD_IO: Final = "No window of the training campaigns is labelled Bad IO: there is no centre to measure a distance from."


def study_sections(study: TraceStudy, traces: Sequence[Trace], *, progress: Progress = lambda _: None) -> list[Section]:
    """The sections about campaigns: Table 2 and Figs. 1 to 4."""
    progress("traces: the map")
    mapped = trace_figures.mapped_windows(study)
    found = study.evaluation
    counted = study.split.counts()
    return [
        Section(
            "Traces: how well they are represented",
            f"Table 2 of the published study ({trace_tables.STUDY}) on {len(traces)} campaigns or runs with "
            f"{counted['test']:,} test windows of {study.split.test.window_s:g} s, beside a linear model and a rule of one line.",
            (
                trace_tables.table_two(found),
                trace_tables.iowait_rule_table(found),
                trace_tables.runs_table(found),
                trace_tables.work_table(study),
            ),
        ),
        _guarded(
            "Traces: how often to look", "Figs. 1a and 1b: what slower sampling costs.", lambda: _sampling(traces, progress)
        ),
        Section(
            "Traces: original and reconstruction",
            "Fig. 2: what the models make of one window of each job type.",
            trace_figures.reconstruction_drawings(study),
        ),
        Section(
            "Traces: error per job type",
            "Fig. 3: jobs of a kind that was not learnt come back badly.",
            (trace_figures.error_drawing(study), trace_tables.errors_table(found)),
        ),
        Section("Traces: map and diagnosis", "Figs. 4a and 4b: who lies near trouble shares it.", _diagnosis(mapped)),
    ]


def site_trace_sections(site: Site, *, progress: Progress = lambda _: None) -> list[Section]:
    """What the model in use says of the site's windows; empty where there is no model, or nothing was scored."""
    from stormpetrel.lifecycle.trace_models import FAMILY, load_trace_model
    from stormpetrel.traces.shipped import NAME as SHIPPED

    own = site.models.current_training(FAMILY) is not None
    if not own and site.trace_scores.read().filter(pl.col("model") == SHIPPED).head(1).collect().is_empty():
        return []
    progress("traces")
    try:
        model = load_trace_model(site)
    except StormpetrelError as error:
        return [Section("Nodes and traces", "", (Paragraph(f"The trace model cannot be read: {error.what}"),))]
    points = newest_scores(site, model)
    if not points.height:
        return []
    first, last = (str(moment)[:16] for moment in (points["window_start"].min(), points["window_start"].max()))
    intro = f"{points.height:,} windows from {first} to {last} UTC, as {model.title} sees them. {model.promise.words()}"
    return [Section("Nodes and traces", intro, tuple(_site_blocks(model, points)))]


def newest_scores(site: Site, model: TraceModel, most: int = NEWEST_SCORES) -> pl.DataFrame:
    """What the model has said of the newest windows, oldest first."""
    rows = site.trace_scores.read(model=model.name, version=model.version)
    return rows.sort("window_start", "node", "cpu", descending=True).head(most).collect().reverse()


def _site_blocks(model: TraceModel, points: pl.DataFrame) -> Sequence[Block]:
    flagged = int(points["flagged"].sum())
    figures = Table(
        "Figures",
        (Column(""), Column("", "")),
        (
            ("windows", f"{points.height:,}"),
            ("nodes", f"{points['node'].n_unique():,}"),
            ("jobs", f"{points['job_id'].drop_nulls().n_unique():,}"),
            ("threshold", "none yet" if model.threshold is None else f"{model.threshold:.5f}"),
            ("flagged", f"{flagged:,} ({flagged / points.height:.2%})"),
        ),
    )
    chart = trace_models.trace_map(points, axes=trace_figures.axes_words(model.map))
    blocks: list[Block] = [figures]
    blocks += [trace_tables.abnormal_table(trace_tables.abnormal(points, by), by) for by in ("node", "thread", "job")]
    blocks += [trace_tables.map_table(points), Drawing(chart, height=520)]
    if model.bad_io is not None:
        blocks.append(trace_figures.diagnosis_drawing(points, model.bad_io))
        blocks.append(trace_tables.suspects_table(trace_figures.diagnosed(points, model.bad_io)))
    return blocks


def _diagnosis(mapped: trace_figures.MappedWindows) -> tuple[Block, ...]:
    if mapped.bad_io is None:
        return (trace_figures.map_drawing(mapped), Paragraph(_NO_BAD_IO))
    return (
        trace_figures.map_drawing(mapped),
        trace_figures.diagnosis_drawing(mapped.points, mapped.bad_io),
        trace_tables.suspects_table(trace_figures.diagnosed(mapped.points, mapped.bad_io)),
    )


def _sampling(traces: Sequence[Trace], progress: Progress) -> Sequence[Block]:
    from stormpetrel.traces.sampling import study_sampling

    study = study_sampling(traces, progress=lambda _share, words: progress(f"sampling: {words}"))
    tables = trace_tables.spectra_table(study), trace_tables.intervals_table(study)
    return [Paragraph(study.advice), *trace_figures.sampling_drawings(study), *tables]


def _guarded(title: str, intro: str, build: Callable[[], Sequence[Block]]) -> Section:
    try:
        return Section(title, intro, tuple(build()))
    except StormpetrelError as error:
        return Section(title, intro, (Paragraph(f"These traces cannot tell: {error.what}"),))
