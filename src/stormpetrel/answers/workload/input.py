"""The workloads that a question is about: of job logs, of tables of jobs, of a site, or made by a generator.

files -> read_files -> WorkloadInput; Site -> read_site; NAME | folder | file -> synthetic_workload -> Workload.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.schemas.workload import LearntWorkload
from stormpetrel.errors import NotEnoughJobsError, SourceFormatError, UsageError
from stormpetrel.learn.saving import METADATA
from stormpetrel.lifecycle.workload_models import site_workload
from stormpetrel.sources.formats import ReadOptions, sniff_format
from stormpetrel.sources.reading import read_log
from stormpetrel.sources.tables.workload_table import read_workload_table
from stormpetrel.synth.choose import GENERATORS, load_generator, new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.workload import SUBMIT, WAIT, Workload, tidy, workload_of

if TYPE_CHECKING:
    from stormpetrel.engine import Progress
    from stormpetrel.store.site import Site
    from stormpetrel.synth.contract import WorkloadGenerator

TABLE: Final = "table"
_OPTIONS: Final = {
    "epochs": "--epochs",
    "device": "--device",
    "fewest_jobs": "--keep-fewest",
    "epsilon": "--epsilon",
}  # by the setting of a generator
ReadProgress = Callable[[int, int], None]  # bytes and records so far


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadInput:
    """A workload, and the job frame that it was made of where there is one (a table of jobs has none)."""

    workload: Workload
    jobs: pl.DataFrame | None = None

    def cut(self, since: datetime | None, skip: int) -> WorkloadInput:
        """Return it without the jobs submitted before a time, and without its first `skip` jobs."""
        workload, jobs = self.workload, self.jobs
        if since:
            later = pl.col(SUBMIT) >= since
            workload = Workload(workload.jobs.filter(later), workload.has_clock, workload.notes)
            jobs = None if jobs is None else jobs.filter(later)
        if skip:
            workload = workload.between(skip)
            if jobs is not None:
                jobs = jobs.sort(SUBMIT, nulls_last=True, maintain_order=True)[skip:]
        if not workload.height:
            raise NotEnoughJobsError("No job is left.", hint="Ask for less with --since and --skip.")
        return WorkloadInput(workload, jobs)


def read_site(site: Site) -> WorkloadInput:
    """Return the workload of a site, and its jobs."""
    return WorkloadInput(site_workload(site), site.jobs.read_jobs().collect())


def read_files(
    files: Sequence[str],
    format_name: str | None = None,
    fields: Sequence[str] | None = None,
    progress: ReadProgress = lambda _bytes, _records: None,
) -> WorkloadInput:
    """Return the workload of job logs or of tables of jobs; the format is found where none is named."""
    if not fields and _are_tables(files, format_name):
        return _read_tables(files)
    return _read_logs(files, format_name, fields, progress)


def synthetic_workload(
    source: str,
    real: Workload,
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: Progress,
) -> Workload:
    """Return the synthetic workload of a file, of a model folder, or of a generator's name, which is fitted now.

    From a generator come as many jobs as the real workload has.
    """
    wanted = Wanted(jobs=real.height, seed=seed)
    path = Path(source)
    if not path.exists() and source in GENERATORS:
        return sample(make_generator(source, seed=seed, **(settings or {})).fit(real, progress=progress), wanted)
    if path.is_dir():
        if not (path / METADATA).is_file():
            raise UsageError(
                f"{source!r} is a folder, but holds no generator.", hint="Make one: stormpetrel synth fit FILE -o MODEL"
            )
        progress(0.5, f"sampling from {path.name}")
        return sample(load_generator(path), wanted)
    if not path.exists() and path.suffix == "":
        raise UsageError(
            f"{source!r} is no file, no model folder and no generator.", hint=f"Generators: {', '.join(GENERATORS)}."
        )
    return read_files([source]).workload


def make_generator(name: str, **settings: Any) -> WorkloadGenerator:
    """Return an untrained generator with those settings that are not None; UsageError for one that it does not have."""
    known = inspect.signature(type(new_generator(name))).parameters
    chosen = {key: value for key, value in settings.items() if value is not None and (key != "seed" or key in known)}
    unknown = [key for key in chosen if key not in known]
    if unknown:
        raise UsageError(
            f"The generator '{name}' has no {_OPTIONS.get(unknown[0], unknown[0])}.",
            hint="Leave it out, or choose another --model.",
        )
    return new_generator(name, **chosen)


@dataclass(frozen=True, slots=True)
class GeneratorMaker:
    """Makes an untrained generator of a kind for a seed; can be sent to another process."""

    name: str
    epochs: int | None = None
    device: str | None = None

    def __call__(self, seed: int) -> WorkloadGenerator:
        """Return the generator of a seed."""
        return make_generator(self.name, seed=seed, epochs=self.epochs, device=self.device)


def learnt_workload(workload: Workload, generator: WorkloadGenerator, *, name: str, model: Path, seed: int) -> LearntWorkload:
    """Return what a generator of a kind, saved in a folder, has seen of a workload."""
    first = workload.start()
    last = first + timedelta(seconds=float(workload.submit_s()[-1] - workload.submit_s()[0]))
    notes = [*workload.notes, *_passed_on(workload)]
    return LearntWorkload(
        jobs=workload.height,
        users=workload.jobs["user"].drop_nulls().n_unique() if "user" in workload.jobs.columns else None,
        days=round((last - first) / timedelta(days=1), 2),
        first=first if workload.has_clock else None,
        last=last if workload.has_clock else None,
        columns=[column for column in workload.jobs.columns if column not in (SUBMIT, WAIT)],
        notes=[*notes, *(note for note in getattr(generator, "notes", ()) if note not in notes)],
        model=str(model),
        generator=name,
        seed=seed,
        groups=dict(generator.groups()),
    )


def _passed_on(workload: Workload) -> list[str]:
    """A note on texts that come out again as they went in: only the owner of a log knows whether they name people."""
    texts = [name for name in workload.own_columns if str(workload.jobs[name].dtype) == "String"]
    if not texts:
        return []
    return [f"The texts of {', '.join(texts)} come out again as they are: leave out of the log what names people."]


def _are_tables(files: Sequence[str], format_name: str | None) -> bool:
    """Whether files are tables of jobs rather than logs; both at once cannot be read."""
    if format_name is not None:
        return format_name == TABLE
    tables = [file for file in files if _is_table(file)]
    if tables and len(tables) < len(files):
        raise UsageError(
            f"{tables[0]!r} is a table of jobs, and others of the files are logs.", hint="Name files of one kind at a time."
        )
    return bool(tables)


def _is_table(file: str) -> bool:
    if Path(file).suffix in (".parquet", ".pq"):
        return True
    try:
        sniff_format(file)
    except SourceFormatError:  # what no log looks like is read as a table, which says what it found where it is none
        return True
    return False


def _read_logs(
    files: Sequence[str], format_name: str | None, fields: Sequence[str] | None, progress: ReadProgress
) -> WorkloadInput:
    log = read_log(list(files), format_name, ReadOptions(fields=list(fields) if fields else None), progress=progress)
    refused = tuple(f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())
    workload = workload_of(log.jobs)
    return WorkloadInput(replace(workload, notes=(*log.notes, *refused, *workload.notes)), log.jobs)


def _read_tables(files: Sequence[str]) -> WorkloadInput:
    tables = [read_workload_table(Path(file)) for file in files]
    frame = pl.concat([table.jobs for table in tables], how="diagonal_relaxed")
    notes = tuple(note for table in tables for note in table.notes)
    return WorkloadInput(tidy(frame, has_clock=all(table.has_clock for table in tables), notes=notes))
