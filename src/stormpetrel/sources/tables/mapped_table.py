"""Any CSV or Parquet file through a column map -> job records."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.quality import rejects
from stormpetrel.sources.contract import Chunk, FileSource, Translation
from stormpetrel.sources.tables.column_map import UNNAMED, ColumnMap, load_map, translate
from stormpetrel.sources.tables.column_names import vocabulary_of_names
from stormpetrel.sources.tables.delimited import Layout, parse_block
from stormpetrel.sources.tables.parquet_bounds import check_parquet

_PARQUET_MAGIC: Final = b"PAR1"
_ROWS: Final = 100_000


class MappedTable(FileSource):
    """A CSV (plain or gzip) or Parquet file whose columns a map explains."""

    def __init__(
        self,
        path: Path | str,
        *,
        column_map: str | ColumnMap,
        time_zone: str = "UTC",
        cluster: str = "cluster",
        block_bytes: int | None = None,
    ) -> None:
        self._map = load_map(column_map) if isinstance(column_map, str) else column_map
        self.format = Path(column_map).stem if isinstance(column_map, str) else "table"
        super().__init__(path, block_bytes)
        self._time_zone, self._cluster = time_zone, cluster
        self._meaning = ""

    def fields(self) -> frozenset[str]:
        """The job columns that the map fills."""
        return self._map.fields()

    def chunks(self) -> Iterator[Chunk]:
        """The rows of the table, some thousands at a time."""
        if self._file.head(4) == _PARQUET_MAGIC:
            yield from self._parquet_chunks()
        else:
            yield from self._csv_chunks()

    def _csv_chunks(self) -> Iterator[Chunk]:
        layout: Layout | None = None
        for block in self._file.blocks():
            first = layout is None
            if layout is None:
                layout = self._layout(block.data)
            frame, refused, read = parse_block(block, layout)
            if first:
                frame, read = frame.slice(1), read - 1
            records = frame.with_columns(record=pl.int_range(frame.height, dtype=pl.UInt32))
            yield Chunk(
                records=records,
                translate=self._translate,
                meaning=self._meaning,
                read=read,
                rejects=rejects(refused),
                bytes_done=block.bytes_done,
            )
        if layout is None:
            raise SourceFormatError(f"{self.name} is empty.", hint="Check that it was written to its end.")

    def _layout(self, data: bytes) -> Layout:
        header = data.split(b"\n", 1)[0].rstrip(b"\r").lstrip(b"\xef\xbb\xbf")
        try:
            names = next(csv.reader([header.decode()], delimiter=self._map.delimiter, strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise SourceFormatError(f"The first line of {self.name} is no CSV header: {error}.") from error
        clean = self._as_in_map([name.strip() or f"{UNNAMED}{position}" for position, name in enumerate(names)])
        self._check(clean)
        return Layout(tuple(clean), self._map.delimiter.encode(), has_header=True, quoted=True)

    def _parquet_chunks(self) -> Iterator[Chunk]:
        check_parquet(self._file.path)
        try:
            lazy = pl.scan_parquet(self._file.path)
            schema = lazy.collect_schema()
            readable = [name for name, dtype in schema.items() if _is_readable(dtype)]
            names = self._as_in_map(readable)
            height = lazy.select(pl.len()).collect().item()
        except pl.exceptions.PolarsError as error:
            raise SourceFormatError(
                f"{self.name} is no Parquet file: {str(error).splitlines()[0]}.",
                hint="It may be cut off: copy it again.",
            ) from error
        self._check(names)
        for start in range(0, height, _ROWS):
            part = lazy.select(readable).slice(start, _ROWS).collect().rename(dict(zip(readable, names, strict=True)))
            text = part.select(_as_text(part, self._local_times()))
            records = text.with_columns(
                record=pl.int_range(text.height, dtype=pl.UInt32),
                line=pl.int_range(start + 1, start + 1 + text.height, dtype=pl.Int64),
            )
            yield Chunk(
                records=records,
                translate=self._translate,
                meaning=self._meaning,
                read=text.height,
                bytes_done=int(self.size_bytes * (start + text.height) / height),
            )

    def _local_times(self) -> set[str]:
        return {rule.source for rule in self._map.columns.values() if rule.kind == "local"}

    def _as_in_map(self, names: list[str]) -> list[str]:
        """The header with the names of the map, where a column differs from one of them in case or spacing only."""
        wanted = [name for name in self._map.names() if name not in names]
        columns = vocabulary_of_names(wanted).columns((name for name in names if name not in self._map.names()), wanted)
        written = {column: name for name, column in columns.items()}
        return [written.get(name, name) for name in names]

    def _check(self, names: list[str]) -> None:
        taken = next((name for name in names if name in ("line", "record")), None)
        if taken:
            raise SourceFormatError(
                f"A column of {self.name} is called '{taken}'.", hint="Give it another name; this one is ours."
            )
        added = [name for rule in self._map.columns.values() if rule.source in names for name in rule.added()]
        wanted = [
            *added,
            *self._map.needs,
            *(self._map.columns[name].source for name in ("job_id", "submit_time")),
            self._map.state.source,
        ]
        lacking = next((name for name in wanted if name not in names), None)
        if lacking:
            raise SourceFormatError(
                f"Column '{lacking}' of the map '{self.format}' is missing from {self.name}. Found: {', '.join(names[:12])}.",
                hint="Name the map that fits (--format lumos, alcf-djc, supercloud) or write one: docs/sources.",
            )
        self._meaning = f"{names}:{self._map}:{self._time_zone}:{self._cluster}"

    def _translate(self, records: pl.DataFrame, _steps: pl.DataFrame | None) -> Translation:
        return translate(records, self._map, time_zone=self._time_zone, cluster=self._cluster)


def _is_readable(dtype: pl.DataType) -> bool:
    return not (dtype.is_nested() or dtype in (pl.Binary, pl.Object, pl.Null))


def _as_text(part: pl.DataFrame, local: set[str]) -> list[pl.Expr]:
    """Parquet has types; the map speaks of text. Times become Unix seconds, or local time where the map says so."""
    columns = []
    for name, dtype in part.schema.items():
        if isinstance(dtype, pl.Datetime) and name in local and not dtype.time_zone:
            columns.append(pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S"))
        elif isinstance(dtype, pl.Datetime):
            moment = pl.col(name) if dtype.time_zone else pl.col(name).dt.replace_time_zone("UTC")
            columns.append((moment.dt.epoch("us") / 1e6).cast(pl.String).alias(name))
        elif isinstance(dtype, pl.Duration):
            columns.append((pl.col(name).dt.total_microseconds() / 1e6).cast(pl.String).alias(name))
        else:
            columns.append(pl.col(name).cast(pl.String))
    return columns
