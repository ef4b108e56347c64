"""`condor_history -json` (and `-jsonl`, and `condor_q -json`) -> job rows.

a list of ClassAds -> one record at a time -> one row per job. ClusterId is the job id, ProcId the task. A large file is read
by columns (`history_columns`), with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.states import JobState, condor_state
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.htcondor.vocabulary import KEPT, MAX_KEPT, host_of_slot, removed_by, removed_state
from stormpetrel.sources.job_rows import MIB, FieldReader, JobBatch, Value, real, small, text, times, unix_time, whole
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import Refused

_COLUMNS: Final = frozenset(
    {
        "job_name", "user", "account", "start_time", "end_time", "state", "state_raw", "cancelled_by", "exit_code", "exit_signal",
        "time_limit_s", "elapsed_s", "cpu_limit_s", "req_cpus", "cpus", "nodes", "req_gpus", "gpus", "req_mem_bytes", "mem_bytes",
        "max_rss_bytes", "cpu_time_s", "user_cpu_s", "system_cpu_s", "disk_read_bytes", "disk_write_bytes", "node_list",
        "work_dir", "script_path", "submit_line", "extra",
    }
)  # fmt: skip
SUBMIT_SLACK_S: Final = 60
BY_COLUMNS_BYTES: Final = 8 * 1024 * 1024  # below it the compiled reader takes longer to load than it saves

_REMOVED: Final = "3"
_HELD: Final = 5
_JSON_START: Final = re.compile(rb"^[ \t\xef\xbb\xbf]*[\[{]", re.MULTILINE)


class CondorHistory(FileSource):
    """A file with the JSON of condor_history."""

    format = "condor-history"

    def __init__(self, path: Path | str, *, time_zone: str = "UTC", cluster: str = "", block_bytes: int | None = None) -> None:
        # Every time in a ClassAd is in Unix seconds: the zone is taken, as by every source, and not needed.
        super().__init__(path, block_bytes)
        self._cluster, self._time_zone = cluster, time_zone

    def fields(self) -> frozenset[str]:
        """The job columns that ClassAds can fill."""
        return _COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The jobs of the file, in its order."""
        self._recognise()
        if self.size_bytes >= BY_COLUMNS_BYTES:
            from stormpetrel.sources.htcondor.history_columns import chunks_by_columns  # numba, which small files need not load

            yield from chunks_by_columns(self._file, cluster=self._cluster)
            return
        batch, done = JobBatch(), 0
        for number, record, done in records_in(self._file, key=None, is_record=is_job_ad):
            take(batch, number, record, self._cluster)
            if batch.is_full:
                yield batch.chunk(done)
        yield batch.chunk(done)

    def _recognise(self) -> None:
        head = self._file.head()
        if head.strip() and not _JSON_START.search(head):
            raise SourceFormatError(
                f"{self.name} is not the JSON of condor_history: no line of its beginning starts with [ or {{.",
                hint="Run condor_history -json > FILE (not -long or the plain table).",
            )


def is_job_ad(record: Record) -> bool:
    """Whether an object is the ClassAd of a job. Names of attributes have no case."""
    return any(name.lower() == "clusterid" for name in record)


def take(batch: JobBatch, number: int, record: Record | Refused, cluster: str) -> None:
    """Take a record into a batch as a row, or as refused."""
    if isinstance(record, tuple):
        batch.refuse_all([record])
        return
    try:
        row = job_row(record, cluster=cluster)
    except ValueError as error:
        batch.refuse(number, "bad_value", str(error), str(record)[:MAX_KEPT])
        return
    batch.add(row, number)


def job_row(record: Record, *, cluster: str) -> dict[str, object]:
    """The ClassAd of a job as a row of the job frame; ValueError where it does not say which job, or since when."""
    ad, fields = {name.lower(): value for name, value in record.items()}, FieldReader()

    def read(column: str, attribute: str, parse: Callable[[object], Value | None]) -> Value | None:
        return fields.read(column, ad.get(attribute), parse)

    start = read("start_time", "jobstartdate", _moment) or read("start_time", "jobcurrentstartdate", _moment)
    elapsed, req_cpus = read("elapsed_s", "remotewallclocktime", real), read("req_cpus", "requestcpus", whole)
    cpus = read("cpus", "cpusprovisioned", whole)
    cpus = req_cpus if cpus is None and start else cpus
    user_s, system_s = read("user_cpu_s", "remoteusercpu", real), read("system_cpu_s", "remotesyscpu", real)
    host = read("node_list", "lastremotehost", text) or read("node_list", "remotehost", text)
    return {
        "cluster": cluster or _schedd(ad) or "cluster",
        "job_id": _needed(ad, "ClusterId"),
        "array_task": _needed(ad, "ProcId"),
        "submit_time": _submit_time(ad),
        "restart": 0,  # the history has one row per job, whatever it went through
        "job_name": read("job_name", "jobbatchname", text),
        "user": read("user", "owner", text),
        "account": _account(ad),
        "start_time": start or None,
        "elapsed_s": elapsed,
        "cpu_limit_s": elapsed * cpus if elapsed is not None and cpus is not None else None,
        "time_limit_s": _time_limit_s(ad),
        "req_cpus": req_cpus,
        "cpus": cpus,
        "nodes": read("nodes", "maxhosts", whole) if start else None,
        "req_gpus": read("req_gpus", "requestgpus", whole),
        "gpus": read("gpus", "gpusprovisioned", whole),
        "req_mem_bytes": times(read("req_mem_bytes", "requestmemory", real), MIB),
        "mem_bytes": times(read("mem_bytes", "memoryprovisioned", real), MIB),
        "max_rss_bytes": _max_rss_bytes(ad),
        "user_cpu_s": user_s,
        "system_cpu_s": system_s,
        "cpu_time_s": user_s + system_s if user_s is not None and system_s is not None else None,
        "disk_read_bytes": times(read("disk_read_bytes", "blockreadkbytes", whole), 1024),
        "disk_write_bytes": times(read("disk_write_bytes", "blockwritekbytes", whole), 1024),
        "node_list": host_of_slot(host),
        "work_dir": read("work_dir", "iwd", text),
        "script_path": read("script_path", "cmd", text),
        "submit_line": _submit_line(ad),
        **_outcome(ad, fields),
        "extra": _extra(ad),
        "unread": fields.unread,
    }


