"""`stormpetrel synth sample`: new jobs out of a generator, as a file, as a site, or on standard output; in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import polars as pl
import typer
from rich.console import Console

from stormpetrel.answers.schemas.workload import WorkloadSample
from stormpetrel.answers.workload.recorded_site import ALONGSIDE, Alongside, record_whole_site, write_plain_folder
from stormpetrel.answers.workload.sample import SamplePlan, sized_machine, write_jobs
from stormpetrel.answers.workload.shards import write_shards
from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Json, Seed, Workers
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_bar
from stormpetrel.faces.cli.site import open_site, parse_day
from stormpetrel.lifecycle.workload_models import load_site_generator
from stormpetrel.records.spreadsheet import without_formulas
from stormpetrel.synth.choose import load_generator
from stormpetrel.synth.contract import Wanted, WorkloadGenerator
from stormpetrel.synth.writers.files import format_of as file_format
from stormpetrel.synth.writers.files import write_workload
from stormpetrel.synth.writers.traces import HOURS

Frames = Iterator[pl.DataFrame]
Write = Callable[[Frames], Mapping[str, Any]]

SITE: Final = "site"
FOLDER: Final = "folder"  # plain files, for others
FOLDERS: Final = (SITE, FOLDER)
_MANY: Final = 10_000  # jobs from which on their rate is worth printing


def sample(
    context: typer.Context,
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a model; the site's generator if left out.", show_default=False)
    ] = None,
    jobs: Annotated[int | None, typer.Option("-n", "--jobs", min=0, help="How many jobs.", show_default=False)] = None,
    days: Annotated[
        float | None,
        typer.Option("--days", help="How many days instead; as many as the log had if left out.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write: .swf, .sacct, .csv (also .gz) or .parquet, or DIR/ for a site; CSV is printed if left out.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="swf, sacct, csv, parquet or site, where the name does not show it; folder: plain files, to share.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", help="First day (2027-01-01); that of the log if left out.", show_default=False)
    ] = None,
    users: Annotated[float, typer.Option("--users", help="Multiple of the log's users.")] = 1.0,
    gpu_jobs: Annotated[float, typer.Option("--gpu-jobs", help="Multiple of the log's share of GPU jobs.")] = 1.0,
    group: Annotated[
        str | None, typer.Option("--group", help="Only this group of users (`synth fit` lists them).", show_default=False)
    ] = None,
    years_on: Annotated[float, typer.Option("--years-on", help="This many years later, at the growth of the log.")] = 0.0,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Also start and wait, from a scheduler (first come, first served; EASY backfill).")
    ] = False,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, help="Cores of its machine; as many as suit if left out.", show_default=False)
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs of its machine.", show_default=False)] = None,
    extras: Annotated[
        str | None,
        typer.Option("--with", help="In DIR/ also the CPU traces and events of these jobs: traces,events.", show_default=False),
    ] = None,
    trace_hours: Annotated[float, typer.Option("--trace-hours", help="Hours of the traces, up to the end.")] = HOURS,
    trace_nodes: Annotated[
        int | None, typer.Option("--trace-nodes", min=1, help="Nodes of the traces; at most 4 if left out.", show_default=False)
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option(
            "--parts",
            min=1,
            max=100_000,
            help="So many Parquet files in -o DIR, each a span of time that a worker makes; needs --days and --start.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Generate new jobs like those a model was fitted on; user, group and account names are new."""
    kind = format_of(target, form) if parts is None else "parquet"
    if target is None and kind != "csv":
        raise UsageError(f"Only CSV is printed, not {kind}.", hint="Add -o FILE.")
    if as_json and target is None:
        raise UsageError("With --json the jobs need a file of their own.", hint="Add -o FILE.")
    if (cores or gpus) and not (schedule or kind in FOLDERS):
        raise UsageError("--cores and --gpus are the machine of a scheduler.", hint="Add --schedule.")
    extra_kinds = _parse_extras(extras, kind)
    wanted = Wanted(
        jobs=jobs, days=days, seed=seed, start=parse_day(start, "--start") if start else None,
        users=users, gpu_jobs=gpu_jobs, group=group, later_years=years_on,
    )  # fmt: skip
    generator = _generator(context, model)
    if parts is not None:
        _refuse_with_parts(target, form, schedule=schedule, extras=extra_kinds)
        _write_parts(generator, wanted, parts, Path(target or ""), engine_of(context, engine, workers), as_json=as_json)
        return
    plan = SamplePlan(target or "", kind, schedule and kind not in FOLDERS, cores, gpus)
    with share_bar(quiet=as_json or target is None) as progress:
        write: Write = _print_frames if target is None else _file_writer(Path(target), kind)
        if target is not None and kind in FOLDERS:
            write = _folder_writer(
                Path(target), plan, Alongside(extra_kinds, trace_hours, trace_nodes, seed), lambda step: progress(1.0, step)
            )
        receipt = write_jobs(generator.batches(wanted), wanted, plan, write, progress)
    if target is not None:
        next_step = f"stormpetrel demo {plain(receipt.output)}" if receipt.format == SITE else ""
        emit(receipt.model_dump(mode="json"), lambda out: _print_sample(out, receipt), as_json=as_json, next_step=next_step)


