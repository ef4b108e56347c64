"""`stormpetrel traces evaluate`: the published study's Table 2 on campaigns of one's own; needs no site."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.faces.cli.context import Json, Workers, console, plain, print_json
from stormpetrel.faces.cli.trace_input import (
    Device,
    Epochs,
    Minutes,
    Nodes,
    Paths,
    Plot,
    Seed,
    Simulated,
    Stride,
    Threads,
    WindowSeconds,
    architectures_of,
    autoencoder_settings,
    progress_shown,
    read_traces,
)

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.trace_study import TraceStudyAnswer
    from stormpetrel.traces.study import StudyPlan, TraceStudy

Keep = Annotated[
    Path | None,
    typer.Option("--keep", help="Keep the trained models in this folder, and use those that it holds.", show_default=False),
]


def evaluate(
    paths: Paths = None,
    simulated: Simulated = False,
    nodes: Nodes = 5,
    threads: Threads = 32,
    minutes: Minutes = 30.0,
    window_s: WindowSeconds = 100.0,
    stride_s: Stride = None,
    models: Annotated[int, typer.Option("--models", min=1, help="Models of each architecture, with different seeds.")] = 10,
    architectures: Annotated[
        str, typer.Option("--architectures", help="Which, separated by commas.")
    ] = "vanilla,node_gnn,job_gnn",
    keep: Keep = None,
    device: Device = "auto",
    epochs: Epochs = None,
    seed: Seed = 0,
    workers: Workers = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Train ensembles on campaigns and judge them: reconstruction error, separability, speed, beside two baselines."""
    kinds = architectures_of(architectures)
    with progress_shown(quiet=as_json) as progress:
        progress(0.0, "simulating campaigns" if simulated else "reading campaigns")
        traces = read_traces(paths, simulated=simulated, nodes=nodes, threads=threads, minutes=minutes, seed=seed)
        from stormpetrel.traces.campaign_splits import Cut, split_traces
        from stormpetrel.traces.study import StudyPlan, run_study

        plan = StudyPlan(kinds, models, device, autoencoder_settings(epochs, seed), workers)
        with _folder(keep) as folder:
            study = run_study(split_traces(traces, Cut(window_s, stride_s)), plan, Path(folder), progress=progress)
            if plot:
                progress(1.0, "drawing")
                _draw(plot, study)
    from stormpetrel.answers.schemas.trace_study import TraceStudyRun
    from stormpetrel.answers.studies.trace_study import study_answer

    answer = study_answer(study)
    if as_json:
        campaigns = {trace.name: None if trace.split is None else str(trace.split) for trace in traces}
        run = TraceStudyRun(**dict(answer), campaigns=campaigns, simulated=simulated, models=models, seed=seed)
        print_json(run)
        return
    _show(answer, plan, keep, plot)


def _folder(keep: Path | None) -> AbstractContextManager[str]:
    return nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="stormpetrel-traces-")


def _draw(path: Path, study: TraceStudy) -> None:
    from stormpetrel.answers.studies.trace_study import mapped_windows, reconstructed_windows
    from stormpetrel.faces.report import trace_figures
    from stormpetrel.faces.report.blocks import Section
    from stormpetrel.faces.report.page import write_page

    mapped = mapped_windows(study)
    drawings = [
        trace_figures.error_drawing(study.evaluation),
        *trace_figures.reconstruction_drawings(reconstructed_windows(study)),
        trace_figures.map_drawing(mapped),
    ]
    if (bad_io := mapped.bad_io) is not None:
        drawings.append(trace_figures.diagnosis_drawing(mapped.points, near=bad_io.radius, high=bad_io.high_iowait))
    write_page(path, "Trace models", [Section("Trace models", "", tuple(drawings))])


def _show(study: TraceStudyAnswer, plan: StudyPlan, keep: Path | None, plot: Path | None) -> None:
    from stormpetrel.faces.cli.tables import show_table
    from stormpetrel.faces.report import trace_tables

    out = console()
    for table in (
        trace_tables.table_two(study),
        trace_tables.iowait_rule_table(study),
        trace_tables.errors_table(study),
        trace_tables.runs_table(study),
        trace_tables.work_table(study),
    ):
        show_table(out, table)
    if plot:
        out.print(f"{plain(str(plot))}: the figures, to be opened in a browser")
    if keep:
        out.print(f"The models are in {plain(str(keep))}. All figures on one page: stormpetrel report --campaigns PATH "
                  f"--trace-models {plain(str(keep))}")  # fmt: skip
    else:
        out.print(f"The {plan.models} models of each kind are gone; --keep DIR keeps them for the next time.")
