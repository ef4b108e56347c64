"""Accounting logs of PBS Professional, OpenPBS and Torque -> job rows.

`MM/DD/YYYY HH:MM:SS;KIND;JOB;key=value …` -> the records of one run (Q, S, D, A, R, E) folded -> one row per run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.states import JobState, pbs_state
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.job_rows import (
    FieldReader,
    JobBatch,
    clock_s,
    pbs_size_bytes,
    real,
    small,
    span_s,
    times,
    unix_time,
    whole,
)
from stormpetrel.sources.lines import Block, sound_lines

_LINE: Final = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)(?:\.\d+)?;([A-Za-z]{1,2});([^;]*);(.*)", re.ASCII)
# 12.server, 12[3].server and its whole 12[].server, Torque's older 12-3.server; a range (12[1-9].server) names no single job.
_JOB: Final = re.compile(r"(\d{1,18})(?:\[(\d{0,18})\]|-(\d{1,18})|\[([\d,:-]+)\])?(?:\.(\S+))?", re.ASCII)
_EXIT_STATUS: Final = re.compile(r"(?<!\S)Exit_status=[+-]?\d{1,9}(?!\S)", re.ASCII)
_JOB_KINDS: Final = frozenset("QSEDAR")  # of the others (L, P, T, C, M, Y, …) none begins or ends a run
_MAX_OPEN: Final = 200_000  # jobs held for a record that may still come; beyond it the oldest is told as it stands
_MAX_ENDED: Final = 100_000
_MAX_BODIES: Final = 16


class PbsAccounting(FileSource):
    """An accounting log of PBS or Torque, usually of one day."""

    format = "pbs"

    def __init__(self, path: Path | str, *, time_zone: str = "UTC", cluster: str = "", block_bytes: int | None = None) -> None:
        super().__init__(path, block_bytes)
        self._zone = ZoneInfo(time_zone)
        self._cluster = cluster

    def fields(self) -> frozenset[str]:
        """The job columns that an accounting log can fill."""
        return COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The runs of the log, in the order in which they ended; those that did not end come last."""
        batch = JobBatch()
        folder = _RunMerger(batch, self._zone, self._cluster)
        bytes_done, recognised = 0, False
        for block in self._file.blocks():
            recognised = recognised or self._recognise(block)
            lines, refused = sound_lines(block)
            batch.refuse_all([*block.refused, *refused])
            for number, line in lines:
                folder.take(number, line.decode())
                if batch.is_full:
                    yield batch.chunk(bytes_done)
            bytes_done = block.bytes_done
        for _ in folder.give_up():
            if batch.is_full:
                yield batch.chunk(bytes_done)
        yield batch.chunk(bytes_done)

    def _recognise(self, block: Block) -> bool:
        head = [line for _, line in sound_lines(block)[0][:1000]]
        if head and not any(_LINE.match(line.decode()) for line in head):
            raise SourceFormatError(
                f"{self.name} is not an accounting log of PBS: no line of its beginning is DATE TIME;KIND;JOB;….",
                hint="Name the files in server_priv/accounting (not the server's own log).",
            )
        return bool(head)


