"""Traces in the report: the published study's table and figures from campaigns, and what a site's model says of its nodes.

TraceStudy -> study_sections; Site -> site_trace_sections -> Section. A site without trace windows or without a model has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.nodes.traces import ScoredWindows, is_scored, near_bad_io, scored_windows, site_traces
from stormpetrel.answers.studies.trace_study import (
    MappedWindows,
    mapped_windows,
    reconstructed_windows,
    sampling_answer,
    study_answer,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.report import trace_figures, trace_tables
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table
from stormpetrel.figures import trace_models
from stormpetrel.traces.sampling import study_sampling

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.traces import SiteTraces
    from stormpetrel.records.traces import Trace
    from stormpetrel.store.site import Site
    from stormpetrel.traces.study import TraceStudy

Progress = Callable[[str], None]

_NO_BAD_IO: Final = "No window of the training campaigns is labelled Bad IO: there is no centre to measure a distance from."


def study_sections(study: TraceStudy, traces: Sequence[Trace], *, progress: Progress = lambda _: None) -> list[Section]:
    """The sections about campaigns: Table 2 and Figs. 1 to 4."""
    progress("traces: the map")
    mapped = mapped_windows(study)
    answer = study_answer(study)
    return [
        Section(
            "Traces: how well they are represented",
            f"Table 2 of the published study ({trace_tables.STUDY}) on {len(traces)} campaigns or runs with "
            f"{answer.windows['test']:,} test windows of {study.split.test.window_s:g} s, beside a linear model and a rule of "
            "one line.",
            (
                trace_tables.table_two(answer),
                trace_tables.iowait_rule_table(answer),
                trace_tables.runs_table(answer),
                trace_tables.work_table(answer),
            ),
        ),
        _guarded(
            "Traces: sampling interval", "Figs. 1a and 1b: what slower sampling costs.", lambda: _sampling(traces, progress)
        ),
        Section(
            "Traces: original and reconstruction",
            "Fig. 2: the reconstruction of one window of each job type.",
            trace_figures.reconstruction_drawings(reconstructed_windows(study)),
        ),
        Section(
            "Traces: error per job type",
            "Fig. 3: jobs of a kind that was not in training have a high error.",
            (trace_figures.error_drawing(study.evaluation), trace_tables.errors_table(answer)),
        ),
        Section("Traces: map and diagnosis", "Figs. 4a and 4b: windows near a problem share it.", _diagnosis(mapped)),
    ]


def site_trace_sections(site: Site, *, progress: Progress = lambda _: None) -> list[Section]:
    """What the model in use says of the site's windows; empty where there is no model, or nothing was scored."""
    if not is_scored(site):
        return []
    progress("traces")
    try:
        windows = scored_windows(site, LOCAL)
    except StormpetrelError as error:
        return [Section("Nodes and traces", "", (Paragraph(f"The trace model cannot be read: {error.what}"),))]
    if windows.points.is_empty():
        return []
    answer = site_traces(windows)
    span = f"{answer.first:%Y-%m-%d %H:%M} to {answer.last:%Y-%m-%d %H:%M} UTC"
    intro = f"{answer.windows:,} windows from {span}, as {answer.title} sees them. {answer.promise.sentence}"
    return [Section("Nodes and traces", intro, tuple(_site_blocks(answer, windows)))]


def _site_blocks(answer: SiteTraces, windows: ScoredWindows) -> Sequence[Block]:
    threshold = answer.promise.threshold
    figures = Table(
        "Figures",
        (Column(""), Column("", "")),
        (
            ("windows", f"{answer.windows:,}"),
            ("nodes", f"{answer.node_count:,}"),
            ("jobs", f"{answer.job_count:,}"),
            ("threshold", "none yet" if threshold is None else f"{threshold:.5f}"),
            ("flagged", f"{answer.flagged:,} ({answer.flagged / answer.windows:.2%})"),
        ),
    )
    chart = trace_models.trace_map(windows.points, axes=trace_models.map_axes(answer.explained))
    blocks: list[Block] = [figures, *trace_tables.abnormal_tables(answer)]
    blocks += [trace_tables.map_table(answer.job_types), Drawing(chart, height=520)]
    near = answer.diagnosis
    if near is not None and near.radius is not None and near.high_iowait is not None:
        blocks.append(trace_figures.diagnosis_drawing(windows.points, near=near.radius, high=near.high_iowait))
        blocks.append(trace_tables.suspects_table(near))
    return blocks


def _diagnosis(mapped: MappedWindows) -> tuple[Block, ...]:
    if mapped.bad_io is None:
        return (trace_figures.map_drawing(mapped), Paragraph(_NO_BAD_IO))
    return (
        trace_figures.map_drawing(mapped),
        trace_figures.diagnosis_drawing(mapped.points, near=mapped.bad_io.radius, high=mapped.bad_io.high_iowait),
        trace_tables.suspects_table(near_bad_io(mapped.points, mapped.bad_io)),
    )


def _sampling(traces: Sequence[Trace], progress: Progress) -> Sequence[Block]:
    study = study_sampling(traces, progress=lambda _share, text: progress(f"sampling: {text}"))
    answer = sampling_answer(study)
    tables = trace_tables.spectra_table(answer), trace_tables.intervals_table(answer)
    return [Paragraph(answer.advice), *trace_figures.sampling_drawings(study), *tables]


def _guarded(title: str, intro: str, build: Callable[[], Sequence[Block]]) -> Section:
    try:
        return Section(title, intro, tuple(build()))
    except StormpetrelError as error:
        return Section(title, intro, (Paragraph(f"These traces cannot tell: {error.what}"),))
