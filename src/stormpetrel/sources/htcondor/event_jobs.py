"""HTCondor job event logs -> job rows.

events of `event_log` -> merged by (cluster, proc) -> one row per job, as it stands at the end of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.records.states import JobState
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.htcondor import event_log, vocabulary
from stormpetrel.sources.htcondor.event_log import CondorEvent
from stormpetrel.sources.htcondor.vocabulary import host_of_address, host_of_slot, removed_by, removed_state
from stormpetrel.sources.job_rows import MIB, FieldReader, JobBatch, clock_s, real, small, span_s, text, times, whole

COLUMNS: Final = frozenset(
    {
        "user", "start_time", "end_time", "state", "state_raw", "cancelled_by", "exit_code", "exit_signal", "elapsed_s",
        "cpu_limit_s", "req_cpus", "cpus", "req_gpus", "gpus", "req_mem_bytes", "mem_bytes", "max_rss_bytes", "cpu_time_s",
        "user_cpu_s", "system_cpu_s", "node_list", "extra",
    }
)  # fmt: skip
_MAX_OPEN: Final = 200_000  # jobs held for events that may still come; beyond it the oldest becomes a row as it stands
_MAX_ENDED: Final = 10_000  # ended jobs held for the 028 that follows the end
_USAGE: Final = re.compile(r"Usr (\d{1,6}) ([\d:]{8}), Sys (\d{1,6}) ([\d:]{8})", re.ASCII)
_STATES: Final = {
    vocabulary.SUBMIT: JobState.PENDING,
    vocabulary.EXECUTE: JobState.RUNNING,
    vocabulary.EVICTED: JobState.PENDING,
    vocabulary.SHADOW_EXCEPTION: JobState.PENDING,
    vocabulary.RECONNECT_FAILED: JobState.PENDING,
    vocabulary.SUSPENDED: JobState.SUSPENDED,
    vocabulary.UNSUSPENDED: JobState.RUNNING,
    vocabulary.HELD: JobState.HELD,
    vocabulary.RELEASED: JobState.PENDING,
}
_KEPT: Final = (
    "HoldReason", "HoldReasonCode", "HoldReasonSubCode", "RequestDisk", "DiskUsage", "CpusUsage", "GPUsUsage", "DAGNodeName",
    "JobUniverse", "RemoveReason",
)  # fmt: skip


class CondorEvents(FileSource):
    """A job event log of HTCondor: that of one user, or the EVENT_LOG of a whole access point."""

    format = "condor-events"

    def __init__(
        self,
        path: Path | str,
        *,
        time_zone: str = "UTC",
        cluster: str = "",
        year: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        super().__init__(path, block_bytes)
        self._zone = ZoneInfo(time_zone)
        self._cluster, self._year = cluster, year

    def fields(self) -> frozenset[str]:
        """The job columns that events can fill."""
        return COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The jobs of the log, ended ones first."""
        batch, done = JobBatch(), 0
        merger = JobMerger(batch, self._cluster)
        for event, done in event_log.events_in(self._file, zone=self._zone, year=self._year, notes=self.notes):
            if isinstance(event, tuple):
                batch.refuse_all([event])
            else:
                merger.take(event)
            if batch.is_full:
                yield batch.chunk(done)
        for _ in merger.finish():
            if batch.is_full:
                yield batch.chunk(done)
        yield batch.chunk(done)


Place = tuple[str, int]  # identity of a file, and a position in it


@dataclass(slots=True)
class _Job:
    """What the events so far tell of a job."""

    line: int
    job_id: int
    proc: int
    begin: Place | None = None  # from where its first event is read again, in a log that is followed
    state: JobState = JobState.UNKNOWN
    state_raw: str = ""
    submit: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    run_start: datetime | None = None
    lost: datetime | None = None  # when contact with the running job was lost
    elapsed_s: float | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    host: str | None = None
    rss_kb: int = -1
    memory_mb: int = -1
    evictions: int = 0
    attributes: dict[str, object] = field(default_factory=dict)


