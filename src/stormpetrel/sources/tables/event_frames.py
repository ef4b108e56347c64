"""Files of rows -> Polars frames, a piece at a time, their values checked: CSV (any delimiter), NDJSON, Parquet; plain or gzip.

path -> frames_of -> frames whose columns are text (CSV) or typed (NDJSON, Parquet); what is no row is counted, not read.
text -> times_of (UTC), counts_of (whole numbers); names -> ids_of.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.times import UTC_TIME, local_to_utc, to_utc, within_reason
from stormpetrel.sources.event_tally import NamedIds
from stormpetrel.sources.lines import Block, LineFile
from stormpetrel.sources.tables.parquet_bounds import check_parquet

BAD_ROW: Final = "bad_record"
_ROWS: Final = 1_000_000  # of a Parquet file at a time
_SAMPLED_ROWS: Final = 1000  # objects
_ONE_BY_ONE: Final = 20_000
_DEEP: Final = re.compile(rb"(?:[\[{][^\[\]{}\n]*){64}")  # so many brackets that open before one closes
_MARK: Final = b"\xef\xbb\xbf"
Keep = Callable[[list[str]], list[str]]
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_DIGITS: Final = r"^\d{12,14}$"
# A day, a minute, a space for the T, a named UTC: what people write and what spreadsheets and databases export.
_LOOSE: Final = r"^\s*(\d{4})[-/](\d\d)[-/](\d\d)(?:[ T](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)?\s?(Z|UTC|[+-]\d\d:?\d\d)?\s*$"
_OFFSET: Final = re.compile(r"(Z|UTC|:\d\d(\.\d+)?\s?[+-]\d\d:?\d\d)\s*$", re.ASCII)
_WHOLE_COUNT: Final = r"^\s*\+?\d{1,15}(\.0*)?\s*$"


def frames_of(path: Path, aside: Counter[str], keep: Keep | None = None) -> Iterator[pl.DataFrame]:
    """The rows of a file; rows that cannot be read are counted in `aside`. `keep` chooses among the names of the columns."""
    if path.suffix.lower() == ".parquet":
        yield from _parquet(path, keep)
        return
    file = LineFile(path)
    head = file.head().removeprefix(_MARK).lstrip()
    if not head:
        raise SourceFormatError(f"{path} is empty.", hint="Check that it was written to its end.")
    yield from _ndjson(file, aside, keep) if head.startswith(b"{") else _csv(file, aside, keep)


def read_ahead(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same frames; while one is worked on, the next one is read."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = reader.submit(next, frames, None)
            yield frame


def _parquet(path: Path, keep: Keep | None) -> Iterator[pl.DataFrame]:
    check_parquet(path)
    try:
        rows = pl.scan_parquet(path, glob=False)
        height = int(rows.select(pl.len()).collect().item())
        rows = rows.select(keep(rows.collect_schema().names())) if keep else rows
        for first in range(0, height, _ROWS):
            yield rows.slice(first, _ROWS).collect()
    except FileNotFoundError:
        raise SourceFormatError(f"There is no file {path}.", hint="Check the path.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise SourceFormatError(f"{path} is no Parquet file: {reason}.", hint="Check that it was written to its end.") from error


def _csv(file: LineFile, aside: Counter[str], keep: Keep | None) -> Iterator[pl.DataFrame]:
    header, delimiter, names = b"", ",", list[str]()
    for block in file.blocks():
        aside += Counter({BAD_ROW: len(block.refused)})
        data = block.data
        if not header:
            data = data.removeprefix(_MARK).lstrip(b"\r\n")
            header = data.split(b"\n", 1)[0] + b"\n"
            delimiter = max(",;\t|", key=lambda mark: header.count(mark.encode()))
            names = _read_csv(header, delimiter, None, file).columns
            data = data[len(header) :]
        yield _read_csv(data, delimiter, names, file, keep(names) if keep else names)


def _read_csv(
    data: bytes, delimiter: str, names: list[str] | None, file: LineFile, kept: list[str] | None = None
) -> pl.DataFrame:
    """Rows as text; `names` of the columns where the header was read before."""
    try:
        return pl.read_csv(
            data,
            separator=delimiter,
            has_header=names is None,
            schema=dict.fromkeys(names, pl.String()) if names else None,
            columns=[names.index(name) for name in kept] if names and kept else None,
            infer_schema=False,
            encoding="utf8" if data.isascii() else "utf8-lossy",
            truncate_ragged_lines=True,
            raise_if_empty=False,
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0][:200]
        raise SourceFormatError(f"{file.name} is no table: {reason}.", hint="Expected a header line and rows.") from error


def _ndjson(file: LineFile, aside: Counter[str], keep: Keep | None) -> Iterator[pl.DataFrame]:
    schema: pl.Schema | None = None
    for block in file.blocks():
        if keep and schema is None:
            schema = _schema(block, keep)
        frame, bad = _objects(block, schema)
        aside += Counter({BAD_ROW: bad + len(block.refused)})
        yield frame


def _schema(block: Block, keep: Keep) -> pl.Schema:
    """The fields of the first objects that are looked at, all as text: three times as fast as finding out what each is."""
    names: dict[str, None] = {}
    below: dict[str, None] = {}  # `_source`, in documents of Elasticsearch
    for line in block.data.split(b"\n", _SAMPLED_ROWS)[:_SAMPLED_ROWS]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            names |= dict.fromkeys(value)
            below |= dict.fromkeys(value["_source"]) if isinstance(value.get("_source"), dict) else {}
    if below:
        return pl.Schema({"_source": pl.Struct(dict.fromkeys(keep(list(below)), pl.String()))})
    return pl.Schema(dict.fromkeys(keep(list(names)), pl.String()))


def _objects(block: Block, schema: pl.Schema | None) -> tuple[pl.DataFrame, int]:
    """The objects of a block; where one of them is damaged, those that are not, one by one."""
    data, bad = _without_deep_lines(block.data)
    try:
        return _flat(pl.read_ndjson(data, schema=schema, infer_schema_length=None)), bad
    except pl.exceptions.PolarsError:
        pass
    lines = [line for line in data.split(b"\n") if line.strip()]
    sound = [line for line in lines if _is_object(line)]
    bad += len(lines) - len(sound)
    if not sound:
        return pl.DataFrame(), bad
    try:
        return _flat(pl.read_ndjson(b"\n".join(sound), schema=schema, infer_schema_length=None)), bad
    except pl.exceptions.PolarsError:
        frames, unread = _one_by_one(sound, schema)
    return (pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()), bad + unread


def _without_deep_lines(data: bytes) -> tuple[bytes, int]:
    """The lines without those that are nested more deeply than any event is, which a reader needs minutes for; how many."""
    if not _DEEP.search(data):
        return data, 0
    lines = data.split(b"\n")
    kept = [line for line in lines if not _DEEP.search(line)]
    return b"\n".join(kept), len(lines) - len(kept)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _one_by_one(lines: list[bytes], schema: pl.Schema | None) -> tuple[list[pl.DataFrame], int]:
    """Objects that do not fit together, each by itself, as many as that is worth; how many were not read."""
    frames = []
    for line in lines[:_ONE_BY_ONE]:
        try:
            frames.append(_flat(pl.read_ndjson(line, schema=schema)))
        except pl.exceptions.PolarsError:
            continue
    return frames, len(lines) - len(frames)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Documents of Elasticsearch have their fields below `_source`."""
    if "_source" in frame.columns and isinstance(frame.schema["_source"], pl.Struct):
        return frame.select("_source").unnest("_source")
    return frame


