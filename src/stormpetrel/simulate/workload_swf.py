"""A workload in the Standard Workload Format, version 2.2, frame after frame.

workload frames in order -> SwfLines.frame -> eighteen columns of whole numbers; in the end SwfLines.header -> the header.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.states import FINISHED, JobState
from stormpetrel.records.workload_columns import STATE, SUBMIT, WAIT
from stormpetrel.simulate.workload_jobs import PROGRAM
from stormpetrel.sources.swf import FIELDS

NOT_KNOWN: Final = -1
_STATUS: Final = {
    **{state.value: 0 for state in FINISHED},
    JobState.COMPLETED.value: 1,
    JobState.CANCELLED.value: 5,
}
_NUMBERED: Final = ("user", "group", "qos", "partition", PROGRAM)
_NOTES: Final = (
    "Synthetic: made by a generator that learnt from a log. No line is a job that ran.",
    "A wait of -1 means that no scheduler was asked.",
)


class SwfLines:
    """The lines of one log: counts jobs, numbers names in the order in which they come, and sums up for the header."""

    def __init__(self, computer: str) -> None:
        self._computer = computer
        self._numbers: dict[str, dict[str, int]] = {name: {} for name in _NUMBERED}
        self._jobs, self._last_s = 0, 0
        self._start_s: int | None = None
        self._most = {"procs": 0, "nodes": 0, "run": 0}

    def frame(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """The next jobs as lines; they must not come before those written."""
        there = set(jobs.columns)
        submit = jobs[SUBMIT].dt.epoch("s")
        self._start_s = int(submit[0]) if self._start_s is None else self._start_s

        def number(name: str, value: pl.Expr | None = None) -> pl.Expr:
            given = (pl.col(name) if value is None else value) if name in there else pl.lit(None, dtype=pl.Int64)
            return given.round().cast(pl.Int64).fill_null(NOT_KNOWN)

        size = number("cores" if "cores" in there else "nodes")
        table = jobs.select(
            pl.int_range(self._jobs + 1, self._jobs + 1 + jobs.height, dtype=pl.Int64).alias("job"),
            (submit - self._start_s).alias("submit"),
            number(WAIT).alias("wait"),
            number("runtime_s").alias("run"),
            size.alias("procs"),
            _unknown("avg_cpu"),
            _unknown("used_mem"),
            size.alias("req_procs"),
            number("time_limit_s").alias("req_time"),
            number("mem_bytes", pl.col("mem_bytes") // 1024 // size.clip(1)).alias("req_mem"),
            self._status(there),
            *(self._code(jobs, name).alias(field) for name, field in (("user", "user"), ("group", "group"))),
            self._program(jobs).alias("executable"),
            *(self._code(jobs, name).alias(field) for name, field in (("qos", "queue"), ("partition", "partition"))),
            _unknown("preceding"),
            _unknown("think"),
        ).select(FIELDS)
        self._note(table, jobs)
        return table

    def header(self) -> str:
        """The header of what was written."""
        start_s = self._start_s or 0
        start = datetime.fromtimestamp(start_s, UTC)
        queues, partitions = self._numbers["qos"], self._numbers["partition"]
        fields = {
            "Version": "2.2",
            "Computer": self._computer,
            "Conversion": "Stormpetrel",
            "MaxJobs": self._jobs,
            "MaxRecords": self._jobs,
            "Preemption": "No",
            "UnixStartTime": start_s,
            "TimeZoneString": "UTC",
            "StartTime": f"{start:%a %b %d %H:%M:%S UTC %Y}",
            "EndTime": f"{start + timedelta(seconds=self._last_s):%a %b %d %H:%M:%S UTC %Y}",
            "MaxNodes": self._most["nodes"] or self._most["procs"],
            "MaxProcs": self._most["procs"],
            "MaxRuntime": self._most["run"],
            "MaxQueues": len(queues),
            "MaxPartitions": len(partitions),
        }
        lines = [f"; {key}: {_one_line(str(value))}" for key, value in fields.items()]
        lines += [f"; Queue: {number} {_one_line(name)}" for name, number in queues.items()]
        lines += [f"; Partition: {number} {_one_line(name)}" for name, number in partitions.items()]
        lines += [f"; Note: {note}" for note in _NOTES]
        return "\n".join([*lines, ";", ""])

    def _note(self, table: pl.DataFrame, jobs: pl.DataFrame) -> None:
        self._jobs += table.height
        self._last_s = max(self._last_s, int(table["submit"][-1]))
        for name in ("procs", "run"):
            self._most[name] = max(self._most[name], _highest(table[name]))
        if "nodes" in jobs.columns:
            self._most["nodes"] = max(self._most["nodes"], _highest(jobs["nodes"]))

    def _status(self, there: set[str]) -> pl.Expr:
        if STATE not in there:
            return _unknown("status")
        return pl.col(STATE).replace_strict(_STATUS, default=NOT_KNOWN, return_dtype=pl.Int64).alias("status")

    def _program(self, jobs: pl.DataFrame) -> pl.Series:
        """Programs are numbers in SWF already; a log that names them has them numbered."""
        if PROGRAM in jobs.columns and jobs[PROGRAM].dtype.is_integer():
            return jobs[PROGRAM].fill_null(NOT_KNOWN).clip(NOT_KNOWN)
        return self._code(jobs, PROGRAM)

    def _code(self, jobs: pl.DataFrame, name: str) -> pl.Series:
        if name not in jobs.columns:
            return pl.repeat(NOT_KNOWN, jobs.height, dtype=pl.Int64, eager=True)
        column, numbers = jobs[name].cast(pl.String), self._numbers[name]
        distinct = column.drop_nulls().unique(maintain_order=True)
        for value in distinct:
            numbers.setdefault(value, len(numbers) + 1)
        codes = pl.Series([numbers[value] for value in distinct], dtype=pl.Int64)
        return column.replace_strict(distinct, codes, default=NOT_KNOWN, return_dtype=pl.Int64)


def _unknown(field: str) -> pl.Expr:
    return pl.lit(NOT_KNOWN, dtype=pl.Int64).alias(field)


def _highest(column: pl.Series) -> int:
    highest = column.max()
    return highest if isinstance(highest, int) else 0


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