class _RunMerger:
    """Folds the records of each run into one."""

    def __init__(self, batch: JobBatch, zone: ZoneInfo, cluster: str) -> None:
        self._batch, self._zone, self._cluster = batch, zone, cluster
        self._open: dict[str, Run] = {}
        self._ended: dict[str, None] = {}

    def take(self, number: int, line: str) -> None:
        """One line of the log."""
        match = _LINE.fullmatch(line)
        if not match:
            self._batch.refuse(number, "bad_record", "the line is not DATE TIME;KIND;JOB;key=value …", line)
            return
        stamp, kind, name, body = match.groups()
        if kind not in _JOB_KINDS:
            self._batch.count_merged()
            return
        job = _JOB.fullmatch(name)
        if not job:
            self._batch.refuse(number, "bad_value", "the job id is not one of PBS", line)
        elif kind == "E" and not _EXIT_STATUS.search(body):
            # The log of today is read while it is written: its last line may be half a record.
            self._batch.refuse(number, "truncated_record", "the end record has no Exit_status", line)
        elif job[4] or (kind in "DA" and name in self._ended):
            self._batch.count_merged()
        else:
            self._follow(kind, Run(job, number, at=_utc(stamp, self._zone), bodies=[(kind, body)]), name)

    def give_up(self) -> Iterator[None]:
        """Tell the runs for which no end came, one at a time."""
        for run in self._open.values():
            if not run.is_implied:
                self._note(run)
            yield
        self._open.clear()

    def _follow(self, kind: str, news: Run, name: str) -> None:
        run = self._open.pop(name, None)
        if run is None:
            run = news
        else:
            self._merge(run, news)
        run.kind = kind
        if kind == "Q":
            run.queued = run.queued or news.at
        if kind == "E":
            self._note(run)
            self._remember(name)
        elif kind == "R":
            self._note(run)
            self._open[name] = next_run(run)
        else:
            self._open[name] = run
        if len(self._open) > _MAX_OPEN:
            oldest = self._open.pop(next(iter(self._open)))
            if not oldest.is_implied:
                self._note(oldest)

    def _merge(self, run: Run, news: Run) -> None:
        if not run.is_implied:
            self._batch.count_merged()
        run.is_implied = False
        run.bodies += news.bodies
        if len(run.bodies) > _MAX_BODIES:
            absorb(run)
        run.line, run.at = news.line, news.at

    def _note(self, run: Run) -> None:
        absorb(run)
        self._batch.add(job_row(run, self._cluster), run.line)

    def _remember(self, name: str) -> None:
        self._ended[name] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]


@lru_cache(maxsize=4096)  # records come in bursts
def _utc(stamp: str, zone: ZoneInfo) -> datetime | None:
    """The local time of a line: the first pass of a doubled hour, an hour later for one that was left out."""
    month, day, year, hour, minute, second = (int(part) for part in re.split(r"[/ :]", stamp))
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


COLUMNS: Final = frozenset(
    {
        "job_name", "user", "group", "account", "partition", "eligible_time", "start_time", "end_time", "state", "state_raw",
        "cancelled_by", "exit_code", "exit_signal", "time_limit_s", "elapsed_s", "cpu_limit_s", "req_cpus", "cpus", "req_nodes",
        "nodes", "req_gpus", "gpus", "req_mem_bytes", "max_rss_bytes", "cpu_time_s", "node_list", "extra",
    }
)  # fmt: skip
# A value with spaces stands in quotes; words without `=` belong to the value before them. Anchored, so that it stays linear.
_PAIR: Final = re.compile(r"""(?<!\S)([^\s=]+)=("[^"]*"(?!\S)|'[^']*'(?!\S)|\S*(?:[ \t]+[^\s=]+(?=\s|$))*)""", re.ASCII)
_OF_THIS_RUN: Final = ("start", "end", "session", "exec_", "Exit_status", "resources_used.", "run_count", "unique_", "total_")
_NO_PROJECT: Final = "_pbs_project_default"
_SIGNAL_BASE: Final = 256  # Exit_status = 256 + signal
_OPEN_STATES: Final = {"Q": JobState.PENDING, "S": JobState.RUNNING, "D": JobState.CANCELLED, "A": JobState.FAILED}
_USED: Final = frozenset(
    {
        "user", "group", "account", "Account_Name", "jobname", "queue", "ctime", "qtime", "etime", "start", "end", "exec_host",
        "exec_vnode", "Exit_status", "run_count", "total_execution_slots", "unique_node_count", "Resource_List.ncpus",
        "Resource_List.nodect", "Resource_List.ngpus", "Resource_List.mem", "Resource_List.walltime", "resources_used.walltime",
        "resources_used.cput", "resources_used.mem",
    }
)  # fmt: skip


def _moment(value: str) -> float | None:
    """Unix seconds that can be a time; 0 stands for none."""
    seconds = real(value)
    return seconds if seconds == 0 or unix_time(value) is not None else None


# Field -> what reads it, and the column that is null where it cannot.
_READ: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    "etime": (_moment, "eligible_time"),
    "start": (_moment, "start_time"),
    "end": (_moment, "end_time"),
    "Resource_List.ncpus": (whole, "req_cpus"),
    "Resource_List.nodect": (whole, "req_nodes"),
    "Resource_List.ngpus": (whole, "req_gpus"),
    "total_execution_slots": (whole, "cpus"),
    "Resource_List.walltime": (clock_s, "time_limit_s"),
    "resources_used.walltime": (clock_s, "elapsed_s"),
    "resources_used.cput": (clock_s, "cpu_time_s"),
    "Resource_List.mem": (pbs_size_bytes, "req_mem_bytes"),
    "Resource_List.pmem": (pbs_size_bytes, "req_mem_bytes"),
    "resources_used.mem": (pbs_size_bytes, "max_rss_bytes"),
}