def times_of(column: pl.Series, time_zone: str) -> pl.Series:
    """A column as UTC times; null where it is none. Text without an offset is in the site's zone; numbers are s or ms of Unix."""
    if column.dtype.is_temporal():
        naive = column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None)))
        utc = naive if naive.dtype == UTC_TIME or getattr(naive.dtype, "time_zone", None) else None
        located = naive.to_frame("t").select(local_to_utc(pl.col("t"), time_zone)).to_series() if utc is None else utc
        return within_reason(located.cast(UTC_TIME)).rename(column.name)
    text = (
        column.cast(pl.String, strict=False)
        if not column.dtype.is_float()
        else column.cast(pl.Int64, strict=False).cast(pl.String)
    )
    parsed = _by_first_style(text, time_zone)
    missing = parsed.is_null() & text.is_not_null()
    if missing.any():
        rest = _strict(text.filter(missing))
        seconds = rest.to_frame("t").select(
            pl.when(pl.col("t").str.contains(_DIGITS))
            .then(pl.col("t").str.slice(0, pl.col("t").str.len_chars() - 3))
            .otherwise("t")
        )
        parsed = parsed.scatter(missing.arg_true(), to_utc(seconds.to_series(), time_zone))
    return parsed.rename(column.name)


def is_wall_clock(column: pl.Series) -> bool:
    """Whether the times of a column are of the site's own clock, which shows an hour of autumn twice: no zone, no number."""
    if column.dtype.is_temporal():
        return getattr(column.dtype, "time_zone", None) is None
    first = column.drop_nulls().head(1).to_list()
    return column.dtype == pl.String and bool(first) and not first[0].strip().isdigit() and not _OFFSET.search(first[0])


