"""Tables of tasks with the memory they asked for and used: Nextflow's trace, or any CSV with such columns -> job records.

Columns are recognised by their names, units by the name (`memory_mb`), the value (`4 GB`, `1h 2m`) or their size (milliseconds
since 1970; a memory column without a unit whose numbers are all small is in MiB). Without times the order of rows counts.
"""

from __future__ import annotations

import csv
import tomllib
from importlib import resources
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.times import to_utc
from stormpetrel.records.units import duration_s, size_bytes
from stormpetrel.sources.contract import Translation
from stormpetrel.sources.tables.column_map import UNNAMED, ColumnMap, translate
from stormpetrel.sources.tables.column_names import Named, Vocabulary
from stormpetrel.sources.tables.delimited import Layout
from stormpetrel.sources.tables.mapped_table import MappedTable

_SECONDS: Final = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0}
_BYTES: Final = {
    "bytes": 1.0, "b": 1.0, "kb": 2.0**10, "kib": 2.0**10, "mb": 2.0**20, "mib": 2.0**20, "gb": 2.0**30, "gib": 2.0**30,
}  # fmt: skip
_NAMES: Final = {
    "job": "taskid jobid job task id",
    "name": "process name taskname jobname application category tasktype",
    "task": "tag sample input inputfile",
    "user": "user username owner",
    "queue": "queue partition",
    "state": "status state",
    "exit": "exit exitcode exitstatus",
    "cpus": "cpus cores ncpus cpu",
    "submit": "submit submittime submitted queued",
    "start": "start starttime started",
    "end": "complete end endtime completed",
    "run_s": "realtime runtime elapsed walltime duration time",
    "limit_s": "timelimit requestedtime reqtime",
    "requested_bytes": "memory requestedmemory requestedmem reqmem memoryrequested memoryrequest memrequested memrequest memreq "
    "requestmemory requestmem reqmembytes allocatedmemory allocatedmem mem",
    "used_bytes": "peakrss maxrss usedmemory memoryused maxrssbytes peakmemory peakmem usedmem memused maxmemory maxmem rss",
}
_SIZES: Final = ("requested_bytes", "used_bytes")
_SPANS: Final = ("run_s", "limit_s")
_TIMES: Final = ("submit", "start", "end")
_TASKS: Final = Vocabulary(
    {meaning: tuple(names.split()) for meaning, names in _NAMES.items()},
    units={
        **dict.fromkeys(_SIZES, _BYTES),
        **dict.fromkeys(_SPANS, _SECONDS),
        **{name: {"s": 1.0, "ms": 1e-3} for name in _TIMES},
    },
)
_MISSING: Final = ("", "-", "null", "NA", "nan", "None")
_MILLISECONDS_FROM: Final = 1e11  # as seconds this is the year 5138
_BYTES_FROM: Final = 1e7  # nothing that is measured uses less than ten megabytes at its largest: smaller numbers are MiB
_NEXTFLOW: Final = {"taskid", "peakrss"}
_EPOCH_S: Final = 1_000_000_000  # where the order of the rows is all that is known of time
_SPAN_UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3))


def _column_map() -> ColumnMap:
    """How the recognised columns become those of a job frame."""
    text = resources.files("stormpetrel.sources.tables").joinpath("task_columns.toml").read_text("utf-8")
    return ColumnMap.model_validate(tomllib.loads(text))


def recognises(names: list[str]) -> bool:
    """Whether a header tells how much memory tasks asked for and used, or is that of a Nextflow trace."""
    columns, _ = _TASKS.recognise(names)
    return set(_SIZES) <= set(columns) or _is_nextflow(names)


def _is_nextflow(names: list[str]) -> bool:
    return {_TASKS.plain(name) for name in names} >= _NEXTFLOW


def split_header(line: bytes) -> tuple[list[str], str]:
    """The column names of a table and what stands between them: a comma, a tab or a semicolon."""
    text = line.rstrip(b"\r").lstrip(b"\xef\xbb\xbf").decode("utf-8", "replace")
    delimiter = max((",", "\t", ";"), key=text.count)
    try:
        names = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:  # no header of a table
        return [], delimiter
    return [name.strip() or f"{UNNAMED}{position}" for position, name in enumerate(names)], delimiter


