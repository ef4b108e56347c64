"""The drawings about traces, for the report and for `--plot`.

Answers about traces and the frames next to them -> Drawing: a figure, its height and a sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.faces.report.blocks import Drawing
from stormpetrel.faces.report.trace_tables import KIND_LABELS
from stormpetrel.figures import trace_models, trace_sampling
from stormpetrel.records.traces import BAD_IO, MODES, NP

if TYPE_CHECKING:
    from stormpetrel.answers.studies.trace_study import MappedWindows, ReconstructedWindows
    from stormpetrel.traces.evaluation import TraceEvaluation
    from stormpetrel.traces.sampling import SamplingStudy

_ROW: Final = 110  # pixels of one thread's trace


def error_drawing(evaluation: TraceEvaluation) -> Drawing:
    """Fig. 3: the error of each job type."""
    errors = {
        KIND_LABELS[kind]: {job_type: spread.sample for job_type, spread in figures.by_job_type.items()}
        for kind, figures in evaluation.models.items()
    }
    return Drawing(trace_models.error_by_job_type(errors), "Bad IO was not among what the models learnt from.", 480)


def reconstruction_drawings(windows: ReconstructedWindows) -> tuple[Drawing, ...]:
    """Fig. 2: one window of each job type as it was, and as the first model of each architecture sees it."""
    names = [job_type or trace_models.UNKNOWN_LABEL for job_type in windows.job_types]
    text, height = "The window of each job type whose error is the median of its type.", 80 + _ROW * len(names)
    drawings: list[Drawing] = []
    for mode in ("user", "iowait"):
        column = MODES.index(mode)
        if not names or windows.original[:, :, column].max() < 0.02:
            continue  # a straight line at zero tells nothing
        originals = dict(zip(names, windows.original[:, :, column], strict=True))
        by_model = {
            KIND_LABELS[kind]: dict(zip(names, rates[:, :, column], strict=True))
            for kind, rates in windows.by_architecture.items()
        }
        figure = trace_models.reconstructions(originals, by_model, step_s=windows.step_s, mode=mode)
        drawings.append(Drawing(figure, text, height, () if drawings else ("jlab-fig-2", "poster-features")))
    return tuple(drawings)


def map_drawing(mapped: MappedWindows) -> Drawing:
    """Fig. 4a: where windows lie."""
    title, axes = f"Test windows on the map of the {KIND_LABELS[mapped.architecture]}", trace_models.map_axes(mapped.explained)
    figure = trace_models.trace_map(mapped.points, title=title, axes=axes)
    return Drawing(figure, "The map is fitted on training windows, none of which is Bad IO.", 520)


def diagnosis_drawing(points: pl.DataFrame, *, near: float, high: float, job_types: tuple[str, ...] = (NP,)) -> Drawing:
    """Fig. 4b: largest iowait against the distance to Bad IO, of NP windows; of all but Bad IO where none is NP."""
    shown = points.filter(pl.col("job_type").is_in(job_types))
    shown = shown if shown.height else points.filter(pl.col("job_type") != BAD_IO)
    title = f"{', '.join(job_types)} windows near Bad IO" if shown["job_type"].is_in(job_types).all() else "Windows near Bad IO"
    figure = trace_models.iowait_diagnosis(shown, title=title, near=near, high=high)
    text = "Upper left: nearer than three quarters of the normal windows, with half the iowait of Bad IO or more."
    return Drawing(figure, text, 460)


def sampling_drawings(study: SamplingStudy) -> tuple[Drawing, ...]:
    """The spectra, and Figs. 1a and 1b: windows on their two components, and what slower sampling costs."""
    return (
        Drawing(trace_sampling.spectra_figure(study), height=460),
        Drawing(trace_sampling.components_figure(study), height=500),
        Drawing(trace_sampling.silhouette_figure(study), height=400),
    )
