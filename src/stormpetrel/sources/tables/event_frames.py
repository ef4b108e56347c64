"""Files of rows -> Polars frames, a piece at a time: CSV (any delimiter), NDJSON, Parquet; plain or gzip.

path -> frames_of -> frames whose columns are text (CSV) or typed (NDJSON, Parquet); what is no row is counted, not read.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lines import Block, LineFile
from stormpetrel.sources.tables.parquet_bounds import check_parquet

BAD_ROW: Final = "bad_record"
_ROWS: Final = 1_000_000  # of a Parquet file at a time
_SAMPLED_ROWS: Final = 1000  # objects
_ONE_BY_ONE: Final = 20_000
_DEEP: Final = re.compile(rb"(?:[\[{][^\[\]{}\n]*){64}")  # so many brackets that open before one closes
_MARK: Final = b"\xef\xbb\xbf"
Keep = Callable[[list[str]], list[str]]


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
