"""Tasks of an array that still wait: Slurm shows them as one record, `123_[0-2,7%4]`, until each of them starts.

chunk of a live source -> split_arrays -> the same chunk with one record per task, as they will be known later on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import polars as pl

from stormpetrel.sources.contract import Chunk

MOST_TASKS: Final = 1000  # of one array; the others come when they start
_WAITING: Final = re.compile(r"^(\d+)_\[([^\]]*)\]?$")
_BITMAP: Final = re.compile(r"^0x([0-9A-Fa-f]{1,1000001})$")  # one bit per task; Slurm allows four million
_RANGE: Final = re.compile(r"^(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$")


def split_arrays(chunk: Chunk) -> Chunk:
    """The same records, those of waiting tasks one by one."""
    if not chunk.records.height:
        return chunk
    columns = chunk.records.columns
    split = _split_text(chunk.records) if "jobid" in columns else _split_typed(chunk.records) if "extra" in columns else None
    if split is None:
        return chunk
    return replace(chunk, records=split, read=chunk.read + split.height - chunk.records.height)


def tasks_of(text: str) -> Iterator[int]:
    """The numbers of a task list as Slurm writes it, `0-2,7,10-20:5%4`; what is cut off or no number is left out.

    slurmdbd's JSON has a bit map instead: `0x1F`.

    >>> list(tasks_of("0-2,7,10-20:5%4")), list(tasks_of("0x1A"))
    ([0, 1, 2, 7, 10, 15, 20], [1, 3, 4])
    """
    bitmap = _BITMAP.match(text.partition("%")[0].strip())
    if bitmap is not None:
        bits = bin(int(bitmap[1], 16))[:1:-1]
        yield from islice((task for task, bit in enumerate(bits) if bit == "1"), MOST_TASKS)
        return
    count = 0
    for part in text.partition("%")[0].split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        for task in range(first, last + 1, max(1, int(match[3] or 1))):
            if count == MOST_TASKS:
                return
            count += 1
            yield task


def _split_text(records: pl.DataFrame) -> pl.DataFrame | None:
    waits = records["jobid"].str.contains(_WAITING.pattern).fill_null(False)
    if not waits.any():
        return None
    rows = []
    for row in records.filter(waits).iter_rows(named=True):
        match = _WAITING.match(row["jobid"])
        assert match is not None
        own = {"jobidraw": None} if "jobidraw" in row else {}
        rows += [{**row, **own, "jobid": f"{match[1]}_{task}"} for task in tasks_of(match[2])]
    return _together(records.filter(~waits), rows, records.schema)


def _split_typed(records: pl.DataFrame) -> pl.DataFrame | None:
    lists = [dict(extra or {}).get("pending_tasks") for extra in records["extra"].to_list()]
    alone = records["array_task"].is_null() & pl.Series([bool(text) for text in lists], dtype=pl.Boolean)
    if not alone.any():
        return None
    rows = []
    for row, text in zip(records.iter_rows(named=True), lists, strict=True):
        if text and row["array_task"] is None:
            rows += [{**row, "array_task": task, "job_id_raw": None} for task in tasks_of(str(text))]
    return _together(records.filter(~alone), rows, records.schema)


def _together(others: pl.DataFrame, rows: list[dict[str, object]], schema: pl.Schema) -> pl.DataFrame:
    """All of them, with numbers of their own for the new ones, so that steps still find their record."""
    first = int(others["record"].max() or 0) + 1 if others.height else 1  # type: ignore[arg-type]
    numbered = [{**row, "record": first + position} for position, row in enumerate(rows)]
    return pl.concat([others, pl.DataFrame(numbered, schema=schema)])