def format_of(target: str | None, form: str | None) -> str:
    """Return the format to write: the one that was named, or that of the file's name; `site` for a folder."""
    if form == FOLDER and target is not None:
        return FOLDER
    if form == SITE or (form is None and target is not None and (target.endswith("/") or Path(target).is_dir())):
        return SITE
    return file_format(Path(target or "jobs.csv"), form)


def _generator(context: typer.Context, model: Path | None) -> WorkloadGenerator:
    if model is not None:
        return load_generator(model)
    with open_site(context) as site:
        return load_site_generator(site).generator


def _parse_extras(text: str | None, kind: str) -> frozenset[str]:
    """Return what --with names, checked."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in ALONGSIDE:
            raise UsageError(
                f"--with {plain(name)[:40]} is not known.", hint=f"Known: {', '.join(ALONGSIDE)}; with a comma between them."
            )
    if names and kind not in FOLDERS:
        raise UsageError("Traces and events are written with the jobs in a folder.", hint="Name one: -o DIR/")
    return frozenset(names)


def _folder_writer(target: Path, plan: SamplePlan, extras: Alongside, progress: Callable[[str], None]) -> Write:
    """Return what writes a site for `stormpetrel demo`, or plain files, and returns the counts of traces and events."""

    def write(frames: Frames) -> Mapping[str, Any]:
        machine, frames = sized_machine(frames, plan.cores, plan.gpus) if plan.cores or plan.gpus else (None, frames)
        write_site = write_plain_folder if plan.format == FOLDER else record_whole_site
        return write_site(target, frames, extras, machine=machine, progress=progress).counts

    return write


def _file_writer(target: Path, kind: str) -> Write:
    def write(frames: Frames) -> Mapping[str, Any]:
        write_workload(frames, target, format_name=kind)
        return {}

    return write


def _refuse_with_parts(target: str | None, form: str | None, *, schedule: bool, extras: frozenset[str]) -> None:
    if target is None or form not in (None, "parquet") or schedule or extras:
        raise UsageError("--parts writes Parquet files into a folder, without --schedule and --with.", hint="Name it: -o DIR")


def _write_parts(
    generator: WorkloadGenerator, wanted: Wanted, parts: int, folder: Path, engine: Engine, *, as_json: bool
) -> None:
    with share_bar(quiet=as_json) as progress:
        receipt = write_shards(generator, wanted, parts, folder, engine, progress=progress)
    emit(receipt.model_dump(mode="json"), lambda out: _print_sample(out, receipt), as_json=as_json)


def _print_frames(frames: Frames) -> Mapping[str, Any]:
    _print_csv(frames, sys.stdout.write)
    return {}


def _print_csv(frames: Frames, write: Callable[[str], Any]) -> None:
    for number, frame in enumerate(frames):
        write(without_formulas(frame).write_csv(include_header=number == 0, datetime_format="%Y-%m-%dT%H:%M:%S%.fZ"))


def _print_sample(out: Console, sample: WorkloadSample) -> None:
    users = f" of {sample.users:,} user{'s' if sample.users > 1 else ''}" if sample.users else ""
    span = f", {sample.first:%Y-%m-%d} to {sample.last:%Y-%m-%d}" if sample.first and sample.last else ""
    work = f", {sample.core_hours:,.0f} core-hours" if sample.core_hours >= 1 else ""
    rate = f" ({sample.jobs / sample.seconds:,.0f} jobs a second)" if sample.jobs >= _MANY and sample.seconds else ""
    out.print(f"{plain(sample.output)}: {sample.jobs:,} jobs{users}{span}{work}{rate}")
    if plan := sample.schedule:
        gpus = f" and {plan.gpus:,} GPUs" if plan.gpus else ""
        out.print(f"on {plan.cores:,} cores{gpus} they wait {(plan.mean_wait_s or 0) / 60:,.0f} minutes on average")
    if plan and plan.too_large:
        out.print(f"note: {plan.too_large:,} jobs are larger than this machine; each gets all of it. See --cores.")
    so_far = " up to where its clock stands" if sample.format == SITE else ""
    if traces := sample.traces:
        nodes = f"{traces.nodes} node{'s' if traces.nodes > 1 else ''}"
        out.print(f"traces: {traces.hours:g} hours of {traces.threads:,} threads on {nodes}, with {traces.jobs:,} of the jobs")
    if events := sample.events:
        counts = ", ".join(f"{number:,} {kind}" for kind, number in events.items())
        out.print(f"events: {sum(events.values()):,}{so_far}: {counts}")
