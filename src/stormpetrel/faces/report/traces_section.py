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
    study_of_site,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.report import trace_figures, trace_tables
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table, showing
from stormpetrel.figures import trace_models
from stormpetrel.traces.sampling import study_sampling
from stormpetrel.traces.separability import SUBSETS

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.traces import SiteTraces
    from stormpetrel.records.traces import Trace
    from stormpetrel.store.site import Site
    from stormpetrel.traces.study import TraceStudy

Progress = Callable[[str], None]

_OF_STUDY: Final = (
    "jlab-table-2", "jlab-fig-1a", "jlab-fig-1b", "jlab-fig-2", "jlab-fig-3", "poster-table", "poster-sampling",
    "poster-features", "poster-anomaly",
)  # fmt: skip
_SITE_SUBSETS: Final = 10  # on which a silhouette is measured; campaigns have as many as the published study
_NO_BAD_IO: Final = "No window of the training campaigns is labelled Bad IO: there is no centre to measure a distance from."


def study_sections(study: TraceStudy, traces: Sequence[Trace], *, progress: Progress = lambda _: None) -> list[Section]:
    """The sections about campaigns: Table 2 and Figs. 1 to 4."""
    progress("traces: the map")
    mapped = mapped_windows(study)
    campaigns = f"{len(traces)} campaigns or runs"
    return [
        *_represented(study, traces, campaigns, (trace_tables.work_table(study_answer(study)),), progress),
        Section("Traces: map and diagnosis", "Figs. 4a and 4b: windows near a problem share it.", _diagnosis(mapped)),
    ]


def _represented(
    study: TraceStudy,
    traces: Sequence[Trace],
    source: str,
    more: tuple[Table, ...],
    progress: Progress,
    *,
    subsets: int = SUBSETS,
) -> list[Section]:
    """Table 2 and Figs. 1 to 3, of campaigns or of a site's own windows."""
    answer = study_answer(study)
    return [
        Section(
            "Traces: how well they are represented",
            f"Table 2 of the published study ({trace_tables.STUDY}) on {source} with "
            f"{answer.windows['test']:,} test windows of {study.split.test.window_s:g} s, beside a linear model and a rule of "
            "one line.",
            (
                showing(trace_tables.table_two(answer), "jlab-table-2", "poster-table"),
                trace_tables.iowait_rule_table(answer),
                trace_tables.runs_table(answer),
                *more,
            ),
        ),
        _guarded(
            "Traces: sampling interval",
            "Figs. 1a and 1b: what slower sampling costs.",
            lambda: _sampling(traces, progress, subsets),
            ("jlab-fig-1a", "jlab-fig-1b", "poster-sampling"),
        ),
        Section(
            "Traces: original and reconstruction",
            "Fig. 2: the reconstruction of one window of each job type.",
            trace_figures.reconstruction_drawings(reconstructed_windows(study)),
        ),
        Section(
            "Traces: error per job type",
            "Fig. 3: jobs of a kind that was not in training have a high error.",
            (
                showing(trace_figures.error_drawing(study.evaluation), "jlab-fig-3", "poster-anomaly"),
                trace_tables.errors_table(answer),
            ),
        ),
    ]


def site_trace_sections(site: Site, *, with_study: bool = True, progress: Progress = lambda _: None) -> list[Section]:
    """What the model in use says of the site's windows; empty where there is no model, or nothing was scored.

    With `with_study` also how good that model is on windows that it has not learnt from: Table 2 and Figs. 1 to 3.
    """
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
    sections = [Section("Nodes and traces", intro, tuple(_site_blocks(answer, windows)))]
    return [*sections, *_site_study(site, progress)] if with_study else sections


def _site_study(site: Site, progress: Progress) -> list[Section]:
    """The published study of the model in use, on what the site has recorded since it was trained."""
    progress("traces: the study")
    try:
        study, traces = study_of_site(site, LOCAL)
    except StormpetrelError as error:
        reasons = dict.fromkeys(_OF_STUDY, f"these windows cannot tell: {error.what}")
        blocks = (Paragraph(f"These windows cannot tell: {error.what}"),)
        return [Section("Traces: how well they are represented", "", blocks, reasons)]
    return _represented(study, traces, "this site's own windows", (), progress, subsets=_SITE_SUBSETS)


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
    types = showing(trace_tables.job_types_table(windows.points), "jlab-table-1", "poster-data")
    blocks: list[Block] = [figures, types, *trace_tables.abnormal_tables(answer)]
    blocks += [trace_tables.map_table(answer.job_types), Drawing(chart, height=520, shows=("jlab-fig-4a", "poster-diagnosis"))]
    near = answer.diagnosis
    if near is not None and near.radius is not None and near.high_iowait is not None:
        drawing = trace_figures.diagnosis_drawing(windows.points, near=near.radius, high=near.high_iowait)
        blocks.append(showing(drawing, "jlab-fig-4b"))
        blocks.append(trace_tables.suspects_table(near))
    return blocks


def _diagnosis(mapped: MappedWindows) -> tuple[Block, ...]:
    chart = showing(trace_figures.map_drawing(mapped), "jlab-fig-4a", "poster-diagnosis")
    types = showing(trace_tables.job_types_table(mapped.points), "jlab-table-1", "poster-data")
    if mapped.bad_io is None:
        return (types, chart, Paragraph(_NO_BAD_IO))
    diagnosis = trace_figures.diagnosis_drawing(mapped.points, near=mapped.bad_io.radius, high=mapped.bad_io.high_iowait)
    return (
        types,
        chart,
        showing(diagnosis, "jlab-fig-4b"),
        trace_tables.suspects_table(near_bad_io(mapped.points, mapped.bad_io)),
    )


def _sampling(traces: Sequence[Trace], progress: Progress, subsets: int) -> Sequence[Block]:
    study = study_sampling(traces, subsets=subsets, progress=lambda _share, text: progress(f"sampling: {text}"))
    answer = sampling_answer(study)
    spectra, components, silhouettes = trace_figures.sampling_drawings(study)
    drawings = showing(components, "jlab-fig-1a"), showing(silhouettes, "jlab-fig-1b", "poster-sampling")
    tables = trace_tables.spectra_table(answer), trace_tables.intervals_table(answer)
    return [Paragraph(answer.advice), spectra, *drawings, *tables]


def _guarded(title: str, intro: str, build: Callable[[], Sequence[Block]], items: Sequence[str]) -> Section:
    try:
        return Section(title, intro, tuple(build()))
    except StormpetrelError as error:
        text = f"These traces cannot tell: {error.what}"
        return Section(title, intro, (Paragraph(text),), dict.fromkeys(items, text))
