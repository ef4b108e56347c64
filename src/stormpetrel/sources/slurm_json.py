"""Slurm's JSON -> job rows: `sacct --json`, `squeue --json`, and what slurmrestd answers.

The shape changed with each data parser (v0.0.38 … v0.0.45): numbers became `{"set", "infinite", "number"}`, states became lists.
Each field is read in whatever shape it comes in; docs/sources says which versions were recorded from a running Slurm. A value
that cannot be read is null and noted as unread: only id, submit time and state refuse a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from stormpetrel.records.doubts import MEMORY_PER_CPU_FLAG, names_text
from stormpetrel.records.nodes import is_list_of_nodes
from stormpetrel.records.quality import rejects
from stormpetrel.records.states import FINISHED, JobState, slurm_state
from stormpetrel.sources.contract import Chunk, FileSource, chunk_of_jobs
from stormpetrel.sources.job_rows import FieldReader, is_told, text
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import Refused
from stormpetrel.sources.sacct_fields import script_of
from stormpetrel.sources.slurm_json_use import SAMPLED_S, flagged_mib, with_doubts

ROWS_PER_CHUNK: Final = 20_000
_NO_VALUE: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
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
        "cancelled_by", "max_rss_bytes", "cpu_time_s", "user_cpu_s", "system_cpu_s",
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
        made = chunk_of_jobs(self._rows, self._lines, read=self.read, rejects=rejects(self._refused), bytes_done=done)
        self._rows, self._lines, self._refused, self.read = [], [], [], 0
        return made


def is_job_record(record: Record) -> bool:
    """Whether an object is a job of sacct or squeue."""
    return "job_id" in record and ("job_state" in record or "state" in record) and ("time" in record or "submit_time" in record)


def fields_of(record: Record) -> frozenset[str]:
    """The job columns that records of this shape fill. Before v0.0.40 slurmdb says 0 for every exit code: not counted."""
    if "job_state" in record:
        found = (_COMMON - {"elapsed_s", "cpu_limit_s", "mem_bytes"}) | _EXIT | {"uid", "gid", "req_nodes"}
        return found | {"submit_line", "script_path"} if "submit_line" in record else found
    exit_code = record.get("exit_code")
    believable = isinstance(exit_code, dict) and isinstance(exit_code.get("return_code"), dict)
    found = _COMMON | _ACCOUNTING | (_EXIT | _FAILED_STEP if believable else frozenset())
    return found | {"submit_line", "script_path"} if "submit_line" in record else found


def listed_facts(record: Record, reason_class: Callable[[str | None], str]) -> tuple[object, ...]:
    """What a controller's list is made of: raw id, id, tasks, state, submission, and a line that changes when the job does."""
    identity = _identity(record["job_id"], record.get("array_job_id"), record.get("array_task_id"), None, None, _Fields())
    task, waiting = identity["array_task"], _text(record.get("array_task_string"))
    tasks = (str(task) if task is not None else waiting) if _number(record.get("array_job_id")) else None
    state = _joined(record["job_state"])
    fields = _Fields()
    waits = slurm_state(state) in (JobState.PENDING, JobState.HELD)
    start = None if waits else fields.number("start_time", record.get("start_time"))
    sizes = [fields.number(name, record.get(name)) for name in ("time_limit", "cpus", "node_count")]
    line = (
        tasks,
        state,
        _number(record["submit_time"]),
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
    fields = _Fields()
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
    exit_code, exit_signal = fields.exit(job.get("exit_code"))
    cpus, nodes = allocated.get("cpu"), allocated.get("node")
    required = fields.part("req_cpus", job.get("required"))
    req_cpus = fields.number("req_cpus", required.get("CPUs")) or requested.get("cpu")
    memory, flagged = None, False
    if not requested.get("mem"):
        memory, flagged = _requested_mib(required, cpus or req_cpus, nodes or requested.get("node"), fields)
    steps = fields.list_of("max_rss_bytes", job.get("steps"))
    sampled = state in FINISHED and (elapsed or 0) >= SAMPLED_S
    used, doubts = with_doubts(_steps(steps, fields), steps, nodes=nodes, sampled=sampled)
    has_started = bool(elapsed or allocated or {"elapsed_s", "alloc_tres", "cpus"} & fields.unread.keys())
    return {
        **_identity(job["job_id"], array.get("job_id"), array.get("task_id"), het.get("job_id"), het.get("job_offset"), fields),
        "cluster": _text(job.get("cluster")) or default_cluster,
        "submit_time": _submit_time(times.get("submission")),
        "restart": 0,
        "job_name": _text(job.get("name")),
        "user": _text(job.get("user")) or _text(_object(job.get("association")).get("user")),
        "group": _text(job.get("group")),
        "account": _text(job.get("account")),
        "partition": _text(job.get("partition")),
        "qos": _text(job.get("qos")),
        "eligible_time": fields.time("eligible_time", times.get("eligible")),
        "start_time": fields.time("start_time", times.get("start")) if has_started else None,
        "end_time": fields.time("end_time", times.get("end")) if state not in (JobState.RUNNING, JobState.PENDING) else None,
        "state": state,
        "state_raw": raw_state,
        "cancelled_by": _text(job.get("kill_request_user")) if state is JobState.CANCELLED else None,
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
        "req_mem_bytes": _mib(requested.get("mem") or memory),
        "mem_bytes": _mib(allocated.get("mem")),
        "node_list": fields.nodes(job.get("nodes")),
        "work_dir": _text(job.get("working_directory")),
        "submit_line": _text(job.get("submit_line")),
        "script_path": script_of(_text(job.get("submit_line"))),
        "req_tres": requested.get("text"),
        "alloc_tres": allocated.get("text"),
        **used,
        "quality": names_text(doubts | {MEMORY_PER_CPU_FLAG} if flagged else doubts),
        "extra": _extra(
            comment=_object(job.get("comment")).get("job"),
            reason=state_part.get("reason"),
            constraints=job.get("constraints"),
            reservation=_object(job.get("reservation")).get("name"),
            wckey=_object(job.get("wckey")).get("wckey"),
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
    fields = _Fields()
    raw_state = _joined(job["job_state"])
    state = slurm_state(raw_state)
    finished = state not in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.HELD)
    # Of a pending job it is the scheduler's guess; of one that was cancelled before it started, the moment of that.
    started = state not in (JobState.PENDING, JobState.HELD) and (not finished or bool(_text(job.get("nodes"))))
    limit = fields.number("time_limit_s", job.get("time_limit"))
    exit_code, exit_signal = fields.exit(job.get("exit_code")) if finished else (None, None)
    cpus, nodes = fields.number("req_cpus", job.get("cpus")), fields.number("nodes", job.get("node_count"))
    memory, flagged = _requested_mib(job, cpus, nodes, fields)
    requested = _from_tres_text(_text(job.get("tres_req_str")))
    allocated = _from_tres_text(_text(job.get("tres_alloc_str")))
    return {
        **_identity(
            job["job_id"],
            job.get("array_job_id"),
            job.get("array_task_id"),
            job.get("het_job_id"),
            job.get("het_job_offset"),
            fields,
        ),
        "cluster": _text(job.get("cluster")) or default_cluster,
        "submit_time": _submit_time(job.get("submit_time")),
        "restart": 0,
        "job_name": _text(job.get("name")),
        "user": _text(job.get("user_name")),
        "uid": fields.number("uid", job.get("user_id")),
        "group": _text(job.get("group_name")),
        "gid": fields.number("gid", job.get("group_id")),
        "account": _text(job.get("account")),
        "partition": _text(job.get("partition")),
        "qos": _text(job.get("qos")),
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
        "work_dir": _text(job.get("current_working_directory")),
        "submit_line": _text(job.get("submit_line")),
        "script_path": script_of(_text(job.get("submit_line"))),
        "req_tres": _text(job.get("tres_req_str")),
        "alloc_tres": _text(job.get("tres_alloc_str")),
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


class _Fields(FieldReader):
    """Reads the fields of one of Slurm's JSON records."""

    def number(self, column: str, value: object) -> int | None:
        """An integer, plain or wrapped; None where it is not set."""
        try:
            return _number(value)
        except ValueError:
            self.note(column, value)
            return None

    def time(self, column: str, value: object) -> datetime | None:
        """Unix seconds as a time; 0 is none."""
        seconds = self.number(column, value)
        moment = _moment(seconds)
        if seconds and moment is None:
            self.note(column, value)
        return moment

    def part(self, column: str, value: object) -> Record:
        """An object inside the record; empty where it is missing or no object."""
        if value and not isinstance(value, dict):
            self.note(column, value)
        return _object(value)

    def nodes(self, value: object) -> str | None:
        """The list of nodes, where it is one."""
        names = _text(value)
        if names and not is_list_of_nodes(names):
            self.note("node_list", names)
            return None
        return names

    def exit(self, value: object) -> tuple[int | None, int | None]:
        """Exit code and signal."""
        try:
            return _exit(value)
        except (ValueError, AttributeError):
            self.note("exit_code", value)
            return None, None

    def exit_of_step(self, step: Record) -> tuple[int | None, int | None]:
        """Exit code and signal of a step."""
        try:
            return _exit(step.get("exit_code"))
        except (ValueError, AttributeError):
            self.note("failed_step_exit_code", step.get("exit_code"))
            return None, None

    def list_of(self, column: str, values: object) -> list[Record]:
        """The objects of a list inside the record; what is no list, or no object in it, is noted."""
        found = [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
        if values and not (isinstance(values, list) and len(found) == len(values)):
            self.note(column, values)
        return found


def _object(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def _needed(job: Record, name: str) -> Record:
    if not isinstance(job[name], dict):
        raise ValueError(f"{name} is no object")
    return job[name]  # type: ignore[no-any-return]


def _submit_time(value: object) -> datetime | None:
    """The time of submission; ValueError where it cannot be read."""
    return _moment(_number(value))


def _plain_number(value: object) -> object:
    """A number for `extra`; what is none as it is."""
    try:
        return _number(value)
    except ValueError:
        return value if is_told(value) else None


def _requested_mib(request: Record, cpus: int | None, nodes: int | None, fields: _Fields) -> tuple[int | None, bool]:
    """Memory asked for in MiB, of the whole job, and whether it held Slurm's flag for memory per CPU.

    `memory_per_cpu` and `memory_per_node` since v0.0.39, and of the controller; before that `memory` alone, as slurmdb has it.
    """
    for name, times in (("memory_per_cpu", cpus), ("memory_per_node", nodes), ("memory", nodes)):
        per_cpu = flagged_mib(request.get(name))
        if per_cpu is not None:
            return per_cpu * (cpus or 1), True
        mib = fields.number("req_mem_bytes", request.get(name))
        if mib:
            return mib * (times or 1), False
    return None, False


def _identity(
    job_id: object, array_id: object, task: object, het_id: object, offset: object, fields: _Fields
) -> dict[str, object]:
    raw, array, het = _number(job_id), _number(array_id), fields.number("het_job_id", het_id)
    if raw is None:
        raise ValueError("job_id is not a number")
    return {
        "job_id": array or raw,
        "job_id_raw": raw,
        "array_task": _number(task) if array else None,
        "het_job_id": het or None,
        "het_offset": fields.number("het_offset", offset) if het else None,
    }


def _steps(steps: list[Record], fields: _Fields) -> dict[str, object]:
    """What only steps know: largest memory, summed CPU time, the first that failed."""
    memory = [count for step in steps if (count := _max_rss(step, fields)) is not None]
    spans = [_object(step.get("time")) for step in steps]
    failed = [(name, *fields.exit_of_step(step)) for step in steps if (name := _step_name(step)) != "extern"]
    failed = [step for step in failed if step[1] or step[2]]
    failed.sort(key=lambda step: step[0] == "batch")
    first = failed[0] if failed else (None, None, None)
    return {
        "max_rss_bytes": max(memory, default=None),
        "cpu_time_s": _sum_seconds(spans, "total", "cpu_time_s", fields),
        "user_cpu_s": _sum_seconds(spans, "user", "user_cpu_s", fields),
        "system_cpu_s": _sum_seconds(spans, "system", "system_cpu_s", fields),
        "failed_step": first[0],
        "failed_step_exit_code": first[1],
        "failed_step_exit_signal": first[2],
    }


def _step_name(step: Record) -> str:
    identity = _object(step.get("step")).get("id")
    if isinstance(identity, dict):
        identity = identity.get("step_id")
    return str(identity).rpartition(".")[2].lower()


def _max_rss(step: Record, fields: _Fields) -> int | None:
    largest = fields.list_of("max_rss_bytes", _object(_object(step.get("tres")).get("requested")).get("max"))
    return next((fields.number("max_rss_bytes", entry.get("count")) for entry in largest if entry.get("type") == "mem"), None)


def _sum_seconds(spans: list[Record], name: str, column: str, fields: _Fields) -> float | None:
    parts = [span[name] for span in spans if isinstance(span.get(name), dict)]
    if not parts:
        return None
    read = [(fields.number(column, part.get("seconds")), fields.number(column, part.get("microseconds"))) for part in parts]
    return None if column in fields.unread else float(sum((whole or 0) + (rest or 0) / 1e6 for whole, rest in read))


_TRES_COLUMNS: Final = {"cpu": "cpus", "node": "nodes", "mem": "mem_bytes", "gres": "gpus"}


def _tres(entries: object, prefix: str, fields: _Fields) -> dict[str, Any]:
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


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal, out of the object of slurmdb or the wait status of squeue before v0.0.40.

    A plain return_code (before v0.0.40) is 0 whatever the job exited with: nothing is better than that.
    """
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal") or {}
        number = _number(signal.get("id", signal.get("signal_id")))
        if not isinstance(value["return_code"], dict):
            return None, None
        code = _number(value["return_code"])
        return (0 if code is None and number else code), number or 0
    status = _number(value)
    return (None, None) if status is None else ((status >> 8) & 0xFF, status & 0x7F)


def _number(value: object) -> int | None:
    """An integer, plain or wrapped; None where it is not set, infinite, or one of Slurm's marks for "no value"."""
    if isinstance(value, dict):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a number")
    if value in _NO_VALUE:
        return None
    if not -(2**63) <= value < 2**63:
        raise ValueError("a number is out of range")
    return value


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def _mib(value: int | None) -> int | None:
    return None if value is None or value <= 0 else min(value * _MIB, 2**62)


def _moment(seconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds and 0 < seconds < 4_291_747_200 else None


def _joined(value: object) -> str:
    return ",".join(str(word) for word in value) if isinstance(value, list) else str(value)


def _text(value: object) -> str | None:
    return None if value is None or value == "None assigned" else text(str(value))


def _extra(**values: object) -> dict[str, str] | None:
    found = {name: text(str(value)) or "" for name, value in values.items() if value not in (None, "", "None")}
    return found or None
