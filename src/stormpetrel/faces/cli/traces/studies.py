"""`stormpetrel traces evaluate` and `sampling`: studies of campaigns; no site needed.

The published Table 2 on one's own campaigns, the exam of the detector on a bench of faults, how often to scrape, how long windows
should be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from stormpetrel.answers.schemas.trace_study import (
    FaultFigures,
    FaultSummary,
    SamplingAnswer,
    SamplingRun,
    Spread,
    TraceStudyAnswer,
    TraceStudyRun,
)
from stormpetrel.answers.studies.trace_study import (
    fault_answer,
    mapped_windows,
    reconstructed_windows,
    sampling_answer,
    study_answer,
)
from stormpetrel.engine import Progress
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Json, Plot, Seed, Workers
from stormpetrel.faces.cli.output import emit, plain, show_table
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.traces.input import (
    Device,
    Epochs,
    Minutes,
    Nodes,
    Paths,
    Simulated,
    Stride,
    Threads,
    WindowSeconds,
    architectures_of,
    autoencoder_settings,
    read_traces,
)
from stormpetrel.faces.report import trace_figures, trace_tables
from stormpetrel.faces.report.blocks import Section
from stormpetrel.faces.report.page import write_page
from stormpetrel.figures.page import write_figures
from stormpetrel.figures.trace_sampling import components_figure, silhouette_figure, spectra_figure
from stormpetrel.records.traces import Trace
from stormpetrel.traces.campaign_splits import Cut, SplitWindows, split_traces
from stormpetrel.traces.detector.detector import Encoder
from stormpetrel.traces.exam.score_file import ScoreFile
from stormpetrel.traces.exam.study import FaultStudy, run_fault_study
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import Fault, load_faults
from stormpetrel.traces.sampling import SamplingStudy, study_sampling
from stormpetrel.traces.shipped import load_shipped
from stormpetrel.traces.study import StudyPlan, TraceStudy, run_study

Keep = Annotated[
    Path | None,
    typer.Option("--keep", help="Store the trained models in this folder, and reuse those in it.", show_default=False),
]

Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--faults",
        help="Your own fault to judge the detector on, in addition to the built-in ones; importing the module executes it.",
        metavar="MODULE:NAME",
        show_default=False,
    ),
]
Scores = Annotated[
    Path | None, typer.Option("--scores", help="Write every score of every window to this CSV file.", show_default=False)
]
Bench = Annotated[bool, typer.Option("--bench/--no-bench", help="Judge the detector on the built-in faults.")]
FaultCells = dict[str, dict[str, dict[str, FaultFigures]]]


def evaluate(
    context: typer.Context,
    paths: Paths = None,
    simulated: Simulated = False,
    nodes: Nodes = 5,
    threads: Threads = 32,
    minutes: Minutes = 30.0,
    window_s: WindowSeconds = 100.0,
    stride_s: Stride = None,
    models: Annotated[
        int,
        typer.Option("--models", min=0, help="Models of each architecture, with different seeds; 0 judges the detector alone."),
    ] = 10,
    architectures: Annotated[
        str, typer.Option("--architectures", help="Which, separated by commas.")
    ] = "vanilla,node_gnn,job_gnn,fast",
    faults: Faults = None,
    bench: Bench = True,
    scores: Scores = None,
    keep: Keep = None,
    device: Device = "auto",
    epochs: Epochs = None,
    seed: Seed = 0,
    workers: Workers = None,
    engine: EngineName = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Train ensembles and the detector on campaigns and judge them: errors, separability, speed, injected faults."""
    kinds = architectures_of(architectures) if models else ()
    chosen = load_faults(faults or [], BENCH if bench else ())
    with share_spinner(quiet=as_json) as progress:
        progress(0.0, "simulating campaigns" if simulated else "reading campaigns")
        traces = read_traces(paths, simulated=simulated, nodes=nodes, threads=threads, minutes=minutes, seed=seed)
        plan = StudyPlan(kinds, models, device, autoencoder_settings(epochs, seed), engine_of(context, engine, workers))
        split = split_traces(traces, Cut(window_s, stride_s))
        exam, no_exam = _exam(split, chosen, scores, seed, progress, required=bool(faults or scores)) if chosen else (None, "")
        with _folder(keep) as folder:
            study = run_study(split, plan, Path(folder), progress=progress)
            if plot and kinds:
                progress(1.0, "drawing")
                _draw_study(plot, study)
    answer = study_answer(study)
    if exam is not None:
        answer.windows_per_second_per_core["detector"] = exam.windows_per_second
    if no_exam:
        answer.why["detector"] = no_exam
    cells, summary = ({}, None) if exam is None else fault_answer(exam)
    campaigns = {trace.name: None if trace.split is None else str(trace.split) for trace in traces}
    run = TraceStudyRun(
        **dict(answer),
        campaigns=campaigns,
        simulated=simulated,
        models=models,
        seed=seed,
        faults=cells,
        fault_summary=summary,
    )

    def show(out: Console) -> None:
        if summary is not None:
            _print_exam(out, cells, summary, scores)
        elif no_exam:
            out.print(plain(f"The detector is not judged on faults. {no_exam}"))
        if kinds:
            _print_study(out, answer, plan, keep)

    emit(run, show, as_json=as_json, plot=plot if kinds else None)


