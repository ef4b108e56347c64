"""Formats by name, of job logs and of files of events: which source reads a file, and which format an unnamed file is in.

path -> open_source -> JobSource; path -> event_file -> EventSource.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.sources.contract import EventSource, JobSource
from stormpetrel.sources.htcondor.event_jobs import CondorEvents
from stormpetrel.sources.htcondor.history import CondorHistory
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.lsf.log import LsfLog
from stormpetrel.sources.pbs import PbsAccounting
from stormpetrel.sources.slurm.controller_log import ControllerEvents, ControllerLog
from stormpetrel.sources.slurm.jobcomp import JobCompletions
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.sources.swf import SwfLog
from stormpetrel.sources.tables.column_map import SHIPPED, load_map
from stormpetrel.sources.tables.event_tables import CountTable, EventTable
from stormpetrel.sources.tables.mapped_table import MappedTable
from stormpetrel.sources.tables.task_table import TaskTable, recognises, split_header

DEFAULT_CLUSTER: Final = "cluster"
_PBS_LINE: Final = re.compile(rb"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];")
_LSF_LINE: Final = re.compile(
    rb'"(JOB_FINISH|EVENT_ADRSV_FINISH|JOB_RESIZE)" "\d'
    rb"|Subject: Job \d+(\[\d+\])?: <|\s*Job <\d+(\[\d+\])?>, (Job Name|User) <|Accounting information about jobs"
)
_CONTROLLER_LINE: Final = re.compile(rb"^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\]]{0,16}\] ")
_EVENT_LINE: Final = re.compile(rb"^\d{3} \(\d+\.\d+\.\d+\) ")
CONDOR_EVENTS: Final = "condor-events"
EVENTS: Final = "events"
COUNTS: Final = "counts"
SLURMCTLD: Final = "slurmctld"
EVENT_FORMATS: Final = (CONDOR_EVENTS, SLURMCTLD, EVENTS, COUNTS)
_EVENT_LINES: Final = re.compile(rb"^\d{3} \(\d+\.\d+\.\d+\) ", re.MULTILINE)
_KIND_COLUMNS: Final = frozenset({"kind", "mytype", "event", "event_type", "eventtype", "eventtypenumber", "type"})
_COUNT_COLUMNS: Final = frozenset({"count", "counts", "n", "doc_count", "events"})


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the site and the command line say about a file."""

    time_zone: str = "UTC"
    cluster: str = ""  # PBS and HTCondor logs name their server: it stands in where this is empty
    fields: Sequence[str] | None = None
    delimiter: str | None = None
    year: int | None = None

    @property
    def named_cluster(self) -> str:
        """The cluster of records that name none, in formats whose files cannot name it either."""
        return self.cluster or DEFAULT_CLUSTER


_OPENERS: Final[dict[str, Callable[[str, ReadOptions], JobSource]]] = {
    "sacct": lambda path, options: SacctText(
        path,
        fields=options.fields,
        delimiter=options.delimiter,
        time_zone=options.time_zone,
        cluster=options.named_cluster,
    ),
    "sacct-json": lambda path, options: SlurmJson(path, cluster=options.named_cluster),
    SLURMCTLD: lambda path, options: ControllerLog(path, time_zone=options.time_zone, cluster=options.cluster),
    "jobcomp": lambda path, options: JobCompletions(path, cluster=options.named_cluster),
    "swf": lambda path, options: SwfLog(path, cluster=options.named_cluster),
    "pbs": lambda path, options: PbsAccounting(path, time_zone=options.time_zone, cluster=options.cluster),
    "lsf": lambda path, options: LsfLog(path, time_zone=options.time_zone, cluster=options.cluster, year=options.year),
    "condor-history": lambda path, options: CondorHistory(path, time_zone=options.time_zone, cluster=options.cluster),
    CONDOR_EVENTS: lambda path, options: CondorEvents(
        path, time_zone=options.time_zone, cluster=options.cluster, year=options.year
    ),
    "tasks": lambda path, options: TaskTable(path, time_zone=options.time_zone, cluster=options.named_cluster),
}
FORMATS: Final = (*_OPENERS, *SHIPPED)


def open_source(path: str, format_name: str | None, options: ReadOptions) -> JobSource:
    """The source that reads a file: of the format named, or of the one that its first lines look like."""
    name = format_name or sniff_format(path, has_fields=bool(options.fields))
    if name in _OPENERS:
        return _OPENERS[name](path, options)
    if name in SHIPPED or name.endswith(".toml"):
        return MappedTable(path, column_map=name, time_zone=options.time_zone, cluster=options.named_cluster)
    close = difflib.get_close_matches(name, FORMATS, n=1)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    raise UsageError(f"Unknown format '{name}'.", hint=f"{hint}Known: {', '.join(FORMATS)}, or a path to a column map (.toml).")


