"""slurmctld's own log -> job rows, node incidents and controller restarts: for sites whose accounting is closed to us.

`[2026-11-18T08:25:17.889] message` -> LogEntry -> RunMerger -> one job row per run; NodeEvent for nodes and controllers. The log
names no user, no account and no limit: these columns stay empty. A job whose submission is not in the log is refused, since
its key is not known. Times are local unless LogTimeFormat writes a zone (rfc5424).

slurmctld's log -> counts of events: those of jobs, nodes that went down, were drained or came back, controller starts.

ControllerLog -> job_events + node events -> one CountedSpan of everything that the file tells. Reading it again changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.cursor import CursorOf
from stormpetrel.records.events import (
    EVENT_SCHEMA,
    EventKind,
    bucket_ceil,
    bucket_floor,
    count_events,
    covered,
    set_aside,
)
from stormpetrel.records.job_events import job_events
from stormpetrel.records.jobs import JOB_SCHEMA, job_frame
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import JobState
from stormpetrel.sources.contract import Chunk, CountedSpan, FileSource
from stormpetrel.sources.job_rows import JobBatch, small, span_s
from stormpetrel.sources.lines import Block, sound_lines

_LINE: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?\] (.*)", re.ASCII)
# 12, a task 4_2(9) of array 4, a component 11+1(12) of job 11; 4_* stands for the tasks that wait, which have no rows.
_JOB: Final = r"JobId=(?P<job>\d{1,18}(?:_(?:\d{1,18}|\*)|\+\d{1,9})?(?:\(\d{1,18}\))?)"
_JOB_PARTS: Final = re.compile(r"(\d+)(?:_(\d+|\*)|\+(\d+))?(?:\((\d+)\))?", re.ASCII)
_NODES: Final = r"(?P<nodes>[\w.,\[\]-]{1,4096}|\(null\))"
COLUMNS: Final = frozenset(
    {
        "job_id_raw", "het_job_id", "het_offset", "partition", "start_time", "end_time", "state", "state_raw", "cancelled_by",
        "exit_code", "exit_signal", "elapsed_s", "cpus", "node_list",
    }
)  # fmt: skip
_MAX_OPEN: Final = 200_000  # runs held for a line that may still come; beyond it the oldest is written as it stands
# What a line means, by the words around its JobId. The words are those of Slurm 22.05 to 25.11.
_MEANINGS: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("exit", rf"_job_complete: {_JOB} (?P<how>WEXITSTATUS|WTERMSIG) (?P<code>\d{{1,9}})"),
        ("done", rf"_job_complete: {_JOB} done"),
        ("start", rf"sched: Allocate {_JOB} NodeList={_NODES} #CPUs=(?P<cpus>\d{{1,9}}) Partition=(?P<partition>\S+)"),
        ("start", rf"sched/backfill: _start_job: Started {_JOB} in (?P<partition>\S+) on {_NODES}"),
        ("submit", rf"_slurm_rpc_submit_batch_(?:het_)?job: {_JOB} .*"),
        ("interactive", rf"sched: _slurm_rpc_allocate_resources {_JOB} NodeList={_NODES} .*"),
        ("kill", rf"_slurm_rpc_kill_job: REQUEST_KILL_JOB {_JOB} uid (?P<uid>\d{{1,18}})"),
        ("TIMEOUT", rf"Time limit exhausted for {_JOB}"),
        ("TIMEOUT", rf"\w+: inactivity time limit reached for {_JOB}"),
        ("outcome OUT_OF_MEMORY", rf"_job_complete: {_JOB} OOM failure"),
        ("outcome NODE_FAIL", rf"_job_complete: {_JOB} cancelled by node failure"),
        ("outcome CANCELLED", rf"_job_complete: {_JOB} cancelled by interactive user"),
        ("NODE_FAIL", rf"Killing {_JOB} on (?:failed )?node \S+"),
        ("NODE_FAIL", rf"Killing {_JOB} on defunct partition \S+"),
        ("requeue NODE_FAIL", rf"requeue job {_JOB} due to failure of node \S+"),
        ("requeue NODE_FAIL", rf"_job_complete: requeue {_JOB} due to node failure"),
        ("requeue REQUEUED", rf"_job_complete: requeue {_JOB} per user/system request"),
        ("requeue REQUEUED", rf"Requeuing {_JOB}"),
        ("requeue PREEMPTED", rf"(?:\w+: )?preempted {_JOB} has been requeued.*"),
        ("PREEMPTED", rf"(?:\w+: )?preempted {_JOB} ha(?:s been|d to be) killed.*"),
        ("CANCELLED", rf"_kill_dependent: Job dependency can't be satisfied, cancelling {_JOB}"),
        ("DEADLINE", rf"\w+: {_JOB} with time_(?:min|limit) \d+ exceeded deadline .* and cancelled"),
        ("FAILED", rf"Script for {_JOB} lost, state set to FAILED"),
    )
)
_ABOUT_NODES: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        (EventKind.NODE_DOWN, rf"error: Nodes {_NODES} not responding, setting DOWN"),
        (EventKind.NODE_DOWN, rf"update_node: node {_NODES} state set to (?:DOWN|FAIL)\S*"),
        (EventKind.NODE_DOWN, rf"(?:error: )?Node {_NODES} unexpectedly rebooted.*"),
        (EventKind.NODE_DRAINED, rf"update_node: node {_NODES} state set to DRAIN\S*"),
        (EventKind.NODE_DRAINED, rf"(?:error: )?(?:drain_nodes: node|Prolog/Epilog failure on nodes) {_NODES}.*"),
        (EventKind.NODE_DRAINED, rf"error: Setting node {_NODES} state to INVAL .*"),
        (EventKind.NODE_RETURNED, rf"(?:node_did_resp: )?node {_NODES} returned to service"),
        (EventKind.NODE_RETURNED, rf"update_node: node {_NODES} state set to (?:IDLE|MIXED|ALLOCATED)\S*"),
        # Newer versions put the number of the cluster behind its name.
        (EventKind.CONTROLLER_STARTED, r"slurmctld version \S+ started on cluster (?P<nodes>[^\s()]{1,255})(?:\(\d+\))?"),
    )
)
_INTERESTING: Final = re.compile(rb"JobId=|[Nn]odes? \S|slurmctld version ")


class NodeEvent(NamedTuple):
    """Something that happened to nodes (as Slurm writes them), or a start of the controller (of a cluster)."""

    kind: EventKind
    at: datetime
    nodes: str


@dataclass(slots=True)
class Run:
    """What the log has said of one run of a job."""

    job: str
    line: int
    submit: datetime
    restart: int = 0
    start: datetime | None = None
    end: datetime | None = None
    state: JobState = JobState.PENDING
    outcome: JobState | None = None  # stated before the line that ends the run
    cancelled_by: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    nodes: str | None = None
    partition: str | None = None
    cpus: int | None = None


class ControllerLog(FileSource):
    """A log of slurmctld, whole or as far as it has been written."""

    format = "slurmctld"

    def __init__(self, path: Path | str, *, time_zone: str = "UTC", cluster: str = "", block_bytes: int | None = None) -> None:
        super().__init__(path, block_bytes)
        self._zone, self._cluster = ZoneInfo(time_zone), cluster
        self.node_events: list[NodeEvent] = []  # as far as the file has been read
        self.first: datetime | None = None  # times of the first and the last line
        self.last: datetime | None = None

    def fields(self) -> frozenset[str]:
        """The job columns that the log can fill."""
        return COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The runs of the log, in the order in which they ended; those that did not end come last."""
        batch = JobBatch()
        merger = RunMerger(batch, self._cluster)
        bytes_done, recognised = 0, False
        for block in self._file.blocks():
            recognised = recognised or self._recognise(block)
            lines, refused = sound_lines(block)
            batch.refuse_all([*block.refused, *refused])
            for number, line in lines:
                self._take(number, line, merger, batch)
                if batch.is_full:
                    yield batch.chunk(bytes_done)
            bytes_done = block.bytes_done
        for _ in merger.give_up():
            if batch.is_full:
                yield batch.chunk(bytes_done)
        yield batch.chunk(bytes_done)

    def _take(self, number: int, line: bytes, merger: RunMerger, batch: JobBatch) -> None:
        match = _LINE.fullmatch(line.decode()) if line.startswith(b"[") else None
        if match is None:  # a message of several lines goes on, or the first line of a file that was cut
            batch.count_merged()
            return
        stamp, zone, message = match.groups()
        at = _utc(stamp, zone, self._zone)
        if at is None:
            batch.refuse(number, "bad_value", "the line has a time that does not exist", line.decode())
            return
        self.first, self.last = self.first or at, at
        if _INTERESTING.search(line) is None or not merger.take(number, at, message):
            self._note_nodes(at, message)
            merger.cluster = self._cluster
            batch.count_merged()

    def _note_nodes(self, at: datetime, message: str) -> None:
        for kind, pattern in _ABOUT_NODES:
            if match := pattern.fullmatch(message):
                self.node_events.append(NodeEvent(kind, at, match["nodes"]))
                if kind is EventKind.CONTROLLER_STARTED and not self._cluster:
                    self._cluster = match["nodes"]
                return

    def _recognise(self, block: Block) -> bool:
        head = [line for _, line in sound_lines(block)[0][:1000]]
        if head and not any(_LINE.fullmatch(line.decode()) for line in head):
            raise SourceFormatError(
                f"{self.name} is not a log of slurmctld: no line of its beginning is [YYYY-MM-DDTHH:MM:SS] ….",
                hint="Name the file of SlurmctldLogFile; LogTimeFormat must be iso8601(_ms), the default, or rfc5424(_ms).",
            )
        return bool(head)


