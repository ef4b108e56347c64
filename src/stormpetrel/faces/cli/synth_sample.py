"""`stormpetrel synth sample`: new jobs out of a generator, as a file, as a site, or on standard output; in bounded memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.faces.cli.job_input import parse_day
from stormpetrel.faces.cli.workload_input import Progress, Seed, bar_shown

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.simulate.replay import Machine
    from stormpetrel.synth.contract import Wanted, WorkloadGenerator

SITE: Final = "site"
FOLDER: Final = "folder"  # plain files, for others
FOLDERS: Final = (SITE, FOLDER)
_HOURS: Final = 4.0  # as in simulate/workload_traces.py, which takes long to import
_BESIDE: Final = ("traces", "events")
_MANY: Final = 10_000  # jobs from which on their rate says something


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
            help="swf, sacct, csv, parquet or site, where the name does not say it; folder: plain files, to share.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", help="First day (2027-01-01); that of the log if left out.", show_default=False)
    ] = None,
    users: Annotated[float, typer.Option("--users", help="How many times as many users.")] = 1.0,
    gpu_jobs: Annotated[float, typer.Option("--gpu-jobs", help="How many times as large a share of jobs with a GPU.")] = 1.0,
    group: Annotated[
        str | None, typer.Option("--group", help="Only this group of users (`synth fit` names them).", show_default=False)
    ] = None,
    years_on: Annotated[float, typer.Option("--years-on", help="So many years later, at the growth of the log.")] = 0.0,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Also start and wait, from a scheduler (first come, first served; EASY backfill).")
    ] = False,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, help="Cores of its machine; as many as suit if left out.", show_default=False)
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs of its machine.", show_default=False)] = None,
    beside: Annotated[
        str | None,
        typer.Option("--with", help="In DIR/ also the CPU traces and events of these jobs: traces,events.", show_default=False),
    ] = None,
    trace_hours: Annotated[float, typer.Option("--trace-hours", help="Hours of the traces, up to the end.")] = _HOURS,
    trace_nodes: Annotated[
        int | None, typer.Option("--trace-nodes", min=1, help="Nodes of the traces; at most 4 if left out.", show_default=False)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make new jobs like those that a model has learnt from; user, group and account names are new."""
    from stormpetrel.synth.contract import Wanted

    chosen: Context = context.obj
    kind = format_of(target, form)
    if target is None and kind != "csv":
        raise UsageError(f"Only CSV is printed, not {kind}.", hint="Add -o FILE.")
    if as_json and target is None:
        raise UsageError("With --json the jobs need a file of their own.", hint="Add -o FILE.")
    if (cores or gpus) and not (schedule or kind in FOLDERS):
        raise UsageError("--cores and --gpus are the machine of a scheduler.", hint="Add --schedule.")
    extras = _alongside(beside, kind)
    wanted = Wanted(
        jobs=jobs, days=days, seed=seed, start=parse_day(start, "--start") if start else None,
        users=users, gpu_jobs=gpu_jobs, group=group, later_years=years_on,
    )  # fmt: skip
    generator = _generator(chosen, model)
    made = Made()
    began = time.perf_counter()
    with bar_shown(quiet=as_json or target is None) as progress:
        frames = made.counted(generator.batches(wanted), wanted, progress)
        if target is not None and kind in FOLDERS:
            added = _write_folder(
                frames,
                Path(target),
                kind,
                _With(extras, trace_hours, trace_nodes, seed),
                cores,
                gpus,
                lambda words: progress(1.0, words),
            )
        else:
            added = _write(frames, target, kind, schedule=schedule, cores=cores, gpus=gpus)
    if target is None:
        return
    told = made.as_dict(time.perf_counter() - began) | {"output": target, "format": kind, "seed": seed} | added
    if as_json:
        print_json(told)
        return
    _show(told)


@dataclass(slots=True)
class Made:
    """What has been made so far, counted on its way: the frames are never together in memory."""

    jobs: int = 0
    core_s: float = 0.0
    users: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None

    def counted(self, frames: Iterator[pl.DataFrame], wanted: Wanted, progress: Progress) -> Iterator[pl.DataFrame]:
        """The same frames; what goes by is counted, and told."""
        for frame in frames:
            self._count(frame)
            progress(self._share(wanted), f"{self.jobs:,} jobs")
            yield frame

    def _count(self, frame: pl.DataFrame) -> None:
        if not frame.height:
            return
        self.jobs += frame.height
        self.first = self.first or frame["submit_time"][0]
        self.last = frame["submit_time"][-1]
        if "user" in frame.columns:
            self.users.update(frame["user"].drop_nulls().unique().to_list())
        if {"cores", "runtime_s"} <= set(frame.columns):
            self.core_s += float((frame["cores"] * frame["runtime_s"]).sum() or 0.0)

    def _share(self, wanted: Wanted) -> float:
        if wanted.jobs:
            return self.jobs / wanted.jobs
        if wanted.days and self.first and self.last:
            return min(1.0, (self.last - self.first).total_seconds() / 86_400 / wanted.days)
        return 0.0

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """As JSON."""
        return {
            "jobs": self.jobs,
            "users": len(self.users),
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
            "core_hours": round(self.core_s / 3600, 1),
            "seconds": round(seconds, 2),
        }


def format_of(target: str | None, form: str | None) -> str:
    """The format to write: the one that was named, or the one that the name of the file says; `site` for a folder."""
    from stormpetrel.simulate.workload_files import format_of as file_format

    if form == FOLDER and target is not None:
        return FOLDER
    if form == SITE or (form is None and target is not None and (target.endswith("/") or Path(target).is_dir())):
        return SITE
    return file_format(Path(target or "jobs.csv"), form)