@dataclass(slots=True)
class Run:
    """What is known of one run of a job."""

    job: re.Match[str]
    line: int
    restart: int = 0
    kind: str = ""
    at: datetime | None = None  # when the last record was written
    queued: datetime | None = None
    bodies: list[tuple[str, str]] = field(default_factory=list)  # kind and text of its records
    fields: dict[str, str] = field(default_factory=dict)  # what the absorbed ones say
    is_implied: bool = False  # it follows from a rerun, and no line of the log stands for it yet


def absorb(run: Run) -> None:
    """Take what the texts of a run say into its fields."""
    for kind, body in run.bodies:
        if not (run.kind == "E" and kind in "QS"):  # an end record repeats all that they say: half the work
            run.fields.update(_pairs(body))
    run.bodies.clear()


def unreadable(run: Run) -> dict[str, str]:
    """The texts of fields that should be a number, a size or a time and are none, by the column they would fill."""
    reader = FieldReader()
    for name, value in run.fields.items():
        if name in _READ and value:
            parse, column = _READ[name]
            reader.read(column, value, parse)
    return reader.unread


def _pairs(body: str) -> dict[str, str]:
    pairs: dict[str, str] = dict(_PAIR.findall(body))
    if '"' in body or "'" in body:
        pairs = {key: _unquoted(value) for key, value in pairs.items()}
    return pairs if pairs or not body.strip() else {"message": body.strip()}


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def next_run(run: Run) -> Run:
    """The job after a rerun, with what it was submitted with."""
    kept = {key: value for key, value in run.fields.items() if not key.startswith(_OF_THIS_RUN)}
    return Run(run.job, run.line, restart=_restart(run) + 1, queued=run.queued, fields=kept, is_implied=True)


def _restart(run: Run) -> int:
    count = small(run.fields.get("run_count"))
    return count - 1 if count is not None and count > 0 else run.restart


def job_row(run: Run, cluster: str) -> dict[str, object]:
    """A run as a row of the job frame, once its texts have been absorbed."""
    fields, unread = run.fields, unreadable(run)
    number, task, dashed, _, server = run.job.groups()
    index = task or dashed
    start = unix_time(fields.get("start"))
    has_started = start is not None or "start_time" in unread
    end = _end(run)
    elapsed = clock_s(fields.get("resources_used.walltime"))
    elapsed = span_s(start, end) if elapsed is None else elapsed
    request = _request(fields)
    cpus = _cpus(fields, request) if has_started else None
    return {
        "cluster": cluster or server or "cluster",
        "job_id": int(number),
        "array_task": int(index) if index else None,
        "submit_time": unix_time(fields.get("ctime")) or unix_time(fields.get("qtime")) or run.queued,
        "restart": _restart(run),
        "job_name": fields.get("jobname"),
        "user": fields.get("user") or fields.get("owner", "").partition("@")[0] or None,
        "group": fields.get("group"),
        "account": _account(fields),
        "partition": fields.get("queue"),
        "eligible_time": unix_time(fields.get("etime")),
        "start_time": start,
        "end_time": end,
        "elapsed_s": elapsed,
        "cpus": cpus,
        "cpu_limit_s": elapsed * cpus if elapsed is not None and cpus is not None else None,
        "gpus": request["req_gpus"] if has_started else None,
        **request,
        **_nodes(fields),
        "cpu_time_s": clock_s(fields.get("resources_used.cput")),
        "max_rss_bytes": pbs_size_bytes(fields.get("resources_used.mem")),
        **_outcome(run, elapsed, request["time_limit_s"]),
        "extra": _extra(fields, whole_array=task == ""),
        "unread": unread,
    }


def _end(run: Run) -> datetime | None:
    if run.kind in "QS":
        return None
    return unix_time(run.fields.get("end")) or run.at


def _account(fields: dict[str, str]) -> str | None:
    project = fields.get("project")
    return fields.get("account") or fields.get("Account_Name") or (None if project == _NO_PROJECT else project)


