"""Workloads as files: SWF, sacct text, CSV, Parquet.

frames in the order of submission -> write_workload -> one file, whole or not at all. Nothing is kept but the frame at hand, and
the names of users, groups, queues and partitions so far. SWF is version 2.2: each frame becomes eighteen columns of whole
numbers, and the header, which counts them, is written last.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import IO, Final

import polars as pl
from polars.io.plugins import register_io_source

from stormpetrel.errors import StoreNotWritableError, UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.spreadsheet import without_formulas
from stormpetrel.records.states import FINISHED, JobState
from stormpetrel.records.times import UTC_TIME
from stormpetrel.records.workload_columns import KNOWN, STATE, SUBMIT, WAIT
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.swf import FIELDS
from stormpetrel.synth.writers.job_records import PROGRAM, SOURCE, JobFrames

Progress = Callable[[int], None]
# ending of a file -> format
FORMATS: Final = {".swf": "swf", ".sacct": "sacct", ".txt": "sacct", ".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
SACCT_FIELDS: Final = (
    "JobID", "JobIDRaw", "Cluster", "JobName", "User", "UID", "Group", "Account", "Partition", "QOS", "Submit", "Start", "End",
    "Elapsed", "State", "ExitCode", "Timelimit", "ReqCPUS", "AllocCPUS", "ReqNodes", "NNodes", "ReqMem", "ReqTRES", "AllocTRES",
)  # fmt: skip
_PACKED: Final = 3  # gzip level: a third more than the best, at four times its speed


def format_of(path: Path, format_name: str | None = None) -> str:
    """The format that a file is to have, by its name or as asked for; UsageError where there is none of that name."""
    known = ", ".join(sorted(set(FORMATS.values())))
    if format_name is not None and format_name not in FORMATS.values():
        raise UsageError(f"There is no format '{format_name[:40]}' for workloads.", hint=f"Known: {known}.")
    is_packed = path.suffix == ".gz"
    ending = Path(path.stem).suffix if is_packed else path.suffix
    chosen = format_name or FORMATS.get(ending.lower())
    if chosen is None:
        raise UsageError(f"The name {path.name!r} does not say which format to write.", hint=f"End it in {', '.join(FORMATS)}.")
    if chosen == "parquet" and is_packed:
        raise UsageError("Parquet is compressed already.", hint="Leave .gz out.")
    return chosen


def write_workload(
    frames: Iterable[pl.DataFrame],
    path: Path,
    *,
    format_name: str | None = None,
    name: str = SOURCE,
    progress: Progress | None = None,
) -> int:
    """Write a workload to a file, gzipped where its name ends in .gz; how many jobs.

    `name` is what the machine is called in formats that name it; `progress` gets how many jobs there are so far. Where
    something goes wrong, or somebody presses Ctrl-C, a file that was there before is as it was.
    """
    writer = _WRITERS[format_of(path, format_name)]
    rows = _Rows(frames, progress)
    with _whole_or_not_at_all(path) as out:
        writer(rows, out, path.suffix == ".gz", name)
    return rows.jobs


class _Rows:
    """The frames of a workload on their way into a file: all with the columns of the first, counted."""

    def __init__(self, frames: Iterable[pl.DataFrame], progress: Progress | None) -> None:
        self._frames, self._progress = iter(frames), progress
        self.jobs = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        schema: pl.Schema | None = None
        for frame in self._frames:
            if not frame.height:
                continue
            schema = schema or frame.schema
            if frame.schema != schema:
                there = [name for name in schema if name in frame.columns]
                frame = frame.select(there).match_to_schema(schema, missing_columns="insert")
            yield frame
            self.jobs += frame.height
            if self._progress is not None:
                self._progress(self.jobs)


@contextmanager
def _whole_or_not_at_all(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to; it becomes `path` in the end, or goes away."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", hint="Name a file.")
    try:
        with writing_private(path) as out:
            yield out
    except OSError as error:
        raise StoreNotWritableError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Check the folder and the room on its disk."
        ) from error


@contextmanager
def _packing(raw: IO[bytes], *, packed: bool) -> Iterator[IO[bytes]]:
    """The file itself, or one that packs what is written to it."""
    if not packed:
        yield raw
        return
    # Neither time nor name in the gzip header: the same jobs make the same file.
    with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=_PACKED) as out:
        yield out  # type: ignore[misc]


class _Table:
    """Frames as CSV and Parquet show them: numbered, with the interval since the job before, and the start where it is known."""

    def __init__(self) -> None:
        self._next_id = 1
        self._last: datetime | None = None

    def frame(self, jobs: pl.DataFrame) -> pl.DataFrame:
        before = pl.col(SUBMIT).shift(1, fill_value=pl.lit(self._last, dtype=UTC_TIME))
        interval = ((pl.col(SUBMIT) - before).dt.total_microseconds() / 1e6).fill_null(0.0)
        known = [name for name in KNOWN if name in jobs.columns and name not in (SUBMIT, WAIT)]
        own = [name for name in jobs.columns if name not in (*KNOWN, *_ADDED)]
        started = pl.col(SUBMIT) + pl.duration(microseconds=(pl.col(WAIT) * 1e6).round().cast(pl.Int64))
        shown = jobs.select(
            pl.int_range(self._next_id, self._next_id + jobs.height, dtype=pl.Int64).alias("job_id"),
            SUBMIT,
            interval.alias("interval_s"),
            *known,
            *own,
            *([started.alias("start_time"), pl.col(WAIT)] if WAIT in jobs.columns else []),
        )
        self._next_id += jobs.height
        self._last = jobs[SUBMIT][-1] if jobs.height else self._last
        return shown


_ADDED: Final = ("job_id", "interval_s", "start_time")
_NO_JOBS: Final = pl.DataFrame(schema={SUBMIT: UTC_TIME})


def _write_csv(rows: _Rows, raw: IO[bytes], packed: bool, _name: str) -> None:
    table = _Table()
    first = True
    with _packing(raw, packed=packed) as out:
        for frame in chain(rows, (_NO_JOBS,)):  # a workload of no jobs has a header all the same
            if first or frame.height:
                _put(without_formulas(table.frame(frame).with_columns(_as_text())), out, header=first)
            first = False


def _as_text() -> Sequence[pl.Expr]:
    """Times as ISO in UTC; text on one line, so that a line is a job."""
    return (
        pl.col(UTC_TIME).dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"),
        pl.col(pl.String).str.replace_all(r"[\r\n\x00]+", " "),
    )


def _put(frame: pl.DataFrame, out: IO[bytes], *, header: bool, separator: str = ",") -> None:
    buffer = io.BytesIO()
    frame.write_csv(buffer, include_header=header, separator=separator)
    out.write(buffer.getbuffer())


def _write_parquet(rows: _Rows, out: IO[bytes], _packed: bool, _name: str) -> None:
    """Frame after frame through polars' streaming engine, which writes one row group at a time."""
    table = _Table()
    coming = iter(rows)
    first = table.frame(next(coming, _NO_JOBS))
    problem: list[BaseException] = []

    def source(
        _columns: list[str] | None, _predicate: pl.Expr | None, _rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        try:
            yield first
            for frame in coming:
                yield table.frame(frame)
        except BaseException as error:  # polars would make an error of its own of it
            problem.append(error)
            raise

    try:
        register_io_source(source, schema=first.schema).sink_parquet(out, compression="zstd", maintain_order=True)
    except BaseException:
        if problem:
            raise problem[0] from None
        raise


def _write_sacct(rows: _Rows, raw: IO[bytes], packed: bool, name: str) -> None:
    accounting = JobFrames(name)
    with _packing(raw, packed=packed) as out:
        out.write(("|".join(SACCT_FIELDS) + "\n").encode())
        for frame in rows:
            out.write(sacct_text(_without_bars(accounting.frame(frame)), fields=SACCT_FIELDS, steps=False).encode())


def _without_bars(jobs: pl.DataFrame) -> pl.DataFrame:
    """No name may look like the end of its field, or of its line."""
    return jobs.with_columns(pl.col("user", "group", "account", "partition", "qos").str.replace_all(r"[|\p{Cc}]", "_"))


def _write_swf(rows: _Rows, raw: IO[bytes], packed: bool, name: str) -> None:
    """The lines first, since the header tells how many there are: both are put together in the end."""
    lines = SwfLines(name)
    with tempfile.TemporaryFile(dir=_folder_of(raw)) as body:
        with _packing(body, packed=packed) as out:
            for frame in rows:
                _put(lines.frame(frame), out, header=False, separator=" ")
        with _packing(raw, packed=packed) as out:
            out.write(lines.header().encode())
        body.seek(0)
        shutil.copyfileobj(body, raw, 1 << 20)  # gzip files may stand one after the other


def _folder_of(file: IO[bytes]) -> Path:
    """Where there is room for as much again; a device has none."""
    path = Path(file.name)
    return path.parent if path.is_file() else Path(tempfile.gettempdir())


_WRITERS: Final[dict[str, Callable[[_Rows, IO[bytes], bool, str], None]]] = {
    "swf": _write_swf,
    "sacct": _write_sacct,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


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
            column = (pl.col(name) if value is None else value) if name in there else pl.lit(None, dtype=pl.Int64)
            return column.round().cast(pl.Int64).fill_null(NOT_KNOWN)

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
