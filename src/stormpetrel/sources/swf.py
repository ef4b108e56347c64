"""The Standard Workload Format (Parallel Workloads Archive), plain or gzip: read -> job frame, job frame -> write.

Eighteen numbers per job, −1 for "not known"; the header says when the log begins and what its numbers mean.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.private_files import writing_private
from stormpetrel.records.doubts import END_WITHOUT_WAIT, with_rules
from stormpetrel.records.jobs import as_map
from stormpetrel.records.quality import REJECT_SCHEMA, no_rejects, rejects
from stormpetrel.records.states import JobState, swf_state
from stormpetrel.records.unread import no_unread
from stormpetrel.sources.contract import Chunk, FileSource, Translation, with_schema
from stormpetrel.sources.lines import Refused, shown, sound_lines

FIELDS: Final = (
    "job", "submit", "wait", "run", "procs", "avg_cpu", "used_mem", "req_procs", "req_time",
    "req_mem", "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
_COLUMNS: Final = frozenset(
    {
        "start_time", "end_time", "state", "state_raw", "time_limit_s", "elapsed_s", "cpu_limit_s", "req_cpus", "cpus",
        "req_mem_bytes", "max_rss_bytes", "cpu_time_s", "user", "group", "partition", "qos", "extra",
    }
)  # fmt: skip
_HEADER_FIELD: Final = re.compile(r"^;\s*([A-Za-z]+)\s*:\s*(.*?)\s*$")
_NUMBERED: Final = re.compile(r"^(\d+)\s+(\S.*)$")
_NUMBER: Final = r"^-?\d{1,18}(\.\d{1,9})?$"
# Field -> the column that it fills; an SWF log has numbers for names, which are read as they are.
_FILLS: Final = {
    "wait": "start_time", "run": "elapsed_s", "procs": "cpus", "avg_cpu": "cpu_time_s", "used_mem": "max_rss_bytes",
    "req_procs": "req_cpus", "req_time": "time_limit_s", "req_mem": "req_mem_bytes",
}  # fmt: skip
_NUMERIC: Final = ("submit", *_FILLS)
_PARTIAL: Final = ("2", "3", "4")  # bursts of a job that was checkpointed or swapped; its whole is on a line of its own


class SwfLog(FileSource):
    """A log in the Standard Workload Format."""

    format = "swf"

    def __init__(self, path: Path | str, *, cluster: str = "cluster", block_bytes: int | None = None) -> None:
        super().__init__(path, block_bytes)
        self._cluster = cluster
        self._header = _Header()

    def fields(self) -> frozenset[str]:
        """The job columns that SWF can fill."""
        return _COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The jobs of the log, a block at a time."""
        for block in self._file.blocks():
            refused = list(block.refused)
            sound, bad = sound_lines(block)
            refused += bad
            for lines in self._parts(sound):
                yield self._chunk(lines, refused, block.bytes_done)
                refused = []

    def _parts(self, lines: list[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
        """Job lines, read under one header each: logs that were put one after the other count from different times."""
        jobs: list[tuple[int, bytes]] = []
        for number, line in lines:
            if not line.lstrip().startswith(b";"):
                jobs.append((number, line))
                continue
            if jobs and b"UnixStartTime" in line:
                yield jobs
                jobs = []
            self._header.read(line.decode("utf-8", "replace").strip())
        yield jobs

    def _chunk(self, lines: list[tuple[int, bytes]], refused: list[Refused], bytes_done: int) -> Chunk:
        frame, bad = _frame(lines)
        self._header.jobs += frame.height
        self._header.without_wait += _without_wait(frame)
        self.notes = self._header.notes()
        jobs, folded = _without_bursts(frame)
        start_s, names = self._header.start_s, {key: dict(value) for key, value in self._header.names.items()}
        return Chunk(
            records=jobs,
            translate=lambda records, _steps: _translate(records, start_s, names, self._cluster),
            meaning=f"{start_s}:{names}:{self._cluster}",
            read=frame.height + len(refused) + len(bad),
            rejects=rejects([*refused, *bad]),
            folded=folded,
            bytes_done=bytes_done,
        )


class _Header:
    """What the comment lines of an SWF log say, as far as it can be believed."""

    def __init__(self) -> None:
        self.start_s: int | None = None
        self.names: dict[str, dict[str, str]] = {"Queue": {}, "Partition": {}}
        self.max_jobs: int | None = None
        self.jobs = 0
        self.without_wait = 0
        self.bad_start = ""

    def notes(self) -> list[str]:
        """Where the header does not agree with the log, or cannot be true."""
        columns = []
        if self.bad_start:
            columns.append(f"the header's UnixStartTime {self.bad_start!r} is no time; it was not used")
        if self.start_s is None:
            columns.append("the header does not say when the log begins (UnixStartTime): times count from 2000-01-01 UTC")
        if self.max_jobs is not None and self.jobs > self.max_jobs:
            columns.append(f"the header speaks of at most {self.max_jobs} jobs, the log has more")
        if self.without_wait:
            columns.append(
                f"{self.without_wait:,} of {self.jobs:,} jobs have a run time and no wait time: their end is taken as submission "
                "+ run time, the earliest it can have been"
            )
        return columns

    def read(self, line: str) -> None:
        match = _HEADER_FIELD.match(line)
        if not match:
            return
        key, value = match.groups()
        if key == "UnixStartTime":
            text = value.split()[0] if value.split() else ""
            if text.isascii() and text.isdigit() and int(text[:12]) < _LATEST_S:
                self.start_s = int(text)
            else:
                self.bad_start = text[:40]
        elif key == "MaxJobs" and value.isascii() and value.isdigit():
            self.max_jobs = int(value[:18])
        elif key in self.names:
            numbered = _NUMBERED.match(value)
            if numbered:
                self.names[key][numbered.group(1)] = numbered.group(2)


def _frame(lines: list[tuple[int, bytes]]) -> tuple[pl.DataFrame, list[Refused]]:
    """The lines as eighteen columns of text with `line` and `record`.

    Refused where there are not eighteen, or where job, submit time or status is no number.
    """
    good: list[bytes] = []
    numbers: list[int] = []
    refused: list[Refused] = []
    for number, line in lines:
        cells = line.split()
        if len(cells) != len(FIELDS):
            reason = f"the line has {len(cells)} columns, not {len(FIELDS)}"
            refused.append((number, "wrong_column_count", reason, shown(line)))
        else:
            good.append(b" ".join(cells))
            numbers.append(number)
    if not good:
        return pl.DataFrame(schema={**dict.fromkeys(FIELDS, pl.String), "line": pl.Int64, "record": pl.UInt32}), refused
    text = pl.read_csv(
        io.BytesIO(b"\n".join(good)), separator=" ", has_header=False, quote_char=None, schema=dict.fromkeys(FIELDS, pl.String)
    )
    numbered = text.with_columns(line=pl.Series(numbers, dtype=pl.Int64), record=pl.int_range(text.height, dtype=pl.UInt32))
    decisive = pl.col("job", "submit", "status").str.contains(_NUMBER).fill_null(False)
    wrong = numbered.select(pl.all_horizontal(decisive).not_()).to_series()
    if wrong.any():
        refused += [
            (row["line"], "bad_value", "job, submit time or status is no number", " ".join(str(row[name]) for name in FIELDS))
            for row in numbered.filter(wrong).iter_rows(named=True)
        ]
        numbered = numbered.filter(~wrong)
    return numbered, refused


def _without_wait(frame: pl.DataFrame) -> int:
    """How many jobs ran, without a word on how long they had waited."""
    return frame.filter(pl.col("wait").str.starts_with("-") & ~pl.col("run").str.starts_with("-")).height


def _without_bursts(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The jobs without the lines that tell of one burst of a job whose summary is there too; and how many those were."""
    is_burst = frame["status"].is_in(list(_PARTIAL))
    if not is_burst.any():
        return frame, 0
    whole = frame.filter(~is_burst).select("job", _whole=pl.lit(True)).unique("job")
    with_rules = frame.join(whole, on="job", how="left", maintain_order="left")
    fold = pl.col("status").is_in(list(_PARTIAL)) & pl.col("_whole").fill_null(False)
    kept = with_rules.filter(~fold).drop("_whole")
    return kept, frame.height - kept.height


def _translate(records: pl.DataFrame, start_s: int | None, names: dict[str, dict[str, str]], cluster: str) -> Translation:
    is_number = pl.col(_NUMERIC).str.contains(_NUMBER)
    numbers = records.with_columns(pl.when(is_number).then(pl.col(_NUMERIC)).cast(pl.Float64, strict=False).name.prefix("_"))
    known = {name: pl.when(pl.col(f"_{name}") >= 0).then(pl.col(f"_{name}")) for name in _NUMERIC}
    # Without UnixStartTime (or with one that is no time) the log counts from the beginning of its own clock.
    start_us = (start_s or _EPOCH_S) * 1_000_000
    submit = (known["submit"] * 1e6).cast(pl.Int64, strict=False) + start_us
    began = submit + (known["wait"] * 1e6).cast(pl.Int64, strict=False)
    ran = (known["run"] * 1e6).cast(pl.Int64, strict=False)
    # A job that ran, and nobody knows how long it waited: it ended at submission + run time, or later.
    ended = pl.coalesce(began + ran, submit + ran)
    codes = records["status"].unique()
    states = pl.Series([swf_state(word) for word in codes], dtype=pl.String)
    requested = known["req_mem"] * pl.coalesce(known["req_procs"], known["procs"], 1) * 1024
    jobs = numbers.select(
        "record",
        "line",
        cluster=pl.lit(cluster),
        job_id=pl.col("job").cast(pl.Int64, strict=False),
        submit_time=_as_time(submit),
        restart=pl.lit(0),
        start_time=_as_time(began),
        end_time=_as_time(ended),
        state=pl.col("status").replace_strict(codes, states, default=None, return_dtype=pl.String),
        state_raw="status",
        elapsed_s=known["run"],
        time_limit_s=known["req_time"],
        cpus=known["procs"].cast(pl.Int64, strict=False),
        req_cpus=known["req_procs"].cast(pl.Int64, strict=False),
        cpu_limit_s=known["run"] * known["procs"],
        cpu_time_s=known["avg_cpu"] * known["procs"].fill_null(1),
        max_rss_bytes=(known["used_mem"] * 1024).cast(pl.Int64, strict=False),
        req_mem_bytes=requested.cast(pl.Int64, strict=False),
        user=_identifier("user"),
        group=_identifier("group"),
        partition=_identifier("partition").replace(names["Partition"]),
        qos=_identifier("queue").replace(names["Queue"]),
    )
    jobs = _marked_ends(_never_started(jobs), numbers.select(known["wait"].is_null()).to_series())
    others = {name: records.select(_identifier(name)).to_series() for name in ("executable", "preceding", "think")}
    jobs = jobs.with_columns(extra=as_map(others), unread=_unread(records, numbers))
    bad = records.filter(jobs["state"].is_null())
    return with_schema(jobs.filter(pl.col("state").is_not_null())), _bad_status(bad)


def _unread(records: pl.DataFrame, numbers: pl.DataFrame) -> pl.Series:
    """The texts of fields that are no number, by the column that is null for it."""
    odd = {name: numbers[f"_{name}"].is_null() for name in _FILLS}
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, records.height)
    texts = {_FILLS[name]: records[name].zip_with(flags, nothing) for name, flags in odd.items() if flags.any()}
    return as_map(texts) if texts else no_unread(records.height)


_LATEST_S: Final = 4_291_747_200
_EPOCH_S: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp())


def _as_time(micros: pl.Expr) -> pl.Expr:
    sane = pl.when(micros.is_between(0, 4_291_747_200_000_000)).then(micros)
    return pl.from_epoch(sane, "us").dt.replace_time_zone("UTC")


def _identifier(name: str) -> pl.Expr:
    return pl.when(~pl.col(name).str.starts_with("-")).then(pl.col(name))


def _never_started(jobs: pl.DataFrame) -> pl.DataFrame:
    """A job cancelled in the queue has its wait until then, no run time and no processors: it has no start."""
    waited_only = (
        (pl.col("state") == JobState.CANCELLED.value) & pl.col("elapsed_s").fill_null(0).eq(0) & pl.col("cpus").fill_null(0).eq(0)
    )
    return jobs.with_columns(
        end_time=pl.when(waited_only).then(pl.coalesce("end_time", "start_time")).otherwise("end_time"),
        start_time=pl.when(waited_only).then(None).otherwise("start_time"),
    )


def _marked_ends(jobs: pl.DataFrame, waited_unknown: pl.Series) -> pl.DataFrame:
    """Jobs whose end is only the earliest it can have been, with_rules as such; of one that never ran nothing is known."""
    taken = waited_unknown & jobs["end_time"].is_not_null()
    in_queue = waited_unknown & (jobs["state"] == JobState.CANCELLED.value) & (jobs["elapsed_s"].fill_null(0.0) <= 0.0)
    jobs = jobs.with_columns(end_time=pl.when(~in_queue.fill_null(False)).then("end_time"))
    return with_rules(jobs, {END_WITHOUT_WAIT: taken & ~in_queue.fill_null(False)})


def _bad_status(records: pl.DataFrame) -> pl.DataFrame:
    if not records.height:
        return no_rejects()
    return records.select(
        "line",
        rule=pl.lit("bad_value"),
        reason=pl.lit("status is not one of SWF: ") + pl.col("status"),
        raw=pl.concat_str(FIELDS, separator=" "),
    ).cast(REJECT_SCHEMA)


def write_swf(jobs: pl.DataFrame, path: Path, *, header: dict[str, str] | None = None) -> int:
    """Write a job frame as SWF (gzip where the name ends in .gz); users, groups and queues are numbered. How many jobs.

    What SWF has no field for is left out; a state it has no number for is written as failed or cancelled.
    """
    ordered = jobs.sort("submit_time", "job_id")
    if not ordered.height:
        raise SourceFormatError("There are no jobs to write.", hint="Ingest some, or widen the span of time.")
    start = ordered["submit_time"].min()
    assert isinstance(start, datetime)
    numbering = {name: _numbering(ordered, name) for name in ("user", "group", "partition", "qos")}
    table = _swf_table(ordered, start, numbering)
    with _open_for_writing(path) as out:
        out.write(_header_text(ordered, start, numbering, header or {}).encode())
        out.write(table.write_csv(separator=" ", include_header=False).encode())
    return ordered.height


@contextmanager
def _open_for_writing(path: Path) -> Iterator[IO[bytes]]:
    with writing_private(path) as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # Neither time nor name in the gzip header: the same jobs make the same file.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            yield packed  # type: ignore[misc]


def _numbering(jobs: pl.DataFrame, name: str) -> dict[str, int]:
    return {value: number for number, value in enumerate(jobs[name].drop_nulls().unique().sort(), start=1)}


_STATUS: Final = {JobState.COMPLETED: 1, JobState.CANCELLED: 5, JobState.UNKNOWN: -1, JobState.RUNNING: -1, JobState.PENDING: -1}


def _swf_table(jobs: pl.DataFrame, start: datetime, numbering: dict[str, dict[str, int]]) -> pl.DataFrame:
    def number(expression: pl.Expr) -> pl.Expr:
        return expression.fill_null(-1).cast(pl.Int64)

    def code(name: str) -> pl.Expr:
        return number(pl.col(name).replace_strict(numbering[name], default=-1, return_dtype=pl.Int64))

    # A job that ran, and whose start is not known, waited nobody knows how long: −1.
    in_queue = pl.col("elapsed_s").fill_null(0.0) <= 0.0
    began = pl.coalesce("start_time", pl.when(in_queue).then("end_time"))
    statuses = {state.value: _STATUS.get(state, 0) for state in JobState}
    return jobs.select(
        number(pl.col("job_id")).alias("job"),
        number((pl.col("submit_time") - start).dt.total_seconds()).alias("submit"),
        number((began - pl.col("submit_time")).dt.total_seconds()).alias("wait"),
        number(pl.col("elapsed_s").round()).alias("run"),
        number(pl.col("cpus")).alias("procs"),
        number((pl.col("cpu_time_s") / pl.col("cpus").clip(1)).round()).alias("avg_cpu"),
        number(pl.col("max_rss_bytes") // 1024).alias("used_mem"),
        number(pl.col("req_cpus")).alias("req_procs"),
        number(pl.col("time_limit_s").round()).alias("req_time"),
        number(pl.col("req_mem_bytes") // 1024 // pl.coalesce("req_cpus", "cpus", 1).clip(1)).alias("req_mem"),
        pl.col("state").replace_strict(statuses, return_dtype=pl.Int64).alias("status"),
        code("user"),
        code("group"),
        number(pl.col("extra").map.get("executable").cast(pl.Int64, strict=False)).alias("executable"),
        code("qos").alias("queue"),
        code("partition"),
        number(pl.col("extra").map.get("preceding").cast(pl.Int64, strict=False)).alias("preceding"),
        number(pl.col("extra").map.get("think").cast(pl.Int64, strict=False)).alias("think"),
    )


def _header_text(jobs: pl.DataFrame, start: datetime, numbering: dict[str, dict[str, int]], entries: dict[str, str]) -> str:
    fields = {
        "Version": "2.2",
        **entries,
        "MaxJobs": str(jobs.height),
        "MaxRecords": str(jobs.height),
        "UnixStartTime": str(int(start.timestamp())),
        "TimeZoneString": "UTC",
        "StartTime": f"{start:%a %b %d %H:%M:%S UTC %Y}",
        "MaxQueues": str(len(numbering["qos"])),
        "MaxPartitions": str(len(numbering["partition"])),
    }
    lines = [f"; {key}: {_one_line(value)}" for key, value in fields.items()]
    for title, name in (("Queue", "qos"), ("Partition", "partition")):
        lines += [f"; {title}: {number} {_one_line(value)}" for value, number in numbering[name].items()]
    return "\n".join([*lines, ";", ""])


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
