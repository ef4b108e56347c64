"""Slurm's JSON -> job rows: `sacct --json`, `squeue --json`, and what slurmrestd answers.

The shape changed with each data parser (v0.0.38 … v0.0.45): numbers became `{"set", "infinite", "number"}`, states became lists.
Each field is read in whatever shape it comes in; docs/sources says which versions were recorded from a running Slurm. A value
that cannot be read is null and noted as unread: only id, submit time and state refuse a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from stormpetrel.records.doubts import MEMORY_PER_CPU_FLAG, names_text
from stormpetrel.records.quality import rejects
from stormpetrel.records.states import FINISHED, JobState, slurm_state
from stormpetrel.sources.contract import Chunk, FileSource, chunk_of_jobs
from stormpetrel.sources.job_rows import has_value, text
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import Refused
from stormpetrel.sources.slurm.energy import energy_of
from stormpetrel.sources.slurm.json_fields import (
    SAMPLED_S,
    JsonFields,
    moment_of,
    number_of,
    object_of,
    requested_mib,
    step_use,
    text_of,
)
from stormpetrel.sources.slurm.sacct_fields import script_of

ROWS_PER_CHUNK: Final = 20_000
_MIB: Final = 1024 * 1024
_YEAR_MIN: Final = 525_600  # v0.0.38 prints an unlimited time as 365 days

_COMMON: Final = frozenset(
    {
        "job_id_raw", "het_job_id", "het_offset", "job_name", "user", "group", "account", "partition", "qos", "eligible_time",
        "start_time", "end_time", "state", "state_raw", "time_limit_s", "elapsed_s", "cpu_limit_s", "req_cpus", "cpus",
        "nodes", "req_gpus", "gpus", "req_mem_bytes", "mem_bytes", "node_list", "work_dir", "req_tres", "alloc_tres", "extra",
    }
)  # fmt: skip
_ACCOUNTING: Final = frozenset(
    {
        "cancelled_by", "max_rss_bytes", "cpu_time_s", "user_cpu_s", "system_cpu_s", "busy_gpus", "gpu_mem_bytes",
        "energy_j",
    }
)  # fmt: skip
_FAILED_STEP: Final = frozenset({"failed_step", "failed_step_exit_code", "failed_step_exit_signal"})
_EXIT: Final = frozenset({"exit_code", "exit_signal"})


class SlurmJson(FileSource):
    """A file with the output of `sacct --json` or `squeue --json`."""

    format = "sacct-json"

    def __init__(self, path: Path | str, *, cluster: str = "cluster", raw_ids: Collection[int] | None = None) -> None:
        super().__init__(path)
        self._cluster = cluster
        self._raw_ids = raw_ids  # read these jobs only
        self._fields: frozenset[str] | None = None

    def fields(self) -> frozenset[str]:
        """The job columns these records fill; known once the first record has been read."""
        return self._fields or _COMMON

    def chunks(self) -> Iterator[Chunk]:
        """The jobs of the document, some thousands at a time."""
        batch = RowBatch(self._cluster)
        for number, record, done in records_in(self._file, key="jobs", is_record=is_job_record):
            if isinstance(record, tuple):
                batch.refuse(record)
            elif self._raw_ids is None or record.get("job_id") in self._raw_ids:
                if self._fields is None:
                    self._fields = fields_of(record)
                batch.add(number, record)
            if batch.read >= ROWS_PER_CHUNK:
                yield batch.chunk(done)
        yield batch.chunk(self.size_bytes)


class RowBatch:
    """Job rows waiting to become a chunk."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._rows: list[dict[str, object]] = []
        self._lines: list[int] = []
        self._refused: list[Refused] = []
        self.read = 0

    def add(self, number: int, record: Record) -> None:
        """Take in a record, or refuse it where it cannot be read."""
        self.read += 1
        try:
            row = job_row(record, default_cluster=self._cluster)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self._refused.append((number, "bad_value", f"the record cannot be read: {error}"[:200], str(record)[:4096]))
            return
        self._rows.append(row)
        self._lines.append(number)

    def refuse(self, refusal: Refused) -> None:
        """Count a record that was no JSON."""
        self.read += 1
        self._refused.append(refusal)

    def chunk(self, done: int) -> Chunk:
        """Everything taken in since the last chunk."""
        chunk = chunk_of_jobs(self._rows, self._lines, read=self.read, rejects=rejects(self._refused), bytes_done=done)
        self._rows, self._lines, self._refused, self.read = [], [], [], 0
        return chunk


