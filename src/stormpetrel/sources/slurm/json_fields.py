"""The fields of one record of Slurm's JSON, in whatever shape the version at hand writes them.

object of JSON -> JsonFields -> number, time, list of nodes, exit; a value that cannot be read is null, and noted as unread.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from stormpetrel.records.doubts import CPU_TIME_FROM_TRES, RSS_MISSING, RSS_OF_ONE_TASK
from stormpetrel.records.nodes import is_list_of_nodes
from stormpetrel.records.units import without_flag
from stormpetrel.sources.job_rows import FieldReader, text
from stormpetrel.sources.json_records import Record

_NO_VALUE: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})


class JsonFields(FieldReader):
    """Reads the fields of one of Slurm's JSON records."""

    def number(self, column: str, value: object) -> int | None:
        """An integer, plain or wrapped; None where it is not set."""
        try:
            return number_of(value)
        except ValueError:
            self.note(column, value)
            return None

    def time(self, column: str, value: object) -> datetime | None:
        """Unix seconds as a time; 0 is none."""
        seconds = self.number(column, value)
        moment = moment_of(seconds)
        if seconds and moment is None:
            self.note(column, value)
        return moment

    def part(self, column: str, value: object) -> Record:
        """An object inside the record; empty where it is missing or no object."""
        if value and not isinstance(value, dict):
            self.note(column, value)
        return object_of(value)

    def nodes(self, value: object) -> str | None:
        """The list of nodes, where it is one."""
        names = text_of(value)
        if names and not is_list_of_nodes(names):
            self.note("node_list", names)
            return None
        return names

    def exit(self, column: str, value: object) -> tuple[int | None, int | None]:
        """Exit code and signal."""
        try:
            return _exit(value)
        except (ValueError, AttributeError):
            self.note(column, value)
            return None, None

    def list_of(self, column: str, values: object) -> list[Record]:
        """The objects of a list inside the record; what is no list, or no object in it, is noted."""
        objects = [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
        if values and not (isinstance(values, list) and len(objects) == len(values)):
            self.note(column, values)
        return objects


def object_of(value: object) -> Record:
    """An object of JSON; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str | None:
    """A value as text; None where there is none."""
    return None if value is None or value == "None assigned" else text(str(value))


def number_of(value: object) -> int | None:
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


def moment_of(seconds: int | None) -> datetime | None:
    """Unix seconds as a time; None of 0, and of what no clock shows."""
    return datetime.fromtimestamp(seconds, UTC) if seconds and 0 < seconds < 4_291_747_200 else None


def _exit(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal, out of the object of slurmdb or the wait status of squeue before v0.0.40.

    A plain return_code (before v0.0.40) is 0 whatever the job exited with: nothing is better than that.
    """
    if isinstance(value, dict) and "return_code" in value:
        signal_field = value.get("signal") or {}
        signal = number_of(signal_field.get("id", signal_field.get("signal_id")))
        if not isinstance(value["return_code"], dict):
            return None, None
        code = number_of(value["return_code"])
        return (0 if code is None and signal else code), signal or 0
    status = number_of(value)
    return (None, None) if status is None else ((status >> 8) & 0xFF, status & 0x7F)


SAMPLED_S: Final = 60  # Slurm samples every 30 s: a shorter job may have ended in between


def requested_mib(request: Record, cpus: int | None, nodes: int | None, fields: JsonFields) -> tuple[int | None, bool]:
    """Memory asked for in MiB, of the whole job, and whether it held Slurm's flag for memory per CPU.

    `memory_per_cpu` and `memory_per_node` since v0.0.39, and of the controller; before that `memory` alone, as slurmdb has it.
    """
    for name, times in (("memory_per_cpu", cpus), ("memory_per_node", nodes), ("memory", nodes)):
        mib, flagged = _memory(request.get(name), fields)
        if mib:
            return mib * ((cpus if flagged else times) or 1), flagged
    return None, False


def _memory(value: object, fields: JsonFields) -> tuple[int | None, bool]:
    plain = value.get("number") if isinstance(value, dict) and value.get("set") and not value.get("infinite") else value
    if isinstance(plain, int) and not isinstance(plain, bool):
        mib, flagged = without_flag(plain)
        if flagged:
            return mib, True
    return fields.number("req_mem_bytes", value), False


def step_use(steps: list[Record], fields: JsonFields, *, nodes: int | None, sampled: bool) -> tuple[dict[str, Any], set[str]]:
    """What the steps of a job used, and the rules they meet; `sampled`: it ran long enough for its memory to be measured."""
    spans = [object_of(step.get("time")) for step in steps]
    total_s = _sum_seconds(spans, "total", "cpu_time_s", fields)
    tres_ms = [_usage(step, "total", "cpu", "cpu_time_s", fields) for step in steps]  # of CPU time TRES counts milliseconds
    marks = set()
    if not total_s and any(tres_ms):
        total_s = sum(part or 0 for part in tres_ms) / 1000
        marks.add(CPU_TIME_FROM_TRES)
    memory = [(_usage(step, "max", "mem", "max_rss_bytes", fields) or 0, step) for step in steps]
    rss, largest = max(memory, key=lambda entry: entry[0], default=(0, {}))
    if rss and _tasks(largest, nodes) > 1:
        marks.add(RSS_OF_ONE_TASK)
    if steps and sampled and not rss:
        marks.add(RSS_MISSING)
    used = {
        "max_rss_bytes": rss or None,
        "cpu_time_s": total_s,
        "user_cpu_s": _sum_seconds(spans, "user", "user_cpu_s", fields),
        "system_cpu_s": _sum_seconds(spans, "system", "system_cpu_s", fields),
        **_gpu_use(steps, fields, nodes=nodes, sampled=sampled),
    }
    return used, marks


def _gpu_use(steps: list[Record], fields: JsonFields, *, nodes: int | None, sampled: bool) -> dict[str, float | int | None]:
    """GPUs and their memory in use at most: all steps side by side, and all their tasks as busy as the busiest one."""
    used: dict[str, float | int | None] = {}
    for column, name in (("busy_gpus", "gpuutil"), ("gpu_mem_bytes", "gpumem")):
        of_steps = []
        for step in steps:
            most, latest = (_usage(step, which, "gres", column, fields, name) for which in ("max", "total"))
            known_use = [most * _tasks(step, nodes)] if most is not None else []
            known_use += [latest] if latest is not None else []
            of_steps += [max(known_use)] if known_use else []
        most_used = sum(of_steps) if of_steps else None
        known = most_used is not None and (sampled or most_used > 0)
        used[column] = most_used if known else None
    if used["busy_gpus"] == 0 and used["gpu_mem_bytes"]:
        used["busy_gpus"] = None  # of parts of GPUs (MIG) Slurm measures the memory only
    return used | {"busy_gpus": None if used["busy_gpus"] is None else used["busy_gpus"] / 100.0}


def _tasks(step: Record, nodes: int | None) -> int:
    """How many tasks a step had; at least one on each of its nodes where it does not say."""
    unkept = JsonFields()  # no column is lost with these, only a mark
    tasks = unkept.number("", object_of(step.get("tasks")).get("count"))
    return tasks or unkept.number("", object_of(step.get("nodes")).get("count")) or nodes or 1


def _usage(step: Record, which: str, kind: str, column: str, fields: JsonFields, name: str = "") -> int | None:
    """One entry of what a step used (TRESUsageInMax, TRESUsageInTot); `name` tells one `gres` from another."""
    entries = fields.list_of(column, object_of(object_of(step.get("tres")).get("requested")).get(which))
    of_kind = (entry for entry in entries if entry.get("type") == kind and (not name or entry.get("name") == name))
    return next((fields.number(column, entry.get("count")) for entry in of_kind), None)


def _sum_seconds(spans: list[Record], name: str, column: str, fields: JsonFields) -> float | None:
    parts = [span[name] for span in spans if isinstance(span.get(name), dict)]
    if not parts:
        return None
    read = [(fields.number(column, part.get("seconds")), fields.number(column, part.get("microseconds"))) for part in parts]
    return None if column in fields.unread else float(sum((whole or 0) + (rest or 0) / 1e6 for whole, rest in read))