class JobMerger:
    """Merges the events of each job into one row, which goes into a batch.

    A file that is read once has its rows when a job is forgotten, and at `finish`. In a log that is followed, `tell_touched` adds
    the rows of all jobs that had an event since it was last called; a job whose submission is not in the log has no row then.
    """

    def __init__(self, batch: JobBatch, cluster: str, *, followed: bool = False, most_ended: int = _MAX_ENDED) -> None:
        self._batch, self._cluster, self._followed = batch, cluster, followed
        self._open: dict[tuple[int, int], _Job] = {}
        self._ended: dict[tuple[int, int], _Job] = {}
        self._limits = ((self._open, _MAX_OPEN), (self._ended, most_ended))
        self._touched: dict[tuple[int, int], _Job] = {}
        self.without_submit = 0  # jobs that were left out

    def take(self, event: CondorEvent, begin: Place | None = None) -> None:
        """Merge an event into its job; `begin` is from where it is read again after a restart."""
        if event.cluster < 0 or event.proc < 0:  # of the log itself, not of a job
            self._batch.count_merged()
            return
        key = event.cluster, event.proc
        job = self._open.get(key) or self._ended.get(key)
        if job and job.end and event.number == vocabulary.SUBMIT and (event.time > job.end or not event.is_copy):
            self._forget(key, self._ended)  # the numbers of jobs have begun anew
            job = None
        if job or self._followed:
            self._batch.count_merged()
        if not job:
            job = self._open[key] = _Job(event.line, event.cluster, event.proc, begin)
        _apply(event, job)
        if self._followed:
            self._touched[key] = job
        if job.end and key in self._open:
            self._ended[key] = self._open.pop(key)
        for waiting, limit in self._limits:
            if len(waiting) > limit:
                self._forget(next(iter(waiting)), waiting)

    def finish(self) -> Iterator[None]:
        """Add the rows of all the jobs that are left, one at a time."""
        for waiting in (self._ended, self._open):
            for job in waiting.values():
                self._note(job)
                yield
            waiting.clear()

    def report_touched(self) -> Iterator[None]:
        """Add the rows of the jobs that had an event since the last call, one at a time."""
        for job in self._touched.values():
            self._note(job)
            yield
        self._touched.clear()

    def begins(self) -> Iterator[Place]:
        """From where each job that is still held is read again."""
        for waiting in (self._open, self._ended):
            yield from (job.begin for job in waiting.values() if job.begin is not None and job.submit is not None)

    def _forget(self, key: tuple[int, int], waiting: dict[tuple[int, int], _Job]) -> None:
        job = waiting.pop(key)
        if not self._followed or self._touched.pop(key, None) is not None:
            self._note(job)

    def _note(self, job: _Job) -> None:
        if self._followed and job.submit is None:
            self.without_submit += 1
            return
        self._batch.add(_row(job, self._cluster), job.line)


def _apply(event: CondorEvent, job: _Job) -> None:
    _learn(event, job)
    if job.end:  # nothing but more about the end can follow it
        return
    _time_runs(event, job)
    if event.number == vocabulary.SUBMIT:
        job.submit = job.submit or event.time
    if event.number == vocabulary.TERMINATED:
        _terminate(event, job)
    elif event.number == vocabulary.ABORTED:
        job.state, job.state_raw, job.end = _removed(job), f"{event.number:03}", event.time
    elif event.number in _STATES:
        job.state, job.state_raw = _STATES[event.number], f"{event.number:03}"


def _learn(event: CondorEvent, job: _Job) -> None:
    if event.number == vocabulary.HELD and not event.is_copy:
        job.attributes.pop("HoldReasonCode", None)  # of the hold before
    job.attributes.update(event.attributes)
    if event.number == vocabulary.ABORTED and "Reason" in event.attributes:
        job.attributes["RemoveReason"] = event.attributes["Reason"]
    job.rss_kb = max(job.rss_kb, whole(event.attributes.get("ResidentSetSize")) or -1)
    job.memory_mb = max(job.memory_mb, whole(event.attributes.get("MemoryUsage")) or -1)


def _time_runs(event: CondorEvent, job: _Job) -> None:
    if event.number == vocabulary.EXECUTE:
        _begin_run(event, job)
    elif event.number in vocabulary.ENDS_RUN:
        _end_run(event, job)
    elif event.number == vocabulary.DISCONNECTED:
        job.lost = job.lost or event.time
    elif event.number == vocabulary.RECONNECTED:
        job.lost = None