def is_job_record(record: Record) -> bool:
    """Whether an object is a job of sacct or squeue."""
    return "job_id" in record and ("job_state" in record or "state" in record) and ("time" in record or "submit_time" in record)


def fields_of(record: Record) -> frozenset[str]:
    """The job columns that records of this shape fill. Before v0.0.40 slurmdb says 0 for every exit code: not counted."""
    if "job_state" in record:
        columns = (_COMMON - {"elapsed_s", "cpu_limit_s", "mem_bytes"}) | _EXIT | {"uid", "gid", "req_nodes"}
        return columns | {"submit_line", "script_path"} if "submit_line" in record else columns
    exit_code = record.get("exit_code")
    believable = isinstance(exit_code, dict) and isinstance(exit_code.get("return_code"), dict)
    columns = _COMMON | _ACCOUNTING | (_EXIT | _FAILED_STEP if believable else frozenset())
    return columns | {"submit_line", "script_path"} if "submit_line" in record else columns


def listed_facts(record: Record, reason_class: Callable[[str | None], str]) -> tuple[object, ...]:
    """What a controller's list is made of: raw id, id, tasks, state, submission, and a line that changes when the job does."""
    identity = _identity(record["job_id"], record.get("array_job_id"), record.get("array_task_id"), None, None, JsonFields())
    task, waiting = identity["array_task"], text_of(record.get("array_task_string"))
    tasks = (str(task) if task is not None else waiting) if number_of(record.get("array_job_id")) else None
    state = _joined(record["job_state"])
    fields = JsonFields()
    waits = slurm_state(state) in (JobState.PENDING, JobState.HELD)
    start = None if waits else fields.number("start_time", record.get("start_time"))
    sizes = [fields.number(name, record.get(name)) for name in ("time_limit", "cpus", "node_count")]
    line = (
        tasks,
        state,
        number_of(record["submit_time"]),
        start,
        *sizes,
        record.get("partition"),
        _reason_of(record, reason_class),
    )
    return identity["job_id_raw"], identity["job_id"], tasks, state, _submit_time(record["submit_time"]), "|".join(map(str, line))


def _reason_of(record: Record, reason_class: Callable[[str | None], str]) -> str:
    reason = record.get("state_reason")
    return reason_class(None if reason is None else str(reason))


def job_row(record: Record, *, default_cluster: str) -> dict[str, object]:
    """A job of Slurm's JSON as a row of the job frame."""
    return _from_squeue(record, default_cluster) if "job_state" in record else _from_sacct(record, default_cluster)