def _moment(value: object) -> datetime | Literal[""] | None:
    """A time out of Unix seconds; empty where it has not happened (0), None where it is no time."""
    return "" if real(value) == 0 else unix_time(value)


def _submit_time(ad: Record) -> datetime | None:
    """The time in GlobalJobId (`schedd#cluster.proc#seconds`), as in the submit event; QDate can be a second earlier."""
    queued = unix_time(_needed(ad, "QDate")) if "qdate" in ad else None
    named = str(ad.get("globaljobid", "")).rpartition("#")[2]
    if queued is None or not (named.isascii() and named.isdigit() and len(named) <= 10):
        return queued
    moment = unix_time(int(named))
    return moment if moment is not None and abs((moment - queued).total_seconds()) <= SUBMIT_SLACK_S else queued


def _needed(ad: Record, name: str) -> int:
    number = whole(ad.get(name.lower()))
    if number is None:
        raise ValueError(f"{name} is not a whole number")
    return number


def _schedd(ad: Record) -> str | None:
    return (text(ad.get("globaljobid")) or "").partition("#")[0] or text(ad.get("scheddname"))


def _account(ad: Record) -> str | None:
    group = text(ad.get("acctgroup"))
    if group:
        return group
    group, owner = text(ad.get("accountinggroup")), text(ad.get("owner"))
    return group.removesuffix(f".{owner}") if group else None  # `group_physics.wren`


def _time_limit_s(ad: Record) -> float | None:
    for name, unit_s in (("allowedjobduration", 1), ("allowedexecuteduration", 1), ("maxwalltimemins", 60), ("maxwalltime", 60)):
        limit = real(ad.get(name))  # maxWallTime of an HTCondor-CE is in minutes
        if limit is not None and limit > 0:
            return limit * unit_s
    return None


def _max_rss_bytes(ad: Record) -> int | None:
    """Resident memory; MemoryUsage (in MB) is often an expression over it, printed as such."""
    for name, unit in (("residentsetsize_raw", 1024), ("residentsetsize", 1024), ("memoryusage", MIB)):
        size = real(ad.get(name))
        if size is not None:
            return times(size, unit)
    return None


def _submit_line(ad: Record) -> str | None:
    command = text(ad.get("cmd"))
    arguments = text(ad.get("arguments")) or text(ad.get("args"))
    return f"{command} {arguments}" if command and arguments else command


def _outcome(ad: Record, fields: FieldReader) -> dict[str, object]:
    status = str(ad.get("jobstatus", "")).strip()
    by_signal = ad.get("exitbysignal") is True
    exit_code = fields.read("exit_code", ad.get("exitcode"), small)
    signal = fields.read("exit_signal", ad.get("exitsignal"), small)
    state = condor_state(status, exit_code=exit_code, exited_by_signal=by_signal)
    reason = text(ad.get("removereason"))
    if status == _REMOVED:
        was_held = whole(ad.get("lastjobstatus")) == _HELD
        state = removed_state(
            reason,
            hold_code=whole(ad.get("lastholdreasoncode")) if was_held else None,
            hold_subcode=whole(ad.get("lastholdreasonsubcode")),
        )
    return {
        "state": state.value if state else None,
        "state_raw": status[:40],
        "end_time": _end(ad, state, fields),
        "exit_code": 0 if by_signal and signal is not None else exit_code,
        "exit_signal": signal if by_signal else 0 if exit_code is not None else None,
        "cancelled_by": removed_by(reason),
    }


def _end(ad: Record, state: JobState | None, fields: FieldReader) -> datetime | None:
    """CompletionDate is 0 or missing while a job has not completed; a removed one ended when it was removed."""
    if state in (None, JobState.PENDING, JobState.RUNNING, JobState.HELD, JobState.SUSPENDED):
        return None
    for name in ("completiondate", "enteredcurrentstatus"):
        moment: datetime | Literal[""] | None = fields.read("end_time", ad.get(name), _moment)
        if moment:
            return moment
    return None


def _extra(ad: Record) -> dict[str, str]:
    kept = {}
    for name in KEPT:
        value = ad.get(name.lower())
        if isinstance(value, bool):
            kept[name] = str(value).lower()
        elif isinstance(value, str | int | float) and value != "":
            kept[name] = text(str(value)[:MAX_KEPT]) or ""
    return kept
