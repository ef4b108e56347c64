"""A table of jobs -> the columns of a workload: CSV (any delimiter, plain or gzip) or Parquet with names that can be recognised.

path -> read_workload_table -> WorkloadTable. A table may tell times of submission, or only the intervals between them. What it
has next to is kept as numbers or categories. A row whose time of submission cannot be true is left out; any other value that
cannot be true is empty. Both are counted, with the reason and examples. Text columns of a CSV stay
text until they are recognised; a Parquet file keeps its types.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.states import JobState, slurm_state
from stormpetrel.records.times import EARLIEST, LATEST, UTC_TIME, from_unix, local_to_utc, to_utc, within_reason
from stormpetrel.records.units import NO_LIMIT, NO_VALUE, duration_s, size_bytes
from stormpetrel.records.unread import EXAMPLES
from stormpetrel.records.workload_columns import ARRAY, KNOWN, STATE, SUBMIT, WAIT, as_column
from stormpetrel.sources.lines import LineFile, Refused
from stormpetrel.sources.tables.column_names import (
    COUNTS,
    DURATIONS,
    END,
    INTERVAL,
    MEMORY,
    START,
    TEXTS,
    UNNAMED,
    Named,
    is_row_number,
    workload_columns,
)
from stormpetrel.sources.tables.delimited import Layout, parse_block
from stormpetrel.sources.tables.parquet_bounds import check_parquet

FIRST_MONDAY: Final = datetime(2024, 1, 1, tzinfo=UTC)  # where the clock of a table begins that tells none
LONGEST_S: Final = 3.2e8  # ten years: no interval and no run is longer, and the clock of a table stays within reason
_MOST_COUNT: Final = 1e12
_MOST_NUMBER: Final = 2.0**53  # of an array: an identifier, exact as a float
_MOST_BYTES: Final = 2.0**60
_LONGEST_TEXT: Final = 200
_SHOWN: Final = 12
_WORDS: Final = {"pass": "COMPLETED", "passed": "COMPLETED", "success": "COMPLETED", "fail": "FAILED", "killed": "CANCELLED"}
_REACHED: Final = 0.999  # of its limit, from which on a killed job ran into it
LINE: Final = "line"
MOST_COLUMNS: Final = 500
MOST_REFUSED: Final = 200_000
EXPECTED: Final = (
    "A table of jobs has a header with submit_time (or interval, in seconds) and any of user, cores, nodes, gpus, runtime, "
    "time_limit, state, queue, project."
)
_PARQUET_MAGIC: Final = b"PAR1"
_MARK: Final = b"\xef\xbb\xbf"


class WorkloadTable(NamedTuple):
    """Jobs in the order of submission, with columns named as in `records.workload_columns`; whether their clock is a real one."""

    jobs: pl.DataFrame
    has_clock: bool
    notes: tuple[str, ...]


def read_workload_table(path: Path, *, time_zone: str = "UTC") -> WorkloadTable:
    """The workload that a table tells; times without a zone of their own are in `time_zone`.

    SourceFormatError where it is no table, or tells neither times of submission nor intervals.
    """
    rows, refused = rows_of(path)
    named, spare = workload_columns(name for name in rows.columns if name != LINE)
    if SUBMIT not in named and INTERVAL not in named:
        names = ", ".join(shown_name(name) for name in rows.columns[:_SHOWN] if name != LINE)
        raise SourceFormatError(f"{path} tells neither times of submission nor intervals. Found: {names}.", hint=EXPECTED)
    table = _Table(path, rows, named, time_zone)
    table.notes += [f"{len(refused):,} lines cannot be read (line {refused[0][0]}: {refused[0][2]})."] if refused else []
    if not rows.height:
        raise _no_job(path, table.notes)
    jobs, has_clock = table.typed()
    jobs = table.sound(jobs.hstack(table.own_columns(spare)), has_clock=has_clock)
    if not jobs.height:
        raise _no_job(path, table.notes)
    return WorkloadTable(jobs, has_clock, tuple(table.notes))


def _no_job(path: Path, notes: list[str]) -> SourceFormatError:
    return SourceFormatError(f"{path} has no job that can be read. {' '.join(notes)}".strip(), hint=EXPECTED)


class _Table:
    """The rows of one table on their way to a workload; `notes` says what was not as it should be."""

    def __init__(self, path: Path, rows: pl.DataFrame, named: dict[str, Named], time_zone: str) -> None:
        self.notes: list[str] = []
        self._path, self._rows, self._named, self._zone = path, rows, named, time_zone
        self._wrong: dict[str, pl.Series] = {}  # reason -> which rows are left out
        self._odd: dict[str, tuple[str, pl.Series]] = {}  # reason -> column, and in which rows its value is empty

    def typed(self) -> tuple[pl.DataFrame, bool]:
        """The columns that are known, each of its type, and `line`; whether the times are those of a clock."""
        columns = {LINE: self._rows[LINE]}
        columns |= {name: self._text(name) for name in TEXTS if name in self._named}
        columns |= {name: self._count(name) for name in COUNTS if name in self._named}
        columns |= {name: self._seconds(name) for name in DURATIONS if name in self._named and name != INTERVAL}
        if MEMORY in self._named:
            columns[MEMORY] = self._memory()
        columns[SUBMIT], has_clock = self._submissions()
        self._spans(columns)
        jobs = pl.DataFrame(columns)
        if STATE in columns:
            jobs = jobs.with_columns(_states(jobs))
        order = [name for name in KNOWN if name in columns]
        return jobs.select(LINE, *(pl.col(name).cast(KNOWN[name]) for name in order)), has_clock

    def own_columns(self, spare: dict[str, str]) -> list[pl.Series]:
        """The columns that no vocabulary knows, as numbers or categories."""
        taken = {column.column for column in self._named.values()}
        kept: dict[str, pl.Series] = {}
        for name in self._rows.columns:
            if name in taken or name == LINE or is_row_number(name):
                continue
            if name in spare:
                self.notes.append(f"Column '{shown_name(name)}' is left out: '{shown_name(spare[name])}' tells the same.")
                continue
            column, why = _own(self._rows[name])
            if column is None:
                self.notes.append(f"Column '{shown_name(name)}' is left out: {why}.")
            else:
                kept.setdefault(shown_name(name).strip(), column)
        return [column.rename(name) for name, column in kept.items() if name not in KNOWN]

    def sound(self, jobs: pl.DataFrame, *, has_clock: bool) -> pl.DataFrame:
        """The rows that can be true, in the order of submission; the others are told in the notes."""
        self._note_odd()
        good = pl.repeat(True, jobs.height, eager=True)
        for reason, wrong in self._wrong.items():
            if wrong.any():
                first = int(jobs[LINE].filter(wrong)[0])
                self.notes.append(f"{int(wrong.sum()):,} rows are left out: {reason} (line {first:,} first).")
                good &= ~wrong
        jobs = jobs.filter(good).drop(LINE)
        if not jobs[SUBMIT].is_sorted():
            self.notes.append("The rows are not in the order of submission: they were sorted.")
            jobs = jobs.sort(SUBMIT, maintain_order=True)
        if not has_clock:
            self.notes.append(f"The table tells no dates: its times count from Monday, {FIRST_MONDAY:%Y-%m-%d}.")
        return jobs

    def _note_odd(self) -> None:
        for reason, (column, odd) in self._odd.items():
            if odd.any():
                some = self._rows.filter(odd).head(EXAMPLES).select(LINE, pl.col(column).cast(pl.String)).rows()
                shown = ", ".join(f"line {line:,}: {shown_name(text or '')!r}" for line, text in some)
                self.notes.append(f"{int(odd.sum()):,} values are left empty: {reason} ({shown}).")

    def _submissions(self) -> tuple[pl.Series, bool]:
        """The times of submission, of a clock where the table tells one, else counted from a Monday."""
        if SUBMIT not in self._named:
            return self._from_intervals(), False
        moment, is_clock = self._moment(SUBMIT)
        self._refuse(f"'{self._shown_name(SUBMIT)}' is no time", moment.is_null())
        return moment, is_clock

    def _from_intervals(self) -> pl.Series:
        """Each job comes its interval after the one before; an interval that cannot be true lets no time pass."""
        interval = self._seconds(INTERVAL, may_be_unknown=False)
        passed = interval.fill_null(0.0).cum_sum()
        micros = ((passed - passed.first()) * 1e6).round() if len(passed) else passed
        latest_us = (LATEST - FIRST_MONDAY).total_seconds() * 1e6
        self._refuse(f"the intervals add up to a time after {LATEST:%Y}", micros > latest_us)
        ticks = micros.clip(0, latest_us).cast(pl.Int64) + int(FIRST_MONDAY.timestamp() * 1e6)
        return ticks.cast(UTC_TIME).rename(SUBMIT)

    def _spans(self, columns: dict[str, pl.Series]) -> None:
        """Wait and run time out of start and end, where the table tells those instead."""
        if START not in self._named or (WAIT in columns and "runtime_s" in columns):
            return
        start, _ = self._moment(START)
        if WAIT not in columns:
            columns[WAIT] = _between(columns[SUBMIT], start)
        if "runtime_s" not in columns and END in self._named:
            columns["runtime_s"] = _between(start, self._moment(END)[0])

    def _moment(self, meaning: str) -> tuple[pl.Series, bool]:
        """The times of a column: dates, Unix seconds or milliseconds, or seconds since the beginning of the log."""
        column, factor = self._column(meaning), self._named[meaning].factor
        if isinstance(column.dtype, pl.Datetime | pl.Date):
            return _typed_times(column, self._zone), True
        numbers = _numbers(column)
        if numbers.null_count() == len(numbers):
            return to_utc(column.cast(pl.String), self._zone), True
        highest = numbers.max()
        assert isinstance(highest, float)
        if highest > 1e11 and factor is None:  # nobody counts seconds that far: milliseconds
            factor = 1e-3
        seconds = numbers * (factor or 1.0)
        if highest * (factor or 1.0) >= EARLIEST.timestamp():
            return from_unix(seconds), True
        sane = seconds.set(~seconds.is_between(0, LONGEST_S), None)
        return ((sane * 1e6).round().cast(pl.Int64) + int(FIRST_MONDAY.timestamp() * 1e6)).cast(UTC_TIME), False

    def _seconds(self, meaning: str, *, may_be_unknown: bool = True) -> pl.Series:
        """A duration in seconds; −1 is "not known" but for intervals. An interval that is no duration refuses its row."""
        column = self._column(meaning)
        if isinstance(column.dtype, pl.Duration):
            seconds, is_filled = column.dt.total_microseconds() / 1e6, column.is_not_null()
        else:
            factor = self._named[meaning].factor or 1.0
            seconds, is_filled = _numbers(column) * factor, _has_value(column)
            if column.dtype == pl.String:
                seconds = seconds.fill_null(duration_s(column))
        if may_be_unknown:
            is_filled &= (seconds != -1).fill_null(True)
            return self._within(meaning, seconds.set(seconds == -1, None), is_filled, LONGEST_S)
        first = pl.arange(len(is_filled), eager=True) == 0  # nothing comes before the first job
        return self._within(meaning, seconds, is_filled | ~first, LONGEST_S)

    def _count(self, meaning: str) -> pl.Series:
        column = self._column(meaning)
        numbers, is_filled = _numbers(column), _has_value(column)
        unknown = (numbers == -1).fill_null(False)
        numbers = self._within(
            meaning, numbers.set(unknown, None), is_filled & ~unknown, _MOST_NUMBER if meaning == ARRAY else _MOST_COUNT
        )
        broken = int((numbers != numbers.round()).sum())
        if broken:
            self.notes.append(f"'{self._shown_name(meaning)}' is not whole in {broken:,} rows: rounded.")
        return numbers.round().cast(pl.Int64)

    def _memory(self) -> pl.Series:
        """Memory of a job in bytes: `4G` says its unit, a name such as `mem_gb` too; other numbers are MiB, as in Slurm."""
        column, factor = self._column(MEMORY), self._named[MEMORY].factor
        sizes = _numbers(column) * (factor or 2.0**20)
        is_filled = _has_value(column)
        if column.dtype == pl.String:
            sizes = sizes.fill_null(size_bytes(column, default_unit="M").cast(pl.Float64))
        unknown = (_numbers(column) == -1).fill_null(False)
        return self._within(MEMORY, sizes.set(unknown, None), is_filled & ~unknown, _MOST_BYTES).round().cast(pl.Int64)

    def _within(self, meaning: str, numbers: pl.Series, is_filled: pl.Series, most: float) -> pl.Series:
        """The numbers that can be true; others are empty. Of intervals, which tell the submission, they refuse their row."""
        name = self._shown_name(meaning)
        below, above = (numbers < 0).fill_null(False), (numbers > most).fill_null(False)
        odd = {
            f"'{name}' is no number": is_filled & numbers.is_null(),
            f"'{name}' is below zero": below,
            f"'{name}' is beyond reason (above {most:.3g})": above,
        }
        for reason, which in odd.items():
            if meaning == INTERVAL:
                self._refuse(reason, which)
            else:
                self._odd[reason] = (self._named[meaning].column, which)
        return numbers.set(below | above, None)

    def _text(self, meaning: str) -> pl.Series:
        """Text without blanks around it; numbers that a program wrote as `7.0` are 7."""
        column = self._column(meaning)
        if column.dtype.is_float():
            whole = column.cast(pl.Int64, strict=False)
            column = whole if bool((whole == column).fill_null(True).all()) else column
        text = _one_line(column.cast(pl.String)).str.replace(r"^(\d+)\.0$", "${1}").str.slice(0, _LONGEST_TEXT)
        return text.set(text.is_in(NO_VALUE).fill_null(False), None)

    def _column(self, meaning: str) -> pl.Series:
        column = self._rows[self._named[meaning].column]
        return column.str.strip_chars() if column.dtype == pl.String else column

    def _shown_name(self, meaning: str) -> str:
        return shown_name(self._named[meaning].column)

    def _refuse(self, reason: str, which: pl.Series) -> None:
        self._wrong[reason] = which.fill_null(False) | self._wrong.get(reason, pl.repeat(False, len(which), eager=True))


def _numbers(column: pl.Series) -> pl.Series:
    """Numbers where they can be read, else null: what is not finite is no number."""
    numbers = column.cast(pl.Float64, strict=False)
    return numbers.set((~numbers.is_finite()).fill_null(False), None)


def _has_value(column: pl.Series) -> pl.Series:
    """Where a column has a value at all: neither empty, nor one of the words for that, nor NaN."""
    if column.dtype == pl.String:
        empty = column.is_in([*NO_VALUE, *NO_LIMIT]) | column.str.to_lowercase().is_in(["nan", "null", "none", "na"])
        return column.is_not_null() & ~empty.fill_null(False)
    return column.is_not_null() & ~(column.is_nan().fill_null(False) if column.dtype.is_float() else column.is_null())


def _typed_times(column: pl.Series, zone: str) -> pl.Series:
    times = column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None)))
    if getattr(column.dtype, "time_zone", None):
        return within_reason(times.dt.convert_time_zone("UTC"))
    return within_reason(times.to_frame("t").select(local_to_utc(pl.col("t"), zone)).to_series())


def _between(first: pl.Series, last: pl.Series) -> pl.Series:
    """Seconds from one time to another; null where it is not known, or cannot be true."""
    seconds = (last - first).dt.total_microseconds() / 1e6
    return seconds.set(~seconds.is_between(0, LONGEST_S).fill_null(True), None)


def _states(jobs: pl.DataFrame) -> pl.Expr:
    """One vocabulary where the words are known (as in the map `lumos`, and Slurm's own); other words as they are."""
    states = jobs[STATE].drop_nulls().unique()
    known = pl.Series([_state_of(word) for word in states], dtype=pl.String)
    state = pl.col(STATE).replace(states, known)
    if not {"runtime_s", "time_limit_s"} <= set(jobs.columns):
        return state
    used_up = (pl.col("runtime_s") >= _REACHED * pl.col("time_limit_s")).fill_null(False)
    killed = pl.col(STATE).str.to_lowercase() == "killed"
    return pl.when(killed & used_up).then(pl.lit(JobState.TIMEOUT.value)).otherwise(state).alias(STATE)


def _state_of(word: str) -> str:
    if word.isdigit():  # numbers mean other things in each log
        return word
    return _WORDS.get(word.lower()) or slurm_state(word) or word


def _own(column: pl.Series) -> tuple[pl.Series | None, str]:
    if column.dtype.is_numeric():
        return as_column(column)
    text = _one_line(column.cast(pl.String))
    if bool((text.str.len_chars() > _LONGEST_TEXT).fill_null(False).any()):
        return None, f"its texts are longer than {_LONGEST_TEXT} characters"
    return as_column(text.set((text == "").fill_null(False), None))


def _one_line(text: pl.Series) -> pl.Series:
    """Text that is written and shown as it is: one line, no control characters."""
    return text.str.replace_all(r"[\p{Cc}\p{Cf}]", " ").str.strip_chars()


def rows_of(path: Path) -> tuple[pl.DataFrame, list[Refused]]:
    """The rows with `line`, and the lines that are none."""
    file = LineFile(path)
    head = file.head()
    if head.startswith(_PARQUET_MAGIC):
        return _parquet(path), []
    if not head.strip():
        raise SourceFormatError(f"{path} is empty.", hint="Check that it was written to its end.")
    if b"\0" in head:
        raise SourceFormatError(f"{path} is neither text nor Parquet.", hint=EXPECTED)
    frames, refused, layout = [], list[Refused](), None
    for block in file.blocks():
        first, layout = layout is None, layout or _layout(path, block.data)
        frame, bad, _ = parse_block(block, layout)
        frames.append(frame.slice(1) if first else frame)
        refused += bad
        if len(refused) > MOST_REFUSED and len(refused) > sum(part.height for part in frames):
            raise SourceFormatError(f"{path}: {len(refused):,} lines are no rows of the table.", hint=EXPECTED)
    return (pl.concat(frames) if frames else pl.DataFrame(schema={LINE: pl.Int64})), refused


def _layout(path: Path, data: bytes) -> Layout:
    header = data.split(b"\n", 1)[0].rstrip(b"\r").removeprefix(_MARK)
    delimiter = max(",;\t|", key=lambda mark: header.count(mark.encode()))
    try:
        names = next(csv.reader([header.decode()], delimiter=delimiter, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise SourceFormatError(f"The first line of {path} is no header: {error}.", hint=EXPECTED) from error
    _check_names(path, names)
    return Layout(tuple(_free(names)), delimiter.encode(), has_header=True, quoted=True)


def _parquet(path: Path) -> pl.DataFrame:
    check_parquet(path)
    try:
        rows = pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise SourceFormatError(f"{path} is no Parquet file: {reason}.", hint="It may be cut off: copy it again.") from error
    _check_names(path, rows.columns)
    rows = rows.rename(dict(zip(rows.columns, _free(rows.columns), strict=True)))
    plain = [pl.col(name) for name, dtype in rows.schema.items() if not (dtype.is_nested() or dtype in (pl.Binary, pl.Object))]
    return rows.select(plain).with_columns(pl.int_range(1, rows.height + 1, dtype=pl.Int64).alias(LINE))


def _check_names(path: Path, names: list[str]) -> None:
    clean = [name.strip() for name in names]
    twice = next((name for place, name in enumerate(clean) if name and name in clean[:place]), None)
    if twice is not None:
        raise SourceFormatError(f"Two columns of {path} are called '{shown_name(twice)}'.", hint="Give one of them another name.")
    if len(clean) > MOST_COLUMNS:
        raise SourceFormatError(f"{path} has {len(clean):,} columns.", hint=f"At most {MOST_COLUMNS} are read: leave some out.")


def _free(names: list[str]) -> list[str]:
    """The names; a column without one, or called `line` as ours is, gets another."""
    free = (f"{name}_" if name == LINE else name for name in names)
    return [name if name.strip() else f"{UNNAMED}{place}" for place, name in enumerate(free)]


def shown_name(name: str) -> str:
    """The name of a column as it can be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:60])