def _request(fields: dict[str, str]) -> dict[str, int | float | None]:
    """What the job asked for: counts and memory of the whole job, run time in seconds."""
    # Torque: nodes=2:ppn=4:gpus=1+1:ppn=8; PBS: select=2:ncpus=4:ngpus=1.
    spec = fields.get("Resource_List.nodes") or fields.get("Resource_List.select") or ""
    cpus, gpus = whole(fields.get("Resource_List.ncpus")), whole(fields.get("Resource_List.ngpus"))
    # Torque may say ncpus=1 next to nodes=2:ppn=8; PBS says the same number in both.
    cpus = max((count for count in (cpus, _total(spec, ("ppn", "ncpus"), default=1)) if count is not None), default=None)
    memory = pbs_size_bytes(fields.get("Resource_List.mem"))
    per_process = pbs_size_bytes(fields.get("Resource_List.pmem"))
    return {
        "req_cpus": cpus,
        "req_gpus": _total(spec, ("gpus", "ngpus"), default=0) if gpus is None else gpus,
        "req_nodes": whole(fields.get("Resource_List.nodect")),
        "req_mem_bytes": times(per_process, cpus or 1) if memory is None else memory,
        "time_limit_s": clock_s(fields.get("Resource_List.walltime")),
    }


@lru_cache(maxsize=4096)  # requests repeat
def _total(spec: str, names: tuple[str, ...], *, default: int) -> int | None:
    """The sum of a resource over the chunks of a request; None where there is no request, or none that can be counted."""
    total = 0
    for chunk in spec.split("+") if spec else ():
        count, *resources = chunk.split(":")
        amounts = dict(resource.split("=", 1) for resource in resources if "=" in resource)
        share = next((whole(amounts[name]) for name in names if name in amounts), default)
        many = whole(count) if count[:1].isdigit() else 1  # a chunk may also name its host
        total += times(share, 1 if many is None else many) or 0
    return total if 0 < total < 2**31 else None


def _cpus(fields: dict[str, str], request: dict[str, int | float | None]) -> int | None:
    slots = whole(fields.get("total_execution_slots"))
    used = whole(fields.get("resources_used.ncpus"))
    requested = request["req_cpus"]
    return slots if slots is not None else used if used is not None else int(requested) if requested is not None else None


def _nodes(fields: dict[str, str]) -> dict[str, object]:
    """Nodes out of `n1/0*4+n2/0*4` or `(n1:ncpus=4)+(n2:ncpus=4)`."""
    places = fields.get("exec_host") or fields.get("exec_vnode") or ""
    names = dict.fromkeys(re.split(r"[/:]", place.strip("()"), maxsplit=1)[0] for place in places.split("+") if place)
    count = len(names) or whole(fields.get("unique_node_count"))
    return {"node_list": ",".join(names) or None, "nodes": count}


def _outcome(run: Run, elapsed: float | None, limit: int | float | None) -> dict[str, object]:
    raw = run.fields.get("Exit_status", "")
    status = small(raw) if run.kind in "ER" else None
    state = JobState.REQUEUED if run.kind == "R" else _OPEN_STATES.get(run.kind, JobState.UNKNOWN)
    if run.kind == "E" and status is not None:
        state = pbs_state(status)
        # The server ends a job at its limit by the same signals as qdel does.
        if state is JobState.CANCELLED and limit and elapsed is not None and elapsed >= limit:
            state = JobState.TIMEOUT
    signal = status - _SIGNAL_BASE if status is not None and _SIGNAL_BASE < status < _SIGNAL_BASE + 128 else 0
    requestor = run.fields.get("requestor", "").partition("@")[0]
    return {
        "state": state.value,
        "state_raw": f"{run.kind} {raw}".rstrip() if status is not None else run.kind,
        "exit_code": 0 if signal else status,
        "exit_signal": signal if status is not None else None,
        "cancelled_by": requestor if requestor and state is JobState.CANCELLED else None,
    }


def _extra(fields: dict[str, str], *, whole_array: bool) -> dict[str, str] | None:
    others = {key: value for key, value in fields.items() if key not in _USED}
    if whole_array:
        others["array"] = "whole"  # the record of an array itself, next to those of its tasks
    return others or None
