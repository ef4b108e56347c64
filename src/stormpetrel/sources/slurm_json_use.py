"""What Slurm's JSON says of a job's memory and CPU time, however the version at hand writes them.

request -> MiB of the whole job · steps -> what they used, and the rules of `records.doubts` they meet.
"""

from __future__ import annotations

from typing import Any, Final

from stormpetrel.records.doubts import CPU_TIME_FROM_TRES, RSS_MISSING, RSS_OF_ONE_TASK
from stormpetrel.records.slurm_memory import without_flag
from stormpetrel.sources.json_records import Record
from stormpetrel.sources.slurm_json_fields import JsonFields, object_of

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
    rss, largest = max(memory, key=lambda found: found[0], default=(0, {}))
    if rss and _tasks(largest, nodes) > 1:
        marks.add(RSS_OF_ONE_TASK)
    if steps and sampled and not rss:
        marks.add(RSS_MISSING)
    used = {
        "max_rss_bytes": rss or None,
        "cpu_time_s": total_s,
        "user_cpu_s": _sum_seconds(spans, "user", "user_cpu_s", fields),
        "system_cpu_s": _sum_seconds(spans, "system", "system_cpu_s", fields),
    }
    return used, marks


def _tasks(step: Record, nodes: int | None) -> int:
    """How many tasks a step had; at least one on each of its nodes where it does not say."""
    unkept = JsonFields()  # no column is lost with these, only a mark
    told = unkept.number("", object_of(step.get("tasks")).get("count"))
    return told or unkept.number("", object_of(step.get("nodes")).get("count")) or nodes or 1


def _usage(step: Record, which: str, kind: str, column: str, fields: JsonFields) -> int | None:
    """One entry of what a step used (TRESUsageInMax, TRESUsageInTot)."""
    entries = fields.list_of(column, object_of(object_of(step.get("tres")).get("requested")).get(which))
    return next((fields.number(column, entry.get("count")) for entry in entries if entry.get("type") == kind), None)


def _sum_seconds(spans: list[Record], name: str, column: str, fields: JsonFields) -> float | None:
    parts = [span[name] for span in spans if isinstance(span.get(name), dict)]
    if not parts:
        return None
    read = [(fields.number(column, part.get("seconds")), fields.number(column, part.get("microseconds"))) for part in parts]
    return None if column in fields.unread else float(sum((whole or 0) + (rest or 0) / 1e6 for whole, rest in read))