def _from_sacct(job: Record, default_cluster: str) -> dict[str, object]:
    fields = JsonFields()
    times, array, state_part = _needed(job, "time"), job.get("array") or {}, _needed(job, "state")
    het = fields.part("het_job_id", job.get("het"))
    tres = fields.part("alloc_tres", job.get("tres"))
    requested, allocated = _tres(tres.get("requested"), "req_", fields), _tres(tres.get("allocated"), "", fields)
    raw_state = _joined(state_part["current"])
    state = slurm_state(raw_state)
    elapsed = fields.number("elapsed_s", times.get("elapsed"))
    limit = fields.number("time_limit_s", times.get("limit"))
    if limit == 0 or (isinstance(times.get("limit"), int) and limit == _YEAR_MIN):
        limit = None
    exit_code, exit_signal = fields.exit("exit_code", job.get("exit_code"))
    cpus, nodes = allocated.get("cpu"), allocated.get("node")
    required = fields.part("req_cpus", job.get("required"))
    has_started = bool(elapsed or allocated or {"elapsed_s", "alloc_tres", "cpus"} & fields.unread.keys())
    req_cpus = fields.number("req_cpus", required.get("CPUs")) or requested.get("cpu")
    memory, flagged = requested.get("mem"), False
    if not memory:
        memory, flagged = requested_mib(required, cpus or req_cpus, nodes or requested.get("node"), fields)
    steps = fields.list_of("max_rss_bytes", job.get("steps"))
    used, doubts = step_use(steps, fields, nodes=nodes, sampled=state in FINISHED and (elapsed or 0) >= SAMPLED_S)
    if not (allocated.get("gpu") or requested.get("gpu")):
        used |= {"busy_gpus": None, "gpu_mem_bytes": None}  # 0 of none is no use of any
    marks = {MEMORY_PER_CPU_FLAG} if flagged else set()
    return {
        **_identity(job["job_id"], array.get("job_id"), array.get("task_id"), het.get("job_id"), het.get("job_offset"), fields),
        "cluster": text_of(job.get("cluster")) or default_cluster,
        "submit_time": _submit_time(times.get("submission")),
        "restart": 0,
        "job_name": text_of(job.get("name")),
        "user": text_of(job.get("user")) or text_of(object_of(job.get("association")).get("user")),
        "group": text_of(job.get("group")),
        "account": text_of(job.get("account")),
        "partition": text_of(job.get("partition")),
        "qos": text_of(job.get("qos")),
        "eligible_time": fields.time("eligible_time", times.get("eligible")),
        "start_time": fields.time("start_time", times.get("start")) if has_started else None,
        "end_time": fields.time("end_time", times.get("end")) if state not in (JobState.RUNNING, JobState.PENDING) else None,
        "state": state,
        "state_raw": raw_state,
        "cancelled_by": text_of(job.get("kill_request_user")) if state is JobState.CANCELLED else None,
        "exit_code": exit_code,
        "exit_signal": exit_signal,
        "time_limit_s": limit * 60.0 if limit is not None else None,
        "elapsed_s": _float(elapsed),
        "cpu_limit_s": None if {"elapsed_s", "cpus"} & fields.unread.keys() else float((elapsed or 0) * (cpus or 0)),
        "req_cpus": req_cpus,
        "cpus": cpus,
        "nodes": nodes,
        "req_gpus": requested.get("gpu"),
        "gpus": allocated.get("gpu"),
        "req_mem_bytes": _mib(memory),
        "mem_bytes": _mib(allocated.get("mem")),
        "node_list": fields.nodes(job.get("nodes")),
        "work_dir": text_of(job.get("working_directory")),
        "submit_line": text_of(job.get("submit_line")),
        "script_path": script_of(text_of(job.get("submit_line"))),
        "req_tres": requested.get("text"),
        "alloc_tres": allocated.get("text"),
        **_failed_step(steps, fields),
        **used,
        "energy_j": _energy(allocated.get("energy"), steps, fields, nodes=nodes),
        "quality": names_text(marks | doubts),
        "extra": _extra(
            comment=object_of(job.get("comment")).get("job"),
            reason=state_part.get("reason"),
            constraints=job.get("constraints"),
            reservation=object_of(job.get("reservation")).get("name"),
            wckey=object_of(job.get("wckey")).get("wckey"),
            priority=_plain_number(job.get("priority")),
            pending_tasks=array.get("task"),
            restarts=_plain_number(job.get("restart_cnt")),
            suspended_s=_plain_number(times.get("suspended")) or None,
            container=job.get("container"),
            flags=_joined(job.get("flags") or []),
        ),
        "unread": fields.unread,
    }


