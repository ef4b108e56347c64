"""Which workload a command works on: that of job logs or tables named on the command line, or that of the site.

files -> read_workload -> WorkloadInput; NAME | folder | file -> synthetic_of -> Workload.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stormpetrel.errors import NotEnoughJobsError, SourceFormatError, UsageError
from stormpetrel.faces.cli.context import Context, console, plain, progress_bar
from stormpetrel.faces.cli.job_input import parse_day

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.synth.contract import WorkloadGenerator
    from stormpetrel.synth.workload import Workload

Files = Annotated[
    list[str] | None,
    typer.Argument(help="Job logs or tables of jobs; the jobs of the site if none is named.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Format of the files: as for `ingest jobs`, or table (CSV or Parquet with a header); found if left out.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Leave out jobs submitted before this day (2023-01-01).", show_default=False)
]
Skip = Annotated[int, typer.Option("--skip", min=0, help="Leave out the first N jobs of the real log, such as a ramp-up.")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        help="sessions, ctgan, tvae, copulagan, copulagan-sessions, gaussian-copula, rows, or SDV's: sdv-ctgan, sdv-tvae, "
        "sdv-copulagan, sdv-gaussian-copula; private has a guarantee.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed: the same one makes the same jobs.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Epochs of a network; its own number if left out.", show_default=False)
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu or cuda, for a network.", show_default=False)
]  # fmt: skip

TABLE: Final = "table"
_OPTIONS: Final = {
    "epochs": "--epochs",
    "device": "--device",
    "fewest_jobs": "--keep-fewest",
    "epsilon": "--epsilon",
}  # by the setting of a generator
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadInput:
    """A workload, and the job frame that it was made of where there is one (a table of jobs has none)."""

    workload: Workload
    jobs: pl.DataFrame | None = None


def read_workload(
    context: Context,
    files: Sequence[str] | None,
    *,
    format_name: str | None = None,
    fields: str | None = None,
    since: str | None = None,
    skip: int = 0,
    quiet: bool = False,
) -> WorkloadInput:
    """The workload of files, or of the site where no file is named, without its first `skip` jobs."""
    if files and not fields and _are_tables(files, format_name):
        given = _of_tables(files)
    elif files:
        given = _of_logs(files, format_name, fields, quiet=quiet)
    else:
        from stormpetrel.lifecycle.workload_models import site_workload

        with context.open_site() as site:
            given = WorkloadInput(site_workload(site), site.jobs.read_jobs().collect())
    return _cut(given, since, skip)


def synthetic_of(
    what: str,
    real: Workload,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress,
    quiet: bool = False,
) -> Workload:
    """The synthetic workload meant by a word: of a file, sampled from a model folder, or from a generator that is fitted now."""
    from stormpetrel.learn.saving import METADATA
    from stormpetrel.synth.choose import GENERATORS, load_generator
    from stormpetrel.synth.contract import Wanted, sample

    wanted = Wanted(jobs=real.height, seed=seed)
    path = Path(what)
    if not path.exists() and what in GENERATORS:
        generator = make_generator(what, seed=seed, **(settings or {})).fit(real, progress=progress)
        return sample(generator, wanted)
    if path.is_dir():
        if not (path / METADATA).is_file():
            raise UsageError(
                f"{plain(what)} is a folder, but holds no generator.", hint="Make one: stormpetrel synth fit FILE -o MODEL"
            )
        progress(0.5, f"sampling from {path.name}")
        return sample(load_generator(path), wanted)
    if not path.exists() and Path(what).suffix == "":
        raise UsageError(
            f"{plain(what)!r} is no file, no model folder and no generator.", hint=f"Generators: {', '.join(GENERATORS)}."
        )
    return read_workload(Context(None, False), [what], quiet=quiet).workload


def make_generator(name: str, **settings: Any) -> WorkloadGenerator:
    """An untrained generator with those settings that were given (not None); UsageError for one that it does not have."""
    from stormpetrel.synth.choose import new_generator

    known = inspect.signature(type(new_generator(name))).parameters
    given = {key: value for key, value in settings.items() if value is not None and (key != "seed" or key in known)}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise UsageError(
            f"The generator '{name}' has no {_OPTIONS.get(unknown[0], unknown[0])}.",
            hint="Leave it out, or choose another --model.",
        )
    return new_generator(name, **given)


@contextmanager
def bar_shown(*, quiet: bool) -> Iterator[Progress]:
    """A bar with what is being done beside it; silent where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda _share, _words: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda share, words: bar.update(task, completed=share, description=plain(words))


def _are_tables(files: Sequence[str], format_name: str | None) -> bool:
    """Whether files are tables of jobs rather than logs; both at once cannot be read."""
    if format_name is not None:
        return format_name == TABLE
    tables = [file for file in files if _is_table(file)]
    if tables and len(tables) < len(files):
        raise UsageError(
            f"{plain(tables[0])} is a table of jobs, and others of the files are logs.", hint="Name files of one kind at a time."
        )
    return bool(tables)


def _is_table(file: str) -> bool:
    from stormpetrel.sources.formats import sniff_format

    if Path(file).suffix in (".parquet", ".pq"):
        return True
    try:
        sniff_format(file)
    except SourceFormatError:  # what no log looks like is read as a table, which says what it found where it is none
        return True
    return False


def _of_logs(files: Sequence[str], format_name: str | None, fields: str | None, *, quiet: bool) -> WorkloadInput:
    from dataclasses import replace

    from stormpetrel.sources.formats import ReadOptions
    from stormpetrel.sources.reading import read_log
    from stormpetrel.synth.workload import workload_of

    options = ReadOptions(fields=[name.strip() for name in fields.split(",")] if fields else None)
    with progress_bar(f"reading {', '.join(files)}", 0, shown=not quiet) as progress:
        log = read_log(files, format_name, options, progress=progress)
    refused = tuple(f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())
    made = workload_of(log.jobs)
    return WorkloadInput(replace(made, notes=(*log.notes, *refused, *made.notes)), log.jobs)


def _of_tables(files: Sequence[str]) -> WorkloadInput:
    import polars as pl

    from stormpetrel.sources.workload_table import read_workload_table
    from stormpetrel.synth.workload import tidy

    tables = [read_workload_table(Path(file)) for file in files]
    frame = pl.concat([table.jobs for table in tables], how="diagonal_relaxed")
    notes = tuple(note for table in tables for note in table.notes)
    return WorkloadInput(tidy(frame, has_clock=all(table.has_clock for table in tables), notes=notes))


def _cut(given: WorkloadInput, since: str | None, skip: int) -> WorkloadInput:
    import polars as pl

    from stormpetrel.synth.workload import SUBMIT, Workload

    workload, jobs = given.workload, given.jobs
    if since:
        later = pl.col(SUBMIT) >= parse_day(since, "--since")
        workload = Workload(workload.jobs.filter(later), workload.has_clock, workload.notes)
        jobs = None if jobs is None else jobs.filter(later)
    if skip:
        workload = workload.between(skip)
        if jobs is not None:
            jobs = jobs.sort(SUBMIT, nulls_last=True, maintain_order=True)[skip:]
    if not workload.height:
        raise NotEnoughJobsError("No job is left.", hint="Ask for less with --since and --skip.")
    return WorkloadInput(workload, jobs)
