"""What the columns of a table of jobs are called: header -> meanings.

Names are compared without case, spaces and underscores; the name of a duration or a size may end in its unit (`runtime_min`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from stormpetrel.records.workload_columns import ARRAY, IDENTIFIERS, STATE, SUBMIT, TIMES, WAIT, WHERE, WHO

INTERVAL: Final = "interval_s"
START: Final = "start_time"
END: Final = "end_time"
MOMENTS: Final = (SUBMIT, START, END)
DURATIONS: Final = (INTERVAL, *TIMES, WAIT)
COUNTS: Final = ("cores", "nodes", "gpus", ARRAY)
MEMORY: Final = "mem_bytes"
TEXTS: Final = (*WHO, *WHERE, STATE)
UNNAMED: Final = "unnamed "  # and its place: a column whose name is empty, such as the index that pandas writes

# Of several columns that mean the same, the one whose name comes first here is taken.
_NAMES: Final = {
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
_MEANING: Final = {word: (meaning, rank) for meaning, words in _NAMES.items() for rank, word in enumerate(words.split())}
_SECONDS: Final = {
    "": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e-3,
    "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0,
}  # fmt: skip
_BYTES: Final = {
    "bytes": 1.0, "b": 1.0, "kb": 2.0**10, "kib": 2.0**10, "mb": 2.0**20, "mib": 2.0**20, "gb": 2.0**30, "gib": 2.0**30,
}  # fmt: skip
_UNIT: Final = re.compile(r"^(.*?)[\s_\-]*[\s_\-(\[](" + "|".join(filter(None, (*_SECONDS, *_BYTES))) + r")[)\]]?$")
_NO_LETTER: Final = re.compile(r"[^0-9a-z]+")


class Named(NamedTuple):
    """What a column of a table means; `factor` makes seconds or bytes of its numbers, None where the name tells no unit."""

    column: str
    factor: float | None


def meanings(header: Iterable[str]) -> tuple[dict[str, Named], dict[str, str]]:
    """Meaning -> the column that has it; and the columns that are not needed beside it -> the one that was taken.

    A table that Stormpetrel wrote is taken at its word: what has another name there is a column of the log's own.
    """
    names = list(header)
    if set(_OURS) <= set(names):
        exact = {name: Named(name, 1.0 if name in (*DURATIONS, MEMORY) else None) for name in names if name in _NAMES}
        return exact, {}
    found: dict[str, tuple[int, Named]] = {}
    spare: dict[str, str] = {}
    for column in names:
        meaning, rank, factor = _read(column)
        if meaning is None:
            continue
        if meaning in found and found[meaning][0] <= rank:
            spare[column] = found[meaning][1].column
            continue
        if meaning in found:
            spare[found[meaning][1].column] = column
        found[meaning] = (rank, Named(column, factor))
    taken = {meaning: named for meaning, (_, named) in found.items()}
    return taken, {column: spare.get(winner, winner) for column, winner in spare.items()}


def is_row_number(column: str) -> bool:
    """Whether a column only numbers the rows or the jobs: nobody misses it."""
    name = column.strip().lower()
    return name.startswith(UNNAMED) or name in (*IDENTIFIERS, "jobid", "jobidraw", "job_id_raw", "job_number")


def _read(column: str) -> tuple[str | None, int, float | None]:
    """(meaning, how good the name is, factor of its unit) of one name."""
    name = column.strip().lower()
    meaning, rank = _MEANING.get(_NO_LETTER.sub("", name), (None, 0))
    if meaning is not None:
        return meaning, rank, 1.0 if meaning in DURATIONS else None
    parts = _UNIT.match(name)
    if parts is None:
        return None, 0, None
    meaning, rank = _MEANING.get(_NO_LETTER.sub("", parts[1]), (None, 0))
    if meaning == MEMORY:
        return (meaning, rank, _BYTES[parts[2]]) if parts[2] in _BYTES else (None, 0, None)
    if meaning in DURATIONS:
        return (meaning, rank, _SECONDS[parts[2]]) if parts[2] in _SECONDS else (None, 0, None)
    if meaning in MOMENTS and parts[2] in ("s", "sec", "seconds", "ms"):
        return meaning, rank, _SECONDS[parts[2]]
    return None, 0, None
