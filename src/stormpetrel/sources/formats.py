"""Formats by name: which source reads a file, and which format a file that nobody named is in."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.tables.column_map import SHIPPED

DEFAULT_CLUSTER: Final = "cluster"
FORMATS: Final = ("sacct", "sacct-json", "swf", "pbs", "condor-history", "condor-events", "tasks", *SHIPPED)
_PBS_LINE: Final = re.compile(rb"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];")
_EVENT_LINE: Final = re.compile(rb"^\d{3} \(\d+\.\d+\.\d+\) ")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the site and the command line say about a file."""

    time_zone: str = "UTC"
    cluster: str = ""  # PBS and HTCondor logs name their server: it stands in where this is empty
    fields: Sequence[str] | None = None
    delimiter: str | None = None
    year: int | None = None


def open_source(path: str, format_name: str | None, options: ReadOptions) -> JobSource:
    """The source that reads a file: of the format named, or of the one that its first lines look like."""
    name = format_name or sniff_format(path, has_fields=bool(options.fields))
    cluster = options.cluster or DEFAULT_CLUSTER
    match name:
        case "sacct":
            from stormpetrel.sources.slurm.sacct_text import SacctText

            return SacctText(
                path, fields=options.fields, delimiter=options.delimiter, time_zone=options.time_zone, cluster=cluster
            )
        case "sacct-json":
            from stormpetrel.sources.slurm.json_jobs import SlurmJson

            return SlurmJson(path, cluster=cluster)
        case "swf":
            from stormpetrel.sources.swf import SwfLog

            return SwfLog(path, cluster=cluster)
        case "pbs":
            from stormpetrel.sources.pbs import PbsAccounting

            return PbsAccounting(path, time_zone=options.time_zone, cluster=options.cluster)
        case "condor-history":
            from stormpetrel.sources.htcondor.history import CondorHistory

            return CondorHistory(path, time_zone=options.time_zone, cluster=options.cluster)
        case "condor-events":
            from stormpetrel.sources.htcondor.event_jobs import CondorEvents

            return CondorEvents(path, time_zone=options.time_zone, cluster=options.cluster, year=options.year)
        case "tasks":
            from stormpetrel.sources.tables.task_table import TaskTable

            return TaskTable(path, time_zone=options.time_zone, cluster=cluster)
    if name in SHIPPED or name.endswith(".toml"):
        from stormpetrel.sources.tables.mapped_table import MappedTable

        return MappedTable(path, column_map=name, time_zone=options.time_zone, cluster=cluster)
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
    if text.startswith((b"{", b"[")):
        return _json_format(text)
    if first.lower().startswith((b"jobid", b"jobidraw")) or re.match(
        rb"^[A-Za-z]+[^A-Za-z0-9_]+(.*[^A-Za-z])?JobID(Raw)?\b", first, re.I
    ):
        return "sacct"
    if any(_PBS_LINE.match(line) for line in text.split(b"\n")[:5]):
        return "pbs"
    if any(_EVENT_LINE.match(line) for line in text.split(b"\n")[:20]):
        return "condor-events"
    if first.startswith(b";") or _resembles_swf(text):
        return "swf"
    return _csv_format(first)


def _json_format(text: bytes) -> str | None:
    if re.search(rb'"(ClusterId|GlobalJobId|QDate)"', text):
        return "condor-history"
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
    from stormpetrel.sources.tables.column_map import load_map
    from stormpetrel.sources.tables.task_table import recognises, split_header

    names = {name.strip().strip('"') for name in first.decode("utf-8", "replace").split(",")}
    mapped = next((name for name in SHIPPED if set(load_map(name).needs) <= names), None)
    return mapped or ("tasks" if recognises(split_header(first)[0]) else None)