def _exam(
    split: SplitWindows, faults: Sequence[Fault], scores: Path | None, seed: int, progress: Progress, *, required: bool
) -> tuple[FaultStudy | None, str]:
    """Return the exam; why there is none where there are too few windows for it and no option requires it."""
    encoder = _shipped_encoder()
    if scores is None:
        try:
            return run_fault_study(split, faults, seed=seed, encoder=encoder, progress=progress), ""
        except ModelError as error:
            if required:
                raise
            return None, str(error)
    with ScoreFile(scores) as file:
        return run_fault_study(split, faults, seed=seed, sink=file.write, encoder=encoder, progress=progress), ""


def _shipped_encoder() -> Encoder | None:
    """The shipped encoder, of whose embeddings the detector learns how rare they are; None without ONNX Runtime."""
    return load_shipped(threads=1).scorer.embed if find_spec("onnxruntime") is not None else None


def _print_exam(out: Console, cells: FaultCells, summary: FaultSummary, scores: Path | None) -> None:
    for table in (trace_tables.faults_table(cells, summary), trace_tables.exam_table(summary)):
        show_table(out, table)
    for sentence in trace_tables.exam_sentences(summary):
        out.print(sentence)
    if scores:
        out.print(f"{plain(str(scores))}: every score of every window, to be judged by others")


def _folder(keep: Path | None) -> AbstractContextManager[str]:
    return nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="stormpetrel-traces-")


def _draw_study(path: Path, study: TraceStudy) -> None:
    mapped = mapped_windows(study)
    drawings = [
        trace_figures.error_drawing(study.evaluation),
        *trace_figures.reconstruction_drawings(reconstructed_windows(study)),
        trace_figures.map_drawing(mapped),
    ]
    if (bad_io := mapped.bad_io) is not None:
        drawings.append(trace_figures.diagnosis_drawing(mapped.points, near=bad_io.radius, high=bad_io.high_iowait))
    write_page(path, "Trace models", [Section("Trace models", "", tuple(drawings))])


def _print_study(out: Console, study: TraceStudyAnswer, plan: StudyPlan, keep: Path | None) -> None:
    for table in (
        trace_tables.table_two(study),
        trace_tables.iowait_rule_table(study),
        trace_tables.errors_table(study),
        trace_tables.runs_table(study),
        trace_tables.work_table(study),
    ):
        show_table(out, table)
    if keep:
        out.print(f"The models are in {plain(str(keep))}. All figures on one page: stormpetrel report --campaigns PATH "
                  f"--trace-models {plain(str(keep))}")  # fmt: skip
    else:
        out.print(f"The {plan.models} models of each kind are gone; --keep DIR keeps them for the next time.")


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
    """Recommend a scrape interval and a window length, from the spectra of job types and their separation."""
    with share_spinner(quiet=as_json) as progress:
        traces = _traces(paths, simulated, nodes, threads, minutes, seed)
        study = study_sampling(traces, window_s=window, seed=seed, progress=progress)
    answer = sampling_answer(study)
    run = SamplingRun(**dict(answer), campaigns=[trace.name for trace in traces], simulated=simulated, seed=seed)
    emit(
        run,
        lambda out: _print_sampling(out, answer),
        as_json=as_json,
        plot=plot,
        draw=lambda path: _draw_sampling(path, study),
    )


def _traces(paths: list[Path] | None, simulated: bool, nodes: int, threads: int, minutes: float, seed: int) -> list[Trace]:
    if not paths and not simulated:
        raise UsageError(
            "A site keeps windows, not whole traces, so that rhythms longer than a window cannot be seen in it.",
            hint="Name campaign files or a folder of them, or add --simulated.",
        )
    return read_traces(paths, simulated=simulated, nodes=nodes, threads=threads, minutes=minutes, seed=seed)


def _draw_sampling(path: Path, study: SamplingStudy) -> None:
    write_figures(path, "Sampling of CPU traces", [spectra_figure(study), components_figure(study), silhouette_figure(study)])


def _print_sampling(out: Console, study: SamplingAnswer) -> None:
    rhythms = Table("job type", "lowest dominant frequency", "period", "pieces", title="Rhythm of each job type")
    for job_type, spectrum in study.spectra.items():
        hertz = spectrum.dominant_hz
        rhythm = ("none stands out", "") if hertz is None else (f"{hertz:.4f} Hz", f"{1 / hertz:.0f} s")
        rhythms.add_row(plain(job_type), *rhythm, f"{spectrum.stretches:,}")
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
