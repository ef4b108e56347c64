"""What the columns of a foreign table mean: header -> meanings, by one recogniser with a vocabulary for each kind of table.

`WORKLOAD` for tables of jobs that a generator learns from, `EVENTS` for tables of events and counts, `vocabulary_of_names` for
the names that a column map writes down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from stormpetrel.records.workload_columns import ARRAY, IDENTIFIERS, STATE, SUBMIT, TIMES, WAIT, WHERE, WHO
from stormpetrel.sources.htcondor.vocabulary import PLACE_ATTRIBUTES

Units = Mapping[str, float]  # unit at the end of a name -> factor; "" is for a name without one

_NO_LETTER: Final = re.compile(r"[^0-9a-z]+")


class Named(NamedTuple):
    """The column that has a meaning; `factor` converts its numbers to seconds or bytes, None where the name has no unit."""

    column: str
    factor: float | None


def letters_of(name: str) -> str:
    """A name without case, spaces and punctuation."""
    return _NO_LETTER.sub("", name.strip().lower())


@dataclass(frozen=True)
class Vocabulary:
    """The names that columns of one kind of table have: meaning -> names, the best first.

    Names are compared as `plain` makes them. Of several columns with the same meaning the one with the best name is taken, of
    several with the same name the first. The name of a meaning in `units` may end in a unit: `runtime_min`, `mem (GB)`.
    """

    names: Mapping[str, tuple[str, ...]]
    plain: Callable[[str], str] = letters_of
    units: Mapping[str, Units] = field(default_factory=dict)

    def recognise(self, header: Iterable[str], wanted: Iterable[str] | None = None) -> tuple[dict[str, Named], dict[str, str]]:
        """Return meaning -> the column that has it, and the columns not needed next to it -> the one that was taken."""
        limited = None if wanted is None else list(wanted)
        best: dict[str, tuple[int, Named]] = {}
        spare: dict[str, str] = {}
        for column in header:
            meaning, rank, factor = self._read(column)
            if meaning is None or (limited is not None and meaning not in limited):
                continue
            if meaning in best and best[meaning][0] <= rank:
                spare[column] = best[meaning][1].column
                continue
            if meaning in best:
                spare[best[meaning][1].column] = column
            best[meaning] = (rank, Named(column, factor))
        order = best if limited is None else [meaning for meaning in limited if meaning in best]
        return {meaning: best[meaning][1] for meaning in order}, {
            column: spare.get(winner, winner) for column, winner in spare.items()
        }

    def columns(self, header: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
        """Return of each wanted meaning the column that has it; those that the table has not are left out."""
        return {meaning: named.column for meaning, named in self.recognise(header, wanted)[0].items()}

    @cached_property
    def _meanings(self) -> dict[str, tuple[str, int]]:
        return {name: (meaning, rank) for meaning, names in self.names.items() for rank, name in enumerate(names)}

    @cached_property
    def _with_unit(self) -> re.Pattern[str]:
        units = sorted({unit for units in self.units.values() for unit in units if unit})
        return re.compile(r"^(.*?)[\s_\-]*[\s_\-(\[](" + "|".join(units) + r")[)\]]?$")

    def _read(self, column: str) -> tuple[str | None, int, float | None]:
        """(meaning, rank of the name, factor of its unit) of one column."""
        meaning, rank = self._meanings.get(self.plain(column), (None, 0))
        if meaning is not None:
            return meaning, rank, self.units.get(meaning, {}).get("")
        parts = self._with_unit.match(column.strip().lower()) if self.units else None
        meaning, rank = self._meanings.get(self.plain(parts[1]), (None, 0)) if parts else (None, 0)
        factor = self.units.get(meaning or "", {}).get(parts[2]) if parts else None
        return (None, 0, None) if factor is None else (meaning, rank, factor)


def vocabulary_of_names(names: Iterable[str]) -> Vocabulary:
    """A vocabulary of names that are written down: each stands for itself, in any case and spacing."""
    return Vocabulary({name: (letters_of(name) or name,) for name in names})


# --- Tables of jobs -----------------------------------------------------------------------------------------------------------

INTERVAL: Final = "interval_s"
START: Final = "start_time"
END: Final = "end_time"
MOMENTS: Final = (SUBMIT, START, END)
DURATIONS: Final = (INTERVAL, *TIMES, WAIT)
COUNTS: Final = ("cores", "nodes", "gpus", ARRAY)
MEMORY: Final = "mem_bytes"
TEXTS: Final = (*WHO, *WHERE, STATE)
UNNAMED: Final = "unnamed "  # and its place: a column whose name is empty, such as the index that pandas writes

_WORKLOAD_NAMES: Final = {
    SUBMIT: "submittime submit timesubmit submissiontime submitted submittedat submittimestamp queuedtime queuedtimestamp qtime "
    "arrivaltime arrival",
    INTERVAL: "interval interarrival interarrivaltime arrivalinterval",
    START: "starttime start timestart started",
    END: "endtime end timeend ended",
    "user": "user username userid uid iduser owner jobowner login loginname submitter who person",
    "group": "group groupname groupid gid idgroup",
    "account": "account project projectname projectid",
    "partition": "partition partitionname queue queuename",
    "qos": "qos",
    "cores": "cores cpunum cpus ncpus ncores corenum numcores numcpus procs nproc processors alloccpus cpusalloc reqcpus cpusreq",
    "nodes": "nodes nodenum nnodes numnodes nodesalloc reqnodes nodesreq",
    "gpus": "gpus gpunum ngpus numgpus reqgpus",
    MEMORY: "mem memory reqmem memreq requestedmemory",
    "time_limit_s": "timelimit walltime reqtime requestedtime timereq limit walltimelimit reqwalltime",
    "runtime_s": "runtime elapsed elapsedtime duration elapsedraw",
    STATE: "newstatus state status jobstate exitstatus outcome",
    ARRAY: "array arrayid arrayjobid",
    WAIT: "wait waittime queuetime",
}  # fmt: skip
_OURS: Final = ("job_id", SUBMIT, INTERVAL)  # what every table has that Stormpetrel wrote
_SECONDS: Final = {
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3,
    "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0,
}  # fmt: skip
_BYTES: Final = {
    "bytes": 1.0, "b": 1.0, "kb": 2.0**10, "kib": 2.0**10, "mb": 2.0**20, "mib": 2.0**20, "gb": 2.0**30, "gib": 2.0**30,
}  # fmt: skip
_UNIX: Final = {unit: _SECONDS[unit] for unit in ("s", "sec", "seconds", "ms")}
WORKLOAD: Final = Vocabulary(
    {meaning: tuple(names.split()) for meaning, names in _WORKLOAD_NAMES.items()},
    units={**dict.fromkeys(DURATIONS, _SECONDS), MEMORY: _BYTES, **dict.fromkeys(MOMENTS, _UNIX)},
)


def workload_columns(header: Iterable[str]) -> tuple[dict[str, Named], dict[str, str]]:
    """Meaning -> the column of a table of jobs that has it; and the columns that are not needed -> the one that was taken.

    A table that Stormpetrel wrote is taken at its word: what has another name there is a column of the log's own.
    """
    names = list(header)
    if set(_OURS) <= set(names):
        exact = {name: Named(name, 1.0 if name in (*DURATIONS, MEMORY) else None) for name in names if name in WORKLOAD.names}
        return exact, {}
    return WORKLOAD.recognise(names)


def is_row_number(column: str) -> bool:
    """Whether a column only numbers the rows or the jobs: nobody misses it."""
    name = column.strip().lower()
    return name.startswith(UNNAMED) or name in (*IDENTIFIERS, "jobid", "jobidraw", "job_id_raw", "job_number")


# --- Tables of events and counts ----------------------------------------------------------------------------------------------

TIME, KIND, COUNT, PLACE, VALUE = "time", "kind", "count", "place", "value"
NUMBER, TRIGGER, TRIGGER_NUMBER, RETURNED, NORMALLY, SIGNAL = (
    "number", "trigger", "trigger_number", "returned", "normally", "signal",
)  # fmt: skip
_EVENT_NAMES: Final = {
    TIME: "time eventtime @timestamp timestamp event_time datetime date hour bucket bucket_start key_as_string",
    KIND: "kind mytype event_type eventtype event type",
    NUMBER: "eventtypenumber event_type_number",
    TRIGGER: "triggereventtypename",
    TRIGGER_NUMBER: "triggereventtypenumber",
    RETURNED: "returnvalue return_value exit_code exitcode",
    NORMALLY: "terminatednormally",
    SIGNAL: "terminatedbysignal",
    COUNT: "count counts n doc_count events",
    PLACE: "place",
    VALUE: "value",
}
_PLACE_NAMES: Final = {  # ours, HTCondor's, and what others call it
    "site": ("site", "cluster_name"),
    "submit_host": ("submit_host", "host schedd scheddname"),
    "group": ("group", "account experiment vo"),
    "node": ("node", "lastremotehost machine"),
}


def _event_name(name: str) -> str:
    """A name without case, and without what documents of Elasticsearch put around it."""
    return name.strip().lower().removeprefix("_source.").removesuffix(".keyword")


EVENTS: Final = Vocabulary(
    {
        **{meaning: tuple(names.split()) for meaning, names in _EVENT_NAMES.items()},
        **{
            place: (ours, *(name.lower() for name in PLACE_ATTRIBUTES[place]), *others.split())
            for place, (ours, others) in _PLACE_NAMES.items()
        },
    },
    plain=_event_name,
)