class RunMerger:
    """Merges the lines about each run into one row."""

    def __init__(self, batch: JobBatch, cluster: str) -> None:
        self._batch, self.cluster = batch, cluster
        self._open: dict[str, Run] = {}
        self._submitted: dict[str, datetime] = {}  # by the id that sbatch printed: of an array and of a het job all have one
        self._cancelled: dict[str, datetime] = {}  # by a line that stood before that of the submission
        self._ended: dict[str, None] = {}
        self._parts: dict[str, dict[str, None]] = {}  # the open tasks and components of an array or het job
        self._unknown: set[str] = set()  # jobs whose submission is not in the log, each refused once

    def take(self, line: int, at: datetime, message: str) -> bool:
        """One message; whether it is one about a job, which then counts as a row or as merged into one."""
        for kind, pattern in _MEANINGS:
            if match := pattern.fullmatch(message):
                self._note(kind, match, line, at)
                return True
        return False

    def give_up(self) -> Iterator[None]:
        """Write the runs for which no end came, one at a time."""
        for run in self._open.values():
            self._write(run)
            yield
        self._open.clear()

    def _note(self, kind: str, match: re.Match[str], line: int, at: datetime) -> None:
        job = _without_number(match["job"])
        if kind in ("submit", "interactive"):
            self._submit(job, line, at)
        if kind == JobState.CANCELLED and job not in self._open:
            self._cancelled[job] = at
            self._batch.count_merged()
            return
        if kind == "kill" and self._parts.get(job):  # scancel of a whole array or het job
            for part in self._parts[job]:
                self._note_kill(self._open[part], match, at)
            self._batch.count_merged()
            return
        run = self._run_of(job, line)
        if run is not None:
            run.line = line
            if match["job"].startswith(f"{job}("):
                run.job = match["job"]  # with the number that the task or component has for itself
            self._follow(kind, match, run, at)
        elif self._is_new_stranger(job):
            self._batch.refuse(line, "no_submit_time", f"the submission of job {job} is not in the log", match[0])
        else:
            self._batch.count_merged()

    def _follow(self, kind: str, match: re.Match[str], run: Run, at: datetime) -> None:
        word, _, state = kind.partition(" ")
        if word in ("start", "interactive"):
            self._start(run, match, at)
        elif word == "exit":
            self._note_exit(run, match)
        elif word == "outcome":
            run.outcome = JobState(state) if run.start else None
        elif word == "kill":
            self._note_kill(run, match, at)
        elif word == "requeue" and run.start:
            self._end(run, JobState(state), at)
            self._add(Run(run.job, run.line, run.submit, restart=run.restart + 1, partition=run.partition))
            return
        elif word == "done" and run.start:
            self._end(run, _state_of(run), at)
            return
        elif word in JobState.__members__:
            self._end(run, JobState(word), at)
            return
        self._batch.count_merged()

    def _submit(self, job: str, line: int, at: datetime) -> None:
        run = self._open.pop(job, None)
        if run is not None:  # the number came round again
            self._write(run)
        self._ended.pop(job, None)
        self._submitted[job] = at
        self._open[job] = Run(job, line, at)
        if job in self._cancelled:
            self._end(self._open[job], JobState.CANCELLED, max(at, self._cancelled.pop(job)))
        if len(self._open) > _MAX_OPEN:
            oldest = next(iter(self._open.values()))
            self._drop(oldest)
            self._write(oldest)

    def _run_of(self, job: str, line: int) -> Run | None:
        """The run that a line is about; a task or a component begins with the first line that names it."""
        if job in self._open:
            return self._open[job]
        base = _JOB_PARTS.fullmatch(job)
        assert base is not None
        whole, task = base[1], base[2]
        if job in self._ended or task == "*":
            return None
        if whole not in self._submitted or job == whole:
            return None
        self._open.pop(whole, None)  # the array itself is no job
        self._ended[whole] = None
        self._add(Run(job, line, self._submitted[whole]))
        return self._open[job]

    def _add(self, run: Run) -> None:
        name = _without_number(run.job)
        self._open[name] = run
        whole = _whole(name)
        if whole != name:
            self._parts.setdefault(whole, {})[name] = None

    def _drop(self, run: Run) -> None:
        name = _without_number(run.job)
        self._open.pop(name, None)
        parts = self._parts.get(_whole(name), {})
        parts.pop(name, None)
        if not parts:
            self._parts.pop(_whole(name), None)

    def _note_kill(self, run: Run, match: re.Match[str], at: datetime) -> None:
        run.outcome, run.cancelled_by, run.end = JobState.CANCELLED, match["uid"], at

    def _is_new_stranger(self, job: str) -> bool:
        """Whether a job that was never submitted, as far as the log goes, is met for the first time."""
        is_new = not (job in self._ended or job in self._unknown or "*" in job or len(self._unknown) >= _MAX_OPEN)
        if is_new:
            self._unknown.add(job)
        return is_new

    def _start(self, run: Run, match: re.Match[str], at: datetime) -> None:
        named = match.groupdict()
        if named["nodes"] == "(null)":  # an interactive job that waits
            return
        run.start, run.end, run.state, run.nodes = at, None, JobState.RUNNING, named["nodes"]
        run.partition = named.get("partition") or run.partition
        run.cpus = small(named.get("cpus")) if named.get("cpus") else run.cpus

    def _note_exit(self, run: Run, match: re.Match[str]) -> None:
        if run.start is None:
            return
        code = small(match["code"])
        if match["how"] == "WEXITSTATUS":
            run.exit_code, run.exit_signal = code, 0
        else:
            run.exit_code, run.exit_signal = 0, code

    def _end(self, run: Run, state: JobState, at: datetime) -> None:
        run.state, run.end = state, at
        run.outcome = None
        self._drop(run)
        self._write(run)
        self._ended[_without_number(run.job)] = None
        if len(self._ended) > _MAX_OPEN:
            del self._ended[next(iter(self._ended))]

    def _write(self, run: Run) -> None:
        if run.outcome is not None and run.end is not None:  # killed, and nothing came after it
            run.state = run.outcome
        self._batch.add(_row(run, self.cluster or "cluster"), run.line)