def _begin_run(event: CondorEvent, job: _Job) -> None:
    job.start = job.start or event.time
    if not (event.is_copy and job.run_start):
        job.run_start = event.time
    slot, address = text(event.attributes.get("SlotName")), text(event.attributes.get("ExecuteHost"))
    job.host = host_of_slot(slot) or _host_in(address) or job.host


def _end_run(event: CondorEvent, job: _Job) -> None:
    if job.run_start is None:
        return
    # Of a job that was not found again nobody knows whether it ran on.
    end = job.lost if job.lost and event.number == vocabulary.RECONNECT_FAILED else event.time
    job.elapsed_s = (job.elapsed_s or 0.0) + (span_s(job.run_start, end) or 0.0)
    job.run_start = job.lost = None
    job.evictions += event.number == vocabulary.EVICTED


def _terminate(event: CondorEvent, job: _Job) -> None:
    value, signal = (small(event.attributes.get(name)) for name in ("ReturnValue", "TerminatedBySignal"))
    job.end = event.time
    if value is not None:
        job.state, job.state_raw = JobState.FAILED if value else JobState.COMPLETED, f"005 (return value {value})"
        job.exit_code, job.exit_signal = value, 0
        return
    job.state, job.state_raw = JobState.FAILED, "005"
    if signal is not None:
        job.state_raw, job.exit_code, job.exit_signal = f"005 (signal {signal})", 0, signal


def _removed(job: _Job) -> JobState:
    was_held = job.state is JobState.HELD
    return removed_state(
        text(job.attributes.get("RemoveReason")),
        hold_code=whole(job.attributes.get("HoldReasonCode")) if was_held else None,
        hold_subcode=whole(job.attributes.get("HoldReasonSubCode")),
    )


def _host_in(address: str | None) -> str | None:
    return host_of_address(address) if address else address


def _row(job: _Job, cluster: str) -> dict[str, object]:
    attributes, fields = job.attributes, FieldReader()
    cpus = fields.read("cpus", attributes.get("Cpus"), whole)
    elapsed = None if job.run_start else job.elapsed_s
    rss, memory = times(job.rss_kb, 1024), times(job.memory_mb, MIB)
    return {
        "cluster": cluster or _host_in(text(attributes.get("SubmitHost"))) or "cluster",
        "job_id": job.job_id,
        "array_task": job.proc,
        "submit_time": job.submit,
        "restart": 0,  # as in the history: one row per job, whatever it went through
        "user": text(attributes.get("Owner")),
        "start_time": job.start,
        "end_time": job.end,
        "state": job.state.value,
        "state_raw": job.state_raw,
        "cancelled_by": removed_by(text(attributes.get("RemoveReason"))),
        "exit_code": job.exit_code,
        "exit_signal": job.exit_signal,
        "elapsed_s": elapsed,
        "cpu_limit_s": elapsed * cpus if elapsed is not None and cpus is not None else None,
        "cpus": cpus,
        "req_cpus": fields.read("req_cpus", attributes.get("RequestCpus"), whole),
        "gpus": fields.read("gpus", attributes.get("GPUs"), whole),
        "req_gpus": fields.read("req_gpus", attributes.get("RequestGPUs"), whole),
        "mem_bytes": times(fields.read("mem_bytes", attributes.get("Memory"), real), MIB),
        "req_mem_bytes": times(fields.read("req_mem_bytes", attributes.get("RequestMemory"), real), MIB),
        "max_rss_bytes": rss if job.rss_kb > 0 else memory if job.memory_mb > 0 else None,
        **_cpu_times(attributes, fields),
        "node_list": job.host,
        "extra": _extra(job),
        "unread": fields.unread,
    }


def _cpu_times(attributes: dict[str, object], fields: FieldReader) -> dict[str, object]:
    usage = text(attributes.get("TotalRemoteUsage")) or text(attributes.get("RunRemoteUsage"))
    match = fields.read("cpu_time_s", usage, lambda written: _USAGE.fullmatch(written or ""))
    if not match:
        return {}
    user, system = (int(match[day]) * 86400.0 + (clock_s(match[day + 1]) or 0.0) for day in (1, 3))
    return {"user_cpu_s": user, "system_cpu_s": system, "cpu_time_s": user + system}


def _extra(job: _Job) -> dict[str, str] | None:
    kept = {name: str(value) for name in _KEPT if (value := job.attributes.get(name)) is not None}
    if job.evictions:
        kept["Evictions"] = str(job.evictions)
    return kept or None
