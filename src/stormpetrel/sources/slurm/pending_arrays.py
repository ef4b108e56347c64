"""Tasks of an array that still wait: Slurm shows them as one record, `123_[0-2,7%4]`, until each of them starts.

chunk of a live source -> split_arrays -> the same chunk with one record per task, as they will be known later on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.sources.contract import Chunk

MOST_TASKS: Final = 100_000  # of one array, unless the settings say otherwise; the others come when they start
MOST_IN_ALL: Final = 250_000  # of one answer: some hundred MB
_WAITING: Final = re.compile(r"^(\d+)_\[([^\]]*)\]?$")
_BITMAP: Final = re.compile(r"^0x([0-9A-Fa-f]{1,1000001})$")  # one bit per task; Slurm allows four million
_RANGE: Final = re.compile(r"^(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$")

Tasks = NDArray[np.int64]


def split_arrays(chunk: Chunk, *, most: int = MOST_TASKS, notes: list[str] | None = None) -> Chunk:
    """The same records, those of waiting tasks one by one; what is cut off is told in `notes`."""
    if not chunk.records.height:
        return chunk
    columns = chunk.records.columns
    split = _split_text if "jobid" in columns else _split_typed if "extra" in columns else None
    records = split(chunk.records, most, [] if notes is None else notes) if split else None
    if records is None:
        return chunk
    return replace(chunk, records=records, read=chunk.read + records.height - chunk.records.height)


def tasks_of(text: str, most: int = MOST_TASKS) -> Tasks:
    """The numbers of a task list as Slurm writes it, `0-2,7,10-20:5%4`; what is cut off or no number is left out.

    slurmdbd's JSON has a bit map instead: `0x1F`.

    >>> tasks_of("0-2,7,10-20:5%4").tolist(), tasks_of("0x1A").tolist()
    ([0, 1, 2, 7, 10, 15, 20], [1, 3, 4])
    """
    parts = []
    for numbers in _ranges(text):
        kept = numbers[:most]
        parts.append(np.arange(kept.start, kept.stop, kept.step, dtype=np.int64))
        most -= len(kept)
        if most <= 0:
            break
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def is_cut(text: str, most: int = MOST_TASKS) -> bool:
    """Whether a task list is not told whole: Slurm broke it off (`…,40,42...`), or it has more tasks than `most`."""
    return "..." in text or sum(len(numbers) for numbers in _ranges(text)) > most


def bounded(lists: Sequence[str], most: int) -> tuple[list[Tasks], list[int]]:
    """The tasks of several lists, no more in all than an answer may have; and which of the lists are cut."""
    tasks: list[Tasks] = []
    cut: list[int] = []
    left = MOST_IN_ALL
    for position, text in enumerate(lists):
        room = max(0, min(most, left))
        tasks.append(tasks_of(text, room) if room else np.empty(0, dtype=np.int64))
        left -= len(tasks[-1])
        if is_cut(text, room):
            cut.append(position)
    return tasks, cut


def cut_note(array: object, shown: int) -> str:
    """What is said of an array of which not every waiting task is kept."""
    return f"array {array}: {shown:,} of its waiting tasks are told one by one, the others when they start"


def _ranges(text: str) -> Iterator[range]:
    bitmap = _BITMAP.match(text.partition("%")[0].strip())
    if bitmap is not None:
        yield from _runs(bitmap[1])
        return
    for part in text.partition("%")[0].split(","):
        match = _RANGE.match(part.strip())
        if match is not None:
            yield range(int(match[1]), int(match[2] or match[1]) + 1, max(1, int(match[3] or 1)))


def _runs(digits: str) -> Iterator[range]:
    """The runs of set bits of a hexadecimal number, lowest first."""
    raw = np.frombuffer(int(digits, 16).to_bytes(len(digits) // 2 + 1, "little"), dtype=np.uint8)
    bits = np.concatenate([[0], np.unpackbits(raw, bitorder="little"), [0]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(bits))
    for start, stop in edges.reshape(-1, 2).tolist():
        yield range(start, stop)


def _split_text(records: pl.DataFrame, most: int, notes: list[str]) -> pl.DataFrame | None:
    waits = records["jobid"].str.contains(_WAITING.pattern).fill_null(False)
    if not waits.any():
        return None
    arrays = records.filter(waits)
    parts = arrays["jobid"].str.extract_groups(_WAITING.pattern).struct.unnest()
    one_by_one = _each_task(arrays, parts["2"].to_list(), parts["1"].to_list(), most, notes)
    own = [pl.lit(None, dtype=pl.String).alias("jobidraw")] if "jobidraw" in arrays.columns else []
    name = pl.concat_str(pl.col("jobid").str.extract(r"^(\d+)_"), pl.lit("_"), pl.col("_task").cast(pl.String))
    return _together(records.filter(~waits), one_by_one.with_columns(name.alias("jobid"), *own).drop("_task"))


def _split_typed(records: pl.DataFrame, most: int, notes: list[str]) -> pl.DataFrame | None:
    lists = records["extra"].map.get("pending_tasks")
    waits = records["array_task"].is_null() & (lists.fill_null("") != "")
    if not waits.any():
        return None
    arrays = records.filter(waits)
    # Which of its tasks wait is a fact of the array: it changes whenever one of them starts.
    extra = [{name: value for name, value in entries.items() if name != "pending_tasks"} or None for entries in arrays["extra"]]
    arrays = arrays.with_columns(extra=pl.Series(extra, dtype=arrays.schema["extra"]))
    one_by_one = _each_task(arrays, lists.filter(waits).to_list(), arrays["job_id"].to_list(), most, notes)
    own = one_by_one.with_columns(
        pl.col("_task").cast(records.schema["array_task"]).alias("array_task"),
        pl.lit(None, dtype=records.schema["job_id_raw"]).alias("job_id_raw"),
    )
    return _together(records.filter(~waits), own.drop("_task"))


def _each_task(arrays: pl.DataFrame, lists: Sequence[str], names: Sequence[object], most: int, notes: list[str]) -> pl.DataFrame:
    """Each record once for each of its tasks, whose number is in `_task`."""
    tasks, cut = bounded(lists, most)
    notes += [cut_note(names[position], len(tasks[position])) for position in cut]
    places = np.repeat(np.arange(len(tasks)), [len(own) for own in tasks])
    return arrays[places].with_columns(_task=pl.Series(np.concatenate(tasks)))


def _together(others: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """All of them, with numbers of their own for the new ones, so that steps still find their record."""
    first = int(others["record"].max() or 0) + 1 if others.height else 1  # type: ignore[arg-type]
    numbers = pl.int_range(first, first + tasks.height, eager=True, dtype=pl.Int64).cast(others.schema["record"])
    return pl.concat([others, tasks.with_columns(record=numbers).select(others.columns)])
