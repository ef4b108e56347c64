"""Files of events by format: which source reads a file, and which format a file that nobody named is in.

path -> event_file -> EventSource, of an HTCondor event log, a log of slurmctld, a table of raw events, or a table of counts.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Final

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.sources.contract import EventSource
from stormpetrel.sources.lines import LineFile

CONDOR_EVENTS: Final = "condor-events"
EVENTS: Final = "events"
COUNTS: Final = "counts"
SLURMCTLD: Final = "slurmctld"
EVENT_FORMATS: Final = (CONDOR_EVENTS, SLURMCTLD, EVENTS, COUNTS)
_EVENT_LINE: Final = re.compile(rb"^\d{3} \(\d+\.\d+\.\d+\) ", re.MULTILINE)
_CONTROLLER_LINE: Final = re.compile(rb"^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\]]{0,16}\] ", re.MULTILINE)
_KIND_COLUMNS: Final = frozenset({"kind", "mytype", "event", "event_type", "eventtype", "eventtypenumber", "type"})
_COUNT_COLUMNS: Final = frozenset({"count", "counts", "n", "doc_count", "events"})


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
        from stormpetrel.sources.slurm.controller_events import ControllerEvents

        return ControllerEvents(path, settings)
    from stormpetrel.sources.tables.event_tables import CountTable, EventTable

    return EventTable(path, settings) if name == EVENTS else CountTable(path, settings)


def sniff_event_format(path: Path) -> str:
    """The format that the beginning of a file looks like; a table with one row per event has a kind and no count."""
    if path.suffix.lower() == ".parquet":
        return _format_of_columns(_parquet_columns(path))
    head = LineFile(path).head().lstrip(b"\xef\xbb\xbf").lstrip()
    if not head:
        raise SourceFormatError(f"{path} is empty.", hint="Check that it was written to its end.")
    if _EVENT_LINE.search(head[:65_536]) or head.startswith((b"<?xml", b"<c>")):
        return CONDOR_EVENTS
    if _CONTROLLER_LINE.search(head[:65_536]):
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
    import polars as pl

    try:
        return list(pl.read_parquet_schema(path))
    except FileNotFoundError:
        raise SourceFormatError(f"There is no file {path}.", hint="Check the path.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise SourceFormatError(f"{path} is no Parquet file: {reason}.", hint="Check that it was written to its end.") from error