def _generator(chosen: Context, model: Path | None) -> WorkloadGenerator:
    if model is not None:
        from stormpetrel.synth.choose import load_generator

        return load_generator(model)
    from stormpetrel.lifecycle.workload_models import load_site_generator

    with chosen.open_site() as site:
        return load_site_generator(site).generator


@dataclass(frozen=True, slots=True)
class _With:
    """What is made beside the jobs of a folder."""

    what: frozenset[str]
    hours: float
    nodes: int | None
    seed: int


def _alongside(asked: str | None, kind: str) -> frozenset[str]:
    """What --with names, checked."""
    words = [word.strip() for word in (asked or "").split(",") if word.strip()]
    for word in words:
        if word not in _BESIDE:
            raise UsageError(
                f"--with {plain(word)[:40]} is not known.", hint=f"Known: {', '.join(_BESIDE)}; with a comma between them."
            )
    if words and kind not in FOLDERS:
        raise UsageError("Traces and events lie beside the jobs in a folder.", hint="Name one: -o DIR/")
    return frozenset(words)


def _write_folder(
    frames: Iterator[pl.DataFrame],
    target: Path,
    kind: str,
    beside: _With,
    cores: int | None,
    gpus: int | None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """A site for `stormpetrel demo`, or plain files; what lies beside the jobs."""
    from stormpetrel.simulate.workload_folder import Alongside, record_whole_site, write_plain_folder

    named, frames = _machine(frames, cores, gpus) if cores or gpus else (None, frames)
    wanted = Alongside(beside.what, beside.hours, beside.nodes, beside.seed)
    write = write_plain_folder if kind == FOLDER else record_whole_site
    return write(target, frames, wanted, machine=named, progress=progress).counts


def _write(
    frames: Iterator[pl.DataFrame], target: str | None, kind: str, *, schedule: bool, cores: int | None, gpus: int | None
) -> dict[str, Any]:
    """Write or print the jobs; what the scheduler made of them, where there is one."""
    waits = None
    if schedule:
        from stormpetrel.simulate.replay import replayed

        machine, frames = _machine(frames, cores, gpus)
        waits = Waits(machine)
        frames = waits.counted(replayed(frames, machine))
    if target is None:
        _print_csv(frames, sys.stdout.write)
    else:
        from stormpetrel.simulate.workload_files import write_workload

        write_workload(frames, Path(target), format_name=kind)
    return {"schedule": waits.as_dict()} if waits else {}


@dataclass(slots=True)
class Waits:
    """What a scheduler made of the jobs, counted on their way."""

    machine: Machine
    jobs: int = 0
    wait_s: float = 0.0
    too_large: int = 0

    def counted(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The same frames."""
        for frame in frames:
            self.jobs += frame.height
            self.wait_s += float(frame["wait_s"].sum() or 0.0)
            if "cores" in frame.columns:
                self.too_large += int((frame["cores"] > self.machine.cores).sum() or 0)
            yield frame

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        mean = round(self.wait_s / self.jobs, 1) if self.jobs else None
        return {"cores": self.machine.cores, "gpus": self.machine.gpus, "mean_wait_s": mean, "too_large": self.too_large}


def _machine(frames: Iterator[pl.DataFrame], cores: int | None, gpus: int | None) -> tuple[Machine, Iterator[pl.DataFrame]]:
    """The machine that was asked for, or that suits the first of the jobs; and all of the frames."""
    from stormpetrel.simulate.replay import Machine, sized

    if cores is not None and gpus is not None:
        return Machine(cores, gpus), frames
    suits, frames = sized(frames)
    return Machine(cores or suits.cores, suits.gpus if gpus is None else gpus), frames


def _print_csv(frames: Iterator[pl.DataFrame], write: Callable[[str], Any]) -> None:
    from stormpetrel.records.spreadsheet import without_formulas

    for number, frame in enumerate(frames):
        write(without_formulas(frame).write_csv(include_header=number == 0, datetime_format="%Y-%m-%dT%H:%M:%S%.fZ"))


def _show(told: dict[str, Any]) -> None:
    out = console()
    users = f" of {told['users']:,} user{'s' if told['users'] > 1 else ''}" if told["users"] else ""
    span = f", {told['first'][:10]} to {told['last'][:10]}" if told["first"] else ""
    work = f", {told['core_hours']:,.0f} core-hours" if told["core_hours"] >= 1 else ""
    rate = f" ({told['jobs'] / told['seconds']:,.0f} jobs a second)" if told["jobs"] >= _MANY and told["seconds"] else ""
    out.print(f"{plain(told['output'])}: {told['jobs']:,} jobs{users}{span}{work}{rate}")
    if plan := told.get("schedule"):
        gpus = f" and {plan['gpus']:,} GPUs" if plan["gpus"] else ""
        out.print(f"on {plan['cores']:,} cores{gpus} they wait {(plan['mean_wait_s'] or 0) / 60:,.0f} minutes on average")
    if plan and plan["too_large"]:
        out.print(f"note: {plan['too_large']:,} jobs are larger than this machine; each was given all of it. See --cores.")
    so_far = " up to where its clock stands" if told["format"] == SITE else ""
    if traces := told.get("traces"):
        nodes = f"{traces['nodes']} node{'s' if traces['nodes'] > 1 else ''}"
        out.print(
            f"traces: {traces['hours']:g} hours of {traces['threads']:,} threads on {nodes}, with {traces['jobs']:,} of the jobs"
        )
    if events := told.get("events"):
        out.print(
            f"events: {sum(events.values()):,}{so_far}: {', '.join(f'{number:,} {kind}' for kind, number in events.items())}"
        )
    if told["format"] == SITE:
        out.print(f"Next: stormpetrel demo {plain(told['output'])}")
