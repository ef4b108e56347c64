"""The drawings about traces, for the report and for `--plot`.

TraceStudy, frames of scores -> Drawing: a figure, its height and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.faces.report.blocks import Drawing
from stormpetrel.faces.report.trace_tables import KIND_WORDS
from stormpetrel.figures import trace_models, trace_sampling
from stormpetrel.records.traces import BAD_IO, MIXED, MODES, NP
from stormpetrel.records.window_frames import frame_of
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.traces.architecture import Architecture, Scorer
from stormpetrel.traces.diagnosis import Diagnosis, Trouble, diagnose, known_bad_io, place
from stormpetrel.traces.separability import PcaMap

if TYPE_CHECKING:
    from stormpetrel.traces.sampling import SamplingStudy
    from stormpetrel.traces.study import TraceStudy

_ROW: Final = 110  # pixels of one thread's trace


@dataclass(frozen=True, slots=True, eq=False)
class MappedWindows:
    """Test windows on the map of one model: columns of trace scores, the axes in words, and where Bad IO lies."""

    points: pl.DataFrame
    axes: tuple[str, str]
    bad_io: Trouble | None
    model: str


def mapped_windows(study: TraceStudy) -> MappedWindows:
    """The test windows as the first model of the first architecture sees them; the map is fitted on training windows only."""
    kind, scorer = _first(study)
    chart = PcaMap.fit(scorer.embed(study.split.train.of_normal()))
    bad_io = known_bad_io(scorer, join_windows([study.split.train, study.split.validation]))
    found = place(scorer, chart, bad_io, study.split.test)
    distance = pl.lit(None, dtype=pl.Float64) if found.bad_io_distance is None else pl.Series(found.bad_io_distance)
    points = frame_of(study.split.test, cluster="").select(
        "trace", "node", "cpu", "window_start", "job_id", "job_type",
        x=pl.Series(found.x), y=pl.Series(found.y), score=pl.Series(found.score), max_iowait=pl.Series(found.max_iowait),
        bad_io_distance=distance,
    )  # fmt: skip
    return MappedWindows(points.filter(pl.col("job_type") != MIXED), axes_words(chart), bad_io, KIND_WORDS[kind])


def axes_words(chart: PcaMap) -> tuple[str, str]:
    """The axes of a map with the share of the variance that each explains."""
    first, second = (f"PC {place + 1} ({share:.1%} of the variance)" for place, share in enumerate(chart.explained[:2]))
    return first, second


def diagnosed(points: pl.DataFrame, bad_io: Trouble) -> Diagnosis:
    """The diagnosis of scored windows."""
    return diagnose(
        points["job_id"].to_list(),
        points["job_type"].to_list(),
        points["node"].to_list(),
        points["cpu"].to_list(),
        points["bad_io_distance"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        points["max_iowait"].cast(pl.Float64).to_numpy(),
        bad_io,
    )


def error_drawing(study: TraceStudy) -> Drawing:
    """Fig. 3: the error of each job type."""
    found = study.evaluation.models
    errors = {
        KIND_WORDS[kind]: {job_type: spread.sample for job_type, spread in figures.by_job_type.items()}
        for kind, figures in found.items()
    }
    return Drawing(trace_models.error_by_job_type(errors), "Bad IO was not among what the models learnt from.", 480)


def reconstruction_drawings(study: TraceStudy) -> tuple[Drawing, ...]:
    """Fig. 2: one window of each job type as it was, and as the first model of each architecture sees it."""
    rows = _typical(study)
    if not rows:
        return ()
    beside, places = _with_neighbours(study.split.test, list(rows.values()))
    made = {KIND_WORDS[kind]: models[0].reconstruct(beside)[places] for kind, models in study.scorers.items() if models}
    drawings = []
    for mode in ("user", "iowait"):
        column = MODES.index(mode)
        originals = {name: beside.rates[place, :, column] for name, place in zip(rows, places, strict=True)}
        if max(float(values.max()) for values in originals.values()) < 0.02:
            continue  # a straight line at zero tells nothing
        by_model = {model: dict(zip(rows, found[:, :, column], strict=True)) for model, found in made.items()}
        figure = trace_models.reconstructions(originals, by_model, step_s=study.split.test.step_s, mode=mode)
        drawings.append(
            Drawing(figure, "The window of each job type whose error is the median of its type.", 80 + _ROW * len(rows))
        )
    return tuple(drawings)


def map_drawing(mapped: MappedWindows) -> Drawing:
    """Fig. 4a: where windows lie."""
    figure = trace_models.trace_map(mapped.points, title=f"Test windows on the map of the {mapped.model}", axes=mapped.axes)
    return Drawing(figure, "The map is fitted on training windows, none of which is Bad IO.", 520)


def diagnosis_drawing(points: pl.DataFrame, bad_io: Trouble, *, job_types: tuple[str, ...] = (NP,)) -> Drawing:
    """Fig. 4b: largest iowait against the distance to Bad IO, of NP windows; of all but Bad IO where none is NP."""
    shown = points.filter(pl.col("job_type").is_in(job_types))
    shown = shown if shown.height else points.filter(pl.col("job_type") != BAD_IO)
    title = f"{', '.join(job_types)} windows near Bad IO" if shown["job_type"].is_in(job_types).all() else "Windows near Bad IO"
    figure = trace_models.iowait_diagnosis(shown, title=title, near=bad_io.radius, high=bad_io.high_iowait)
    words = "Upper left: nearer than three quarters of the normal windows, with half the iowait of Bad IO or more."
    return Drawing(figure, words, 460)


def sampling_drawings(study: SamplingStudy) -> tuple[Drawing, ...]:
    """The spectra, and Figs. 1a and 1b: windows on their two components, and what slower sampling costs."""
    return (
        Drawing(trace_sampling.spectra_figure(study), height=460),
        Drawing(trace_sampling.components_figure(study), height=500),
        Drawing(trace_sampling.silhouette_figure(study), height=400),
    )


def _first(study: TraceStudy) -> tuple[Architecture, Scorer]:
    kind = next(kind for kind in Architecture if study.scorers.get(kind))
    return kind, study.scorers[kind][0]


def _typical(study: TraceStudy) -> dict[str, int]:
    """The row of one test window per job type: the one whose error is the median of its type."""
    _, scorer = _first(study)
    scores, types = scorer.score(study.split.test), study.split.test.job_types()
    found = {}
    for job_type in trace_models.in_order(set(types.tolist()) - {MIXED}):
        those = np.flatnonzero(types == job_type)
        found[job_type or trace_models.UNKNOWN_WORDS] = int(those[np.argsort(scores[those], kind="stable")[len(those) // 2]])
    return found


def _with_neighbours(windows: Windows, rows: list[int]) -> tuple[Windows, list[int]]:
    """The moments on the nodes that some windows belong to, whole, and where among them those windows are."""
    graphs = windows.node_graphs()
    kept = np.flatnonzero(np.isin(graphs, graphs[rows]))
    return windows.take(kept), np.searchsorted(kept, rows).tolist()