def _without_number(job: str) -> str:
    """The name of a run without the number of its own: 4_2(9) is 4_2, as scancel and some lines call it."""
    return job.partition("(")[0]


def _whole(job: str) -> str:
    """The id that sbatch printed: 4 of the task 4_2 and of the component 4+1."""
    return job.partition("_")[0].partition("+")[0]


def _state_of(run: Run) -> JobState:
    """How a run ended whose last line is `done`."""
    if run.outcome is JobState.CANCELLED and run.cancelled_by and (run.exit_code, run.exit_signal) == (0, 0):
        return JobState.COMPLETED  # scancel --signal: it was not killed by it
    if run.outcome is not None:
        return run.outcome
    return JobState.FAILED if run.exit_code or run.exit_signal else JobState.COMPLETED


def _row(run: Run, cluster: str) -> dict[str, object]:
    parts = _JOB_PARTS.fullmatch(run.job)
    assert parts is not None
    whole, task, component, raw = parts.groups()
    number, offset = int(whole), int(component) if component else 0
    over = run.end is not None and run.state is not JobState.RUNNING
    return {
        "cluster": cluster,
        "job_id": number + offset,
        "array_task": int(task) if task and task != "*" else None,
        "submit_time": run.submit,
        "restart": run.restart,
        "job_id_raw": int(raw) if raw else number,
        "het_job_id": number if component else None,
        "het_offset": offset if component else None,
        "partition": run.partition,
        "start_time": run.start,
        "end_time": run.end if over else None,
        "state": run.state.value,
        "state_raw": run.state.value,
        "cancelled_by": run.cancelled_by if run.state is JobState.CANCELLED else None,
        "exit_code": run.exit_code,
        "exit_signal": run.exit_signal,
        "elapsed_s": span_s(run.start, run.end) if over else None,
        "cpus": run.cpus,
        "node_list": run.nodes,
    }


