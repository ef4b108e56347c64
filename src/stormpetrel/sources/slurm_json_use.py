"""What Slurm's JSON says of a job's use, and how far it can be believed; the same rules as `step_use` has for sacct's text.

value of a request -> MiB per CPU, where it holds the flag · what the steps used -> the same, and the rules of `doubts` it meets.
Nothing here complains: what cannot be read has been noted by whoever read it first.
"""

from __future__ import annotations

from typing import Any, Final

from stormpetrel.records.doubts import CPU_TIME_FROM_TRES, RSS_MISSING, RSS_OF_ONE_TASK
from stormpetrel.records.slurm_memory import without_flag
from stormpetrel.sources.json_records import Record

SAMPLED_S: Final = 60  # Slurm samples every 30 s: a shorter job may have ended in between
_MS_PER_S: Final = 1000  # TRES counts CPU time in milliseconds


def flagged_mib(value: object) -> int | None:
    """The MiB per CPU of a number that holds Slurm's flag for that, plain or wrapped; None for any other value."""
    mib, flagged = without_flag(_count(value) or 0)
    return mib if flagged else None


def with_doubts(
    used: dict[str, Any], steps: list[Record], *, nodes: int | None, sampled: bool
) -> tuple[dict[str, Any], set[str]]:
    """What a job used, put right out of its steps, and the rules they meet; `sampled`: it ran long enough to be measured."""
    marks = set()
    tres_s = sum(_usage(step, "total", "cpu") or 0 for step in steps) / _MS_PER_S
    cpu_time_s = used["cpu_time_s"]
    if not cpu_time_s and tres_s > 0:
        cpu_time_s = tres_s
        marks.add(CPU_TIME_FROM_TRES)
    rss = used["max_rss_bytes"] or None  # 0 bytes were not measured: nothing is known
    if rss and _tasks(max(steps, key=lambda step: _usage(step, "max", "mem") or 0), nodes) > 1:
        marks.add(RSS_OF_ONE_TASK)
    if steps and sampled and not rss:
        marks.add(RSS_MISSING)
    return {**used, "max_rss_bytes": rss, "cpu_time_s": cpu_time_s}, marks


def _tasks(step: Record, nodes: int | None) -> int:
    """How many tasks a step had; at least one on each of its nodes where it does not say."""
    return _count(_part(step, "tasks").get("count")) or _count(_part(step, "nodes").get("count")) or nodes or 1


def _usage(step: Record, which: str, kind: str) -> int | None:
    """One entry of what a step used (TRESUsageInMax, TRESUsageInTot)."""
    entries = _part(_part(step, "tres"), "requested").get(which)
    told = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return next((_count(entry.get("count")) for entry in told if entry.get("type") == kind), None)


def _part(record: Record, name: str) -> Record:
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: object) -> int | None:
    """A whole number, plain or wrapped, of any size; None for anything else."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
