"""Numbers of Slurm's JSON, and what they say of a job's memory and CPU time, however the version at hand writes them.

object of JSON -> number · request -> MiB of the whole job · steps -> what they used, and the rules of `records.doubts` they meet.
"""

from __future__ import annotations

from typing import Any, Final

from stormpetrel.records.doubts import CPU_TIME_FROM_TRES, RSS_MISSING, RSS_OF_ONE_TASK
from stormpetrel.records.slurm_memory import without_flag
from stormpetrel.sources.json_records import Record

SAMPLED_S: Final = 60  # Slurm samples every 30 s: a shorter job may have ended in between
_NO_VALUE: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})


def number(value: object) -> int | None:
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


def requested_mib(request: Record, cpus: int | None, nodes: int | None) -> tuple[int | None, bool]:
    """Memory asked for in MiB, of the whole job, and whether it held Slurm's flag for memory per CPU.

    `memory_per_cpu` and `memory_per_node` since v0.0.39, and of the controller; before that `memory` alone, as slurmdb has it.
    """
    for name, times in (("memory_per_cpu", cpus), ("memory_per_node", nodes), ("memory", nodes)):
        mib, flagged = _memory(request.get(name))
        if mib:
            return mib * ((cpus if flagged else times) or 1), flagged
    return None, False


def _memory(value: object) -> tuple[int | None, bool]:
    plain = value.get("number") if isinstance(value, dict) and value.get("set") and not value.get("infinite") else value
    if isinstance(plain, int) and not isinstance(plain, bool):
        mib, flagged = without_flag(plain)
        if flagged:
            return mib, True
    return number(value), False


def step_use(steps: list[Record], *, nodes: int | None, sampled: bool) -> tuple[dict[str, Any], set[str]]:
    """What the steps of a job used, and the rules they meet; `sampled`: it ran long enough for its memory to be measured."""
    spans = [step.get("time") or {} for step in steps]
    total_s = _sum_seconds(spans, "total")
    tres_s = sum(_usage(step, "total", "cpu") or 0 for step in steps) / 1000  # of CPU time TRES counts milliseconds
    marks = set()
    if not total_s and tres_s > 0:
        total_s = tres_s
        marks.add(CPU_TIME_FROM_TRES)
    largest = max(steps, key=lambda step: _usage(step, "max", "mem") or 0, default=None)
    rss = (_usage(largest, "max", "mem") if largest is not None else None) or None
    if rss and largest is not None and _tasks(largest, nodes) > 1:
        marks.add(RSS_OF_ONE_TASK)
    if steps and sampled and not rss:
        marks.add(RSS_MISSING)
    used = {
        "max_rss_bytes": rss,
        "cpu_time_s": total_s,
        "user_cpu_s": _sum_seconds(spans, "user"),
        "system_cpu_s": _sum_seconds(spans, "system"),
    }
    return used, marks


def _tasks(step: Record, nodes: int | None) -> int:
    """How many tasks a step had; at least one on each of its nodes where it does not say."""
    told = number((step.get("tasks") or {}).get("count"))
    return told or number((step.get("nodes") or {}).get("count")) or nodes or 1


def _usage(step: Record, which: str, kind: str) -> int | None:
    """One entry of what a step used (TRESUsageInMax, TRESUsageInTot)."""
    entries = ((step.get("tres") or {}).get("requested") or {}).get(which) or []
    return next((number(entry.get("count")) for entry in entries if entry.get("type") == kind), None)


def _sum_seconds(spans: list[Record], name: str) -> float | None:
    parts = [span[name] for span in spans if isinstance(span.get(name), dict)]
    if not parts:
        return None
    return float(sum((number(part.get("seconds")) or 0) + (number(part.get("microseconds")) or 0) / 1e6 for part in parts))