def second_pass(cells: pl.DataFrame, key: list[str], time_zone: str) -> pl.DataFrame:
    """Rows of the site's clock in which a time that the clock shows twice, and that comes twice, is an hour later once.

    Which of the two it is, the order of the table tells.
    """
    time, hour = pl.col("time"), pl.duration(hours=1)
    wall, later = (moment.dt.convert_time_zone(time_zone).dt.replace_time_zone(None) for moment in (time, time + hour))
    is_downward = cells.height > 1 and cells["time"][0] > cells["time"][-1]
    place = pl.int_range(pl.len()).over(key)
    is_second = pl.len().over(key) - 1 - place == 1 if is_downward else place == 1
    return cells.with_columns(time=pl.when((wall == later) & is_second).then(time + hour).otherwise(time))


def _strict(text: pl.Series) -> pl.Series:
    """Times as they are written in the wild, with a T, seconds and an offset where they have one; other text as it is."""
    parts = text.str.extract_groups(_LOOSE).struct
    year, month, day, minute, second, offset = (parts.field(str(number)) for number in range(1, 7))
    zone = offset.fill_null("").replace("UTC", "Z")
    clock = minute.fill_null("00:00") + second.fill_null(":00")
    return (year + "-" + month + "-" + day + "T" + clock + zone).zip_with(year.is_not_null(), text)


def _by_first_style(text: pl.Series, time_zone: str) -> pl.Series:
    """All times that are written like the first one, in whole seconds; null for others.

    A minute is read once however many events it has: five times as fast as reading every time.
    """
    first = text.drop_nulls().head(1).to_list()
    style = _ISO.fullmatch(first[0]) if first else None
    if not style:
        return pl.Series([None], dtype=UTC_TIME).new_from_index(0, len(text))
    offset = style[3] or ""
    second = text.str.slice(17, 2).cast(pl.Int64, strict=False)
    fits = (text.str.len_bytes() == len(first[0])) & text.str.ends_with(offset) & (text.str.slice(16, 1) == ":")
    fits &= second.is_between(0, 59)
    ids, minutes = ids_of(text.str.head(16))
    read = to_utc(minutes.str.slice(0, 10) + "T" + minutes.str.slice(11, 5) + ":00" + offset, time_zone)
    at = read.extend_constant(None, 1).gather(ids % (len(minutes) + 1))  # the one behind the last is for none
    none = pl.Series([None], dtype=UTC_TIME).new_from_index(0, len(text))
    return (at + (second * 1_000_000).cast(pl.Duration("us"))).zip_with(fits.fill_null(False), none)


def ids_of(column: pl.Series) -> NamedIds:
    """(rows,) a number per name, -1 for none; and the names."""
    coded = column.cast(pl.Categorical)
    different = coded.unique().drop_nulls()
    numbers = different.to_physical().cast(pl.Int64).to_numpy()  # (names,) of Polars' own; ours follow each other from 0
    ours = np.full(int(numbers.max(initial=-1)) + 2, -1)  # the last one is for none
    ours[numbers] = np.arange(numbers.size)
    return ours[coded.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()], different.cast(pl.String)


def counts_of(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """A column as whole counts (null where it has none), and where it holds something that is no count: -1, 2.5, text."""
    if column.dtype == pl.String:
        is_empty = column.is_null() | (column.str.strip_chars() == "")
        fits = column.str.contains(_WHOLE_COUNT).fill_null(False)
        text = column.str.strip_chars().str.strip_prefix("+").str.split(".").list.first()
        return text.cast(pl.Int64, strict=False).zip_with(fits, _nulls(len(column))), ~is_empty & ~fits
    number = column.cast(pl.Float64, strict=False)
    is_empty = column.is_null() | number.is_nan()
    fits = ((number >= 0) & (number < 1e15) & (number == number.floor())).fill_null(False)
    return number.zip_with(fits, _nulls(len(column)).cast(pl.Float64)).cast(pl.Int64), ~is_empty & ~fits


def is_numbers(column: pl.Series) -> bool:
    """Whether a column can be one of counts: most of what it holds are numbers."""
    if column.dtype.is_numeric():
        return True
    if column.dtype != pl.String:
        return False
    filled = column.filter(column.is_not_null() & (column.str.strip_chars() != ""))
    return len(filled) > 0 and filled.str.contains(r"^\s*[+-]?\d+(\.\d*)?([eE][+-]?\d+)?\s*$").sum() * 2 >= len(filled)


def _nulls(size: int) -> pl.Series:
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, size)
