"""A table of jobs as rows: CSV (any delimiter, plain or gzip) or Parquet -> a frame with the file's own names, and `line`.

path -> rows_of -> frame, refused lines. Text columns of a CSV stay text; a Parquet file keeps its types.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.lines import LineFile, Refused
from stormpetrel.sources.tables.column_names import UNNAMED
from stormpetrel.sources.tables.delimited import Layout, parse_block
from stormpetrel.sources.tables.parquet_bounds import check_parquet

LINE: Final = "line"
MOST_COLUMNS: Final = 500
MOST_REFUSED: Final = 200_000
EXPECTED: Final = (
    "A table of jobs has a header with submit_time (or interval, in seconds) and any of user, cores, nodes, gpus, runtime, "
    "time_limit, state, queue, project."
)
_PARQUET_MAGIC: Final = b"PAR1"
_MARK: Final = b"\xef\xbb\xbf"


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