def sniff_format(path: str, *, has_fields: bool = False) -> str:
    """The format that the beginning of a file looks like."""
    if has_fields:
        return "sacct"
    file = LineFile(path)
    if file.is_stream:
        raise UsageError(
            f"The format of {file.name} cannot be found out before it is read.",
            hint=f"Add --format, one of {', '.join(FORMATS)}.",
        )
    head = file.head()
    format_name = _format_of(head.lstrip(b"\xef\xbb\xbf"))
    if format_name:
        return format_name
    if not head.strip():
        raise SourceFormatError(f"{path} is empty.", hint="Check that it was written to its end.")
    raise SourceFormatError(
        f"The format of {path} was not recognised.", hint=f"Add --format, one of {', '.join(FORMATS)}, or a column map."
    )


def _format_of(head: bytes) -> str | None:
    text = head.lstrip()
    first = text.split(b"\n", 1)[0].rstrip(b"\r")
    if any(_CONTROLLER_LINE.match(line) for line in text.split(b"\n")[:20]):
        return "slurmctld"
    if text.startswith((b"{", b"[")):
        return _json_format(text)
    if first.lower().startswith((b"jobid", b"jobidraw")) or re.match(
        rb"^[A-Za-z]+[^A-Za-z0-9_]+(.*[^A-Za-z])?JobID(Raw)?\b", first, re.I
    ):
        return "sacct"
    if any(_PBS_LINE.match(line) for line in text.split(b"\n")[:5]):
        return "pbs"
    if any(_LSF_LINE.match(line) for line in text.split(b"\n")[:2000]):
        return "lsf"
    if any(_EVENT_LINE.match(line) for line in text.split(b"\n")[:20]):
        return "condor-events"
    if first.startswith(b";") or _resembles_swf(text):
        return "swf"
    return _csv_format(first)


def _json_format(text: bytes) -> str | None:
    if re.search(rb'"(ClusterId|GlobalJobId|QDate)"', text):
        return "condor-history"
    if b'"jobid"' in text and b'"@submit"' in text:
        return "jobcomp"
    if re.search(rb'"(jobs|job_state|submission)"\s*:', text):
        return "sacct-json"
    try:
        return "condor-history" if json.loads(text) == [] else None
    except ValueError:
        return None


def _resembles_swf(text: bytes) -> bool:
    lines = [line.split() for line in text.split(b"\n")[:20] if line.strip() and not line.startswith(b";")][:-1]
    return bool(lines) and all(len(cells) == 18 for cells in lines)


def _csv_format(first: bytes) -> str | None:
    names = {name.strip().strip('"') for name in first.decode("utf-8", "replace").split(",")}
    mapped = next((name for name in SHIPPED if set(load_map(name).needs) <= names), None)
    return mapped or ("tasks" if recognises(split_header(first)[0]) else None)


def event_file(path: Path, format_name: str | None, settings: Settings, *, year: int | None = None) -> EventSource:
    """The source that reads a file: of the format named, or of the one that its beginning looks like."""
    name = format_name or sniff_event_format(path)
    if name not in EVENT_FORMATS:
        close = difflib.get_close_matches(name, EVENT_FORMATS, n=1)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        raise UsageError(f"Unknown format of events '{name}'.", hint=f"{hint}Known: {', '.join(EVENT_FORMATS)}.")
    if name == CONDOR_EVENTS:
        from stormpetrel.sources.htcondor.counts import CondorEventFile

        return CondorEventFile(path, settings, year=year)
    if name == SLURMCTLD:
        return ControllerEvents(path, settings)
    return EventTable(path, settings) if name == EVENTS else CountTable(path, settings)


def sniff_event_format(path: Path) -> str:
    """The format that the beginning of a file looks like; a table with one row per event has a kind and no count."""
    if path.suffix.lower() == ".parquet":
        return _format_of_columns(_parquet_columns(path))
    head = LineFile(path).head().lstrip(b"\xef\xbb\xbf").lstrip()
    if not head:
        raise SourceFormatError(f"{path} is empty.", hint="Check that it was written to its end.")
    if _EVENT_LINES.search(head[:65_536]) or head.startswith((b"<?xml", b"<c>")):
        return CONDOR_EVENTS
    if any(_CONTROLLER_LINE.match(line) for line in head.split(b"\n")[:20]):
        return SLURMCTLD
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    if first.startswith(("{", "[")):
        names = re.findall(r'"([^"\\]{1,100})"\s*:', first if first.startswith("{") else head[:4096].decode("utf-8", "replace"))
    else:
        names = [name.strip().strip('"') for name in re.split(r"[,;\t]", first)]
    if len(names) < 2:
        raise SourceFormatError(
            f"The format of {path} was not recognised.", hint=f"Add --format, one of {', '.join(EVENT_FORMATS)}."
        )
    return _format_of_columns(names)


def _format_of_columns(names: list[str]) -> str:
    plain = {name.lower() for name in names}
    return EVENTS if plain & _KIND_COLUMNS and not plain & _COUNT_COLUMNS else COUNTS


def _parquet_columns(path: Path) -> list[str]:
    try:
        return list(pl.read_parquet_schema(path))
    except FileNotFoundError:
        raise SourceFormatError(f"There is no file {path}.", hint="Check the path.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise SourceFormatError(f"{path} is no Parquet file: {reason}.", hint="Check that it was written to its end.") from error