def _from_squeue(job: Record, default_cluster: str) -> dict[str, object]:
    fields = JsonFields()
    raw_state = _joined(job["job_state"])
    state = slurm_state(raw_state)
    finished = state not in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.HELD)
    # Of a pending job it is the scheduler's guess; of one that was cancelled before it started, the moment of that.
    started = state not in (JobState.PENDING, JobState.HELD) and (not finished or bool(text_of(job.get("nodes"))))
    limit = fields.number("time_limit_s", job.get("time_limit"))
    exit_code, exit_signal = fields.exit("exit_code", job.get("exit_code")) if finished else (None, None)
    cpus, nodes = fields.number("req_cpus", job.get("cpus")), fields.number("nodes", job.get("node_count"))
    memory, flagged = requested_mib(job, cpus, nodes, fields)
    requested = _from_tres_text(text_of(job.get("tres_req_str")))
    allocated = _from_tres_text(text_of(job.get("tres_alloc_str")))
    return {
        **_identity(
            job["job_id"],
            job.get("array_job_id"),
            job.get("array_task_id"),
            job.get("het_job_id"),
            job.get("het_job_offset"),
            fields,
        ),
        "cluster": text_of(job.get("cluster")) or default_cluster,
        "submit_time": _submit_time(job.get("submit_time")),
        "restart": 0,
        "job_name": text_of(job.get("name")),
        "user": text_of(job.get("user_name")),
        "uid": fields.number("uid", job.get("user_id")),
        "group": text_of(job.get("group_name")),
        "gid": fields.number("gid", job.get("group_id")),
        "account": text_of(job.get("account")),
        "partition": text_of(job.get("partition")),
        "qos": text_of(job.get("qos")),
        "eligible_time": fields.time("eligible_time", job.get("eligible_time")),
        "start_time": fields.time("start_time", job.get("start_time")) if started else None,
        "end_time": fields.time("end_time", job.get("end_time")) if finished else None,
        "state": JobState.HELD if job.get("hold") is True and state is JobState.PENDING else state,
        "state_raw": raw_state,
        "exit_code": exit_code,
        "exit_signal": exit_signal,
        "time_limit_s": limit * 60.0 if limit is not None else None,
        "req_cpus": requested.get("cpu") or cpus,
        "cpus": allocated.get("cpu"),
        "req_nodes": requested.get("node"),
        "nodes": nodes if started else None,
        "req_gpus": requested.get("gpu"),
        "gpus": allocated.get("gpu"),
        "req_mem_bytes": _mib(memory),
        "node_list": fields.nodes(job.get("nodes")),
        "work_dir": text_of(job.get("current_working_directory")),
        "submit_line": text_of(job.get("submit_line")),
        "script_path": script_of(text_of(job.get("submit_line"))),
        "req_tres": text_of(job.get("tres_req_str")),
        "alloc_tres": text_of(job.get("tres_alloc_str")),
        "quality": MEMORY_PER_CPU_FLAG if flagged else None,
        "extra": _extra(
            comment=job.get("comment"),
            reason=job.get("state_reason"),
            pending_tasks=job.get("array_task_string"),
            dependency=job.get("dependency"),
            reason_detail=job.get("state_description"),
            licenses=job.get("licenses"),
            reservation=job.get("resv_name"),
            required_nodes=job.get("required_nodes"),
            constraints=job.get("features"),
            command=job.get("command"),
            wckey=job.get("wckey"),
            restarts=_plain_number(job.get("restart_cnt")),
        ),
        "unread": fields.unread,
    }


def _needed(job: Record, name: str) -> Record:
    if not isinstance(job[name], dict):
        raise ValueError(f"{name} is no object")
    return job[name]  # type: ignore[no-any-return]


def _submit_time(value: object) -> datetime | None:
    """The time of submission; ValueError where it cannot be read."""
    return moment_of(number_of(value))