@lru_cache(maxsize=4096)  # lines come in bursts
def _utc(stamp: str, zone: str | None, local: ZoneInfo) -> datetime | None:
    """The time of a line: local, the first pass of a doubled hour, unless it has a zone of its own."""
    try:
        at = datetime.fromisoformat(stamp + (zone or ""))
        return (at if zone else at.replace(tzinfo=local)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class ControllerEvents:
    """A log of slurmctld as events; it has been seen whole from its first line to its last."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.source = f"slurmctld:{path.name}"
        self.notes: list[str] = []
        self._path, self._settings = path, settings
        self._bucket_s = settings.events.bucket_minutes * 60

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """One span: everything that the log tells."""
        site, events = self._settings.site, self._settings.events
        log = ControllerLog(self._path, time_zone=site.time_zone, cluster=site.cluster)
        jobs = pl.concat([job_frame([]), *(chunk.records.select(list(JOB_SCHEMA)) for chunk in log.chunks())])
        self.notes += log.notes
        happened = pl.concat([job_events(jobs, fast_failure_s=events.fast_failure_s), _of_nodes(log.node_events, site.cluster)])
        good, aside = set_aside(happened, now=now)
        counts = count_events(good, source=self.source, bucket_s=self._bucket_s, most_places=events.most_places)
        first = log.first or now
        last = max(first, log.last or now)
        marks = covered(self.source, first, last, self._bucket_s, counts)
        start, end = bucket_floor(first, self._bucket_s), bucket_ceil(last + timedelta(microseconds=1), self._bucket_s)
        yield CountedSpan(start, end, pl.concat([counts, marks]), quarantined=aside, done=1.0)


def _of_nodes(node_events: list[NodeEvent], cluster: str) -> pl.DataFrame:
    """One event per node; a start of the controller has no node."""
    rows = [
        {"time": event.at, "kind": event.kind.value, "site": cluster or None, "submit_host": None, "group": None, "node": node}
        for event in node_events
        for node in ([None] if event.kind is EventKind.CONTROLLER_STARTED else expand_nodes(event.nodes))
    ]
    return pl.DataFrame(rows, schema=EVENT_SCHEMA)
