"""`stormpetrel traces sampling`: how often to scrape and how long a window should be; needs no site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, console, plain, print_json
from stormpetrel.faces.cli.trace_input import Minutes, Nodes, Paths, Plot, Seed, Simulated, Threads, progress_shown, read_traces

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.trace_study import SamplingAnswer, Spread
    from stormpetrel.records.traces import Trace
    from stormpetrel.traces.sampling import SamplingStudy

Window = Annotated[
    float | None,
    typer.Option("--window", min=2.0, help="Length of a window in seconds; from the spectra if left out.", show_default=False),
]


def sampling(
    paths: Paths = None,
    simulated: Simulated = False,
    nodes: Nodes = 5,
    threads: Threads = 32,
    minutes: Minutes = 30.0,
    window: Window = None,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Say how often to scrape and how long windows should be, from the rhythm of the job types and how well they separate."""
    from stormpetrel.answers.schemas.trace_study import SamplingRun
    from stormpetrel.answers.studies.trace_study import sampling_answer
    from stormpetrel.traces.sampling import study_sampling

    with progress_shown(quiet=as_json) as progress:
        traces = _traces(paths, simulated, nodes, threads, minutes, seed)
        study = study_sampling(traces, window_s=window, seed=seed, progress=progress)
    if plot:
        _draw(plot, study)
    answer = sampling_answer(study)
    if as_json:
        run = SamplingRun(**dict(answer), campaigns=[trace.name for trace in traces], simulated=simulated, seed=seed)
        print_json(run)
        return
    _show(answer)
    if plot:
        console().print(f"\nFigures: {plain(str(plot))}")


def _traces(paths: list[Path] | None, simulated: bool, nodes: int, threads: int, minutes: float, seed: int) -> list[Trace]:
    if not paths and not simulated:
        raise UsageError(
            "A site keeps windows, not whole traces, so that rhythms longer than a window cannot be seen in it.",
            hint="Name campaign files or a folder of them, or say --simulated.",
        )
    return read_traces(paths, simulated=simulated, nodes=nodes, threads=threads, minutes=minutes, seed=seed)


def _draw(path: Path, study: SamplingStudy) -> None:
    from stormpetrel.figures.page import write_figures
    from stormpetrel.figures.trace_sampling import components_figure, silhouette_figure, spectra_figure

    write_figures(path, "Sampling of CPU traces", [spectra_figure(study), components_figure(study), silhouette_figure(study)])


def _show(study: SamplingAnswer) -> None:
    from rich.table import Table

    out = console()
    rhythms = Table("job type", "lowest dominant frequency", "period", "pieces", title="Rhythm of each job type")
    for job_type, spectrum in study.spectra.items():
        hertz = spectrum.dominant_hz
        words = ("none stands out", "") if hertz is None else (f"{hertz:.4f} Hz", f"{1 / hertz:.0f} s")
        rhythms.add_row(plain(job_type), *words, f"{spectrum.stretches:,}")
    out.print(rhythms)
    intervals = Table("every", "values", "silhouette", "of means", "movement kept", title=f"{study.windows:,} windows")
    for score in study.intervals:
        intervals.add_row(
            f"{score.interval_s:g} s",
            str(score.samples),
            _spread(score.silhouette),
            _spread(score.silhouette_of_means),
            f"{score.movement_kept:.0%}",
        )
    out.print(intervals)
    out.print(
        "silhouette: one value of each interval; of means: the counters' mean over it. Mean ± deviation over random subsets."
    )
    out.print(f"Advice: {study.advice}.")


def _spread(spread: Spread) -> str:
    return f"{spread.mean:.3f} ± {spread.std:.3f}" if spread.n else "–"