class TaskTable(MappedTable):
    """A CSV (plain or gzip; comma, tab or semicolon) with one row per task."""

    def __init__(
        self, path: Path | str, *, time_zone: str = "UTC", cluster: str = "cluster", block_bytes: int | None = None
    ) -> None:
        super().__init__(path, column_map=_column_map(), time_zone=time_zone, cluster=cluster, block_bytes=block_bytes)
        self.format = "tasks"
        self._columns: dict[str, Named] = {}
        self._nextflow = False

    def _layout(self, data: bytes) -> Layout:
        names, delimiter = split_header(data.split(b"\n", 1)[0])
        columns, _ = _TASKS.recognise(names)
        if "used_bytes" not in columns:
            raise SourceFormatError(
                f"No column of {self.name} tells how much memory a task used. Found: {', '.join(names[:12])}.",
                hint="Name it peak_rss or used_memory, and what was asked for memory or requested_memory.",
            )
        self._columns, self._nextflow = columns, _is_nextflow(names)
        if self._nextflow and "time" in names:  # Nextflow's `time` is the limit, `realtime` what was used
            self._columns = {**columns, "limit_s": Named("time", None)}
        self._meaning = f"{names}:{columns}:{self._time_zone}:{self._cluster}"
        return Layout(tuple(names), delimiter.encode(), has_header=True, quoted=True)

    def _translate(self, records: pl.DataFrame, _steps: pl.DataFrame | None) -> Translation:
        return translate(self._canonical(records), self._map, time_zone=self._time_zone, cluster=self._cluster)

    def _canonical(self, records: pl.DataFrame) -> pl.DataFrame:
        """The records with the names and units that the map reads; other columns stay for `extra`."""
        texts = {meaning: self._text(records, named) for meaning, named in self._columns.items()}
        columns: dict[str, pl.Series] = {name: texts[name] for name in ("name", "user", "queue", "exit", "cpus") if name in texts}
        if "name" in columns:
            columns["name"] = columns["name"].str.replace(r" \([^()]*\)$", "")  # Nextflow: PROCESS (tag)
        for name in _SIZES:
            if name in texts:
                columns[name] = _bytes(texts[name], self._columns[name].factor)
        for name in _SPANS:
            if name in texts:
                columns[name] = _span(texts[name], self._columns[name].factor, milliseconds=self._nextflow)
        columns |= self._times(texts, columns.get("run_s"), records["line"])
        number = texts["job"].cast(pl.Float64, strict=False).cast(pl.Int64, strict=False) if "job" in texts else None
        columns["job"] = records["line"] if number is None or number.null_count() else number
        columns["state"] = (
            texts["state"].str.to_uppercase() if "state" in texts else pl.Series(["COMPLETED"]).new_from_index(0, records.height)
        )
        if "task" in texts:
            columns["tag"] = texts["task"]
        taken = {named.column for named in self._columns.values()}
        rest = records.select(name for name in records.columns if name not in taken and name not in columns)
        return rest.with_columns(column.cast(pl.String).alias(name) for name, column in columns.items())

    def _text(self, records: pl.DataFrame, named: Named) -> pl.Series:
        text = records[named.column].str.strip_chars()
        return text.replace(list(_MISSING), [None] * len(_MISSING))

    def _times(self, texts: dict[str, pl.Series], run: pl.Series | None, line: pl.Series) -> dict[str, pl.Series]:
        times = {name: _unix(texts[name], self._columns[name].factor, self._time_zone) for name in _TIMES if name in texts}
        ran = run.fill_null(0.0) if run is not None else pl.Series([0.0]).new_from_index(0, len(line))
        submit = times.get("submit", times.get("start"))
        if submit is None:  # the order of the rows is the order of time, one after the other
            submit = line.cast(pl.Float64) + _EPOCH_S
            return {"submit": submit, "start": submit, "end": submit}
        start = times.get("start", submit)
        return {"submit": submit, "start": start, "end": times.get("end", start + ran)}


def _bytes(text: pl.Series, factor: float | None) -> pl.Series:
    number = text.cast(pl.Float64, strict=False)
    if factor is None:
        largest = number.max()
        factor = 2.0**20 if isinstance(largest, float) and largest < _BYTES_FROM else 1.0
    sizes = size_bytes(text.str.replace_all(" ", "")).cast(pl.Float64)
    return (number * factor).fill_null(sizes).round().cast(pl.Int64, strict=False)


def _span(text: pl.Series, factor: float | None, *, milliseconds: bool) -> pl.Series:
    number = text.cast(pl.Float64, strict=False) * (factor or (1e-3 if milliseconds else 1.0))
    if number.null_count() == text.null_count():
        return number
    parts = [
        pl.col("text").str.extract(rf"(\d+(?:\.\d+)?)\s*{unit}(?:\s|\d|$)").cast(pl.Float64).fill_null(0.0) * seconds
        for unit, seconds in _SPAN_UNITS
    ]
    written = text.to_frame("text").select(
        pl.when(pl.col("text").str.contains(r"\d\s*(ms|[dhms])(\s|\d|$)")).then(pl.sum_horizontal(parts))
    )
    return number.fill_null(written.to_series()).fill_null(duration_s(text))


def _unix(text: pl.Series, factor: float | None, time_zone: str) -> pl.Series:
    number = text.cast(pl.Float64, strict=False)
    largest = number.max()
    scale = factor or (1e-3 if isinstance(largest, float) and largest > _MILLISECONDS_FROM else 1.0)
    if number.null_count() == text.null_count():
        return number * scale
    return (number * scale).fill_null(to_utc(text, time_zone).dt.epoch("us") / 1e6)