def _plain_number(value: object) -> object:
    """A number for `extra`; what is none as it is."""
    try:
        return number_of(value)
    except ValueError:
        return value if has_value(value) else None


def _identity(
    job_id: object, array_id: object, task: object, het_id: object, offset: object, fields: JsonFields
) -> dict[str, object]:
    raw, array, het = number_of(job_id), number_of(array_id), fields.number("het_job_id", het_id)
    if raw is None:
        raise ValueError("job_id is not a number")
    return {
        "job_id": array or raw,
        "job_id_raw": raw,
        "array_task": number_of(task) if array else None,
        "het_job_id": het or None,
        "het_offset": fields.number("het_offset", offset) if het else None,
    }


def _energy(own: int | None, steps: list[Record], fields: JsonFields, *, nodes: int | None) -> int | None:
    """The joules of a job; those of a step are under its statistics."""
    consumed = [object_of(object_of(step.get("statistics")).get("energy")).get("consumed") for step in steps]
    joules = [fields.number("energy_j", value) for value in consumed]
    names = [_step_name(step) for step in steps]
    return energy_of(own, zip(names, joules, strict=True), nodes=nodes)


def _failed_step(steps: list[Record], fields: JsonFields) -> dict[str, object]:
    """The first step that failed; the batch step repeats the exit code of what ran in it."""
    ended = [(step, name) for step in steps if (name := _step_name(step)) != "extern"]
    failed = [(name, *fields.exit("failed_step_exit_code", step.get("exit_code"))) for step, name in ended]
    failed = [step for step in failed if step[1] or step[2]]
    failed.sort(key=lambda step: step[0] == "batch")
    first = failed[0] if failed else (None, None, None)
    return {"failed_step": first[0], "failed_step_exit_code": first[1], "failed_step_exit_signal": first[2]}


def _step_name(step: Record) -> str:
    identity = object_of(step.get("step")).get("id")
    if isinstance(identity, dict):
        identity = identity.get("step_id")
    return str(identity).rpartition(".")[2].lower()


_TRES_COLUMNS: Final = {"cpu": "cpus", "node": "nodes", "mem": "mem_bytes", "gres": "gpus", "energy": "energy_j"}


def _tres(entries: object, prefix: str, fields: JsonFields) -> dict[str, Any]:
    """Counts by kind out of a list of `{type, name, id, count}`, and the text that sacct would print."""
    counts: dict[str, Any] = {}
    words = []
    for entry in fields.list_of(f"{prefix or 'alloc_'}tres", entries):
        kind, name = str(entry.get("type") or ""), entry.get("name")
        count = fields.number(f"{prefix}{_TRES_COLUMNS.get(kind, kind)}", entry.get("count"))
        if not kind or count is None:
            continue
        label = f"{kind}/{name}" if name else kind
        words.append(f"{label}={count}M" if kind == "mem" else f"{label}={count}")
        if kind == "gres" and str(name or "").startswith("gpu"):
            kind = "gpu" if name == "gpu" else "typed_gpu"
            count += counts.get(kind, 0) if kind == "typed_gpu" else 0
        counts[kind] = count
    if words:
        counts["text"] = ",".join(words)
        counts.setdefault("gpu", counts.get("typed_gpu"))
    return counts


def _from_tres_text(text: str | None) -> dict[str, int | None]:
    counts: dict[str, int | None] = {}
    for word in (text or "").split(","):
        key, _, value = word.partition("=")
        if value.isdigit():
            counts[{"gres/gpu": "gpu"}.get(key, key)] = int(value)
    return counts


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _mib(value: int | None) -> int | None:
    return None if value is None or value <= 0 else min(value * _MIB, 2**62)


def _joined(value: object) -> str:
    return ",".join(str(word) for word in value) if isinstance(value, list) else str(value)


def _extra(**values: object) -> dict[str, str] | None:
    texts = {name: text(str(value)) or "" for name, value in values.items() if value not in (None, "", "None")}
    return texts or None
