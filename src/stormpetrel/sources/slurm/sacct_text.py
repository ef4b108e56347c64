"""`sacct -P` and `sacct --parsable` text, any delimiter, with steps -> job records.

file -> blocks -> string frames -> (job rows, step rows); typed by `sacct_fields.translate` once the known ones are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.quality import rejects
from stormpetrel.sources.contract import Chunk, FileSource, Translate
from stormpetrel.sources.lines import Refused, shown
from stormpetrel.sources.slurm import sacct_fields
from stormpetrel.sources.tables.delimited import JOB_ID, Layout, one_line_records, parse_block

# Free text in which users put newlines; sacct prints them as they are, so that one record covers several lines.
_MAY_HOLD_NEWLINES: Final = frozenset({"submitline", "comment", "admincomment", "systemcomment", "jobname", "workdir"})
_MAX_HELD_STEPS: Final = 100_000


class SacctText(FileSource):
    """A file of sacct text."""

    format = "sacct"

    def __init__(
        self,
        path: Path | str,
        *,
        fields: Sequence[str] | None = None,
        delimiter: str | None = None,
        time_zone: str = "UTC",
        cluster: str = "cluster",
        block_bytes: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        super().__init__(path, block_bytes)
        self._named_fields = tuple(name.strip().lower() for name in fields) if fields else None
        self._delimiter = delimiter.encode() if delimiter else None
        self._context = sacct_fields.Context(time_zone=time_zone, cluster=cluster)
        self._layout = layout  # known beforehand where we asked sacct ourselves

    def fields(self) -> frozenset[str]:
        """The job columns that the file's fields fill."""
        if self._layout is None:
            self._layout = self._find_layout(self._file.head())
        return sacct_fields.columns_from(self._layout.names)

    def chunks(self) -> Iterator[Chunk]:
        """The records of the file, each job with its steps."""
        folder = _StepMerger()
        header_seen = False
        bytes_done = 0
        blocks = self._file.blocks()
        if self._layout and self._layout.newline:
            blocks = one_line_records(blocks, self._layout)
        for block in blocks:
            if self._layout is None:
                self._layout = self._find_layout(block.data[:65536])
            frame, refused, lines = parse_block(block, self._layout)
            if self._layout.has_header and not header_seen and lines:
                frame = frame.slice(1)
                header_seen = True
                lines -= 1
            bytes_done = block.bytes_done
            yield replace(folder.chunk(frame, refused, lines, self._translate, bytes_done), meaning=self._meaning())
        if self._layout is None:
            self._layout = self._find_layout(b"")
        yield replace(folder.last_chunk(self._translate, bytes_done), meaning=self._meaning())

    def _meaning(self) -> str:
        return f"{self._layout.names if self._layout else ()}:{self._context}"

    def _translate(self, records: pl.DataFrame, steps: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
        return sacct_fields.translate(records, steps, self._context)

    def _find_layout(self, head: bytes) -> Layout:
        lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:200] if line.strip() and b"\0" not in line]
        if len(head) >= 65536 and len(lines) > 1:
            lines.pop()  # the head may end in the middle of a line
        if not lines:
            if self._named_fields:
                return Layout(self._named_fields, self._delimiter or b"|", has_header=False, trailing=False)
            raise SourceFormatError(
                f"{self.name} is empty: there is no sacct output in it.", hint="Run sacct -a -P -o … > FILE again."
            )
        if self._named_fields:
            return _layout_from_fields(lines, self._named_fields, self._delimiter, self.name)
        return _layout_from_header(lines, self._delimiter, self.name)


def _layout_from_header(lines: list[bytes], delimiter: bytes | None, name: str) -> Layout:
    header = lines[0].lstrip(b"\xef\xbb\xbf")
    delimiter = delimiter or _delimiter_of_header(header)
    names = tuple(part.decode("utf-8", "replace").strip().lower() for part in header.split(delimiter)) if delimiter else ()
    if not any(known in names for known in ("jobid", "jobidraw")):
        raise SourceFormatError(
            f"The first line of {name} is not a header of sacct: {shown(header[:80])!r}.",
            hint="If there is no header, name the columns: --fields JobID,User,State,Submit,…; another delimiter: --delimiter.",
        )
    trailing = names[-1] == ""
    names = names[:-1] if trailing else names
    needed = [field for field in ("submit", "state") if field not in names]
    if needed:
        names_shown = ", ".join(field for field in names[:8])
        raise SourceFormatError(
            f"Column '{needed[0].title()}' is missing from sacct output ({name}). Found: {names_shown}.",
            hint=f"Run sacct with --format=…,{needed[0].title()} or pass --fields.",
        )
    return Layout(_unique(names), delimiter or b"|", has_header=True, trailing=trailing, free_text=_MAY_HOLD_NEWLINES)


def _delimiter_of_header(header: bytes) -> bytes | None:
    """What stands between two names of sacct fields."""
    match = re.match(rb"^[A-Za-z]+([^A-Za-z0-9_]+)[A-Za-z]", header)
    return match.group(1) if match else None


def _layout_from_fields(lines: list[bytes], names: tuple[str, ...], delimiter: bytes | None, file_name: str) -> Layout:
    has_header = False
    first = lines[0].lower()
    if names[0].encode() in first and all(name.encode() in first for name in names[:4]):
        has_header, lines = True, lines[1:] or lines
    id_at = next((position for position, name in enumerate(names) if name in ("jobid", "jobidraw")), 0)
    candidates = [delimiter] if delimiter else _delimiter_candidates(lines[0])
    best: tuple[float, bytes, bool] | None = None
    for candidate in candidates:
        split = [line.split(candidate) for line in lines]
        for trailing in (False, True):
            wanted = len(names) - 1 + trailing
            share = sum(len(cells) == wanted + 1 and bool(JOB_ID.match(cells[id_at])) for cells in split) / len(split)
            if wanted and share > 0 and (best is None or share > best[0]):
                best = (share, candidate, trailing)
    if best is None:
        seen = candidates[0] if candidates else b"|"
        raise SourceFormatError(
            f"{len(names)} fields were named for {file_name}, but its first line has {lines[0].count(seen) + 1} columns "
            f"by the delimiter {seen.decode('utf-8', 'replace')!r}.",
            hint="Give --fields in the order of sacct's -o, one name per column, and --delimiter if it is not found.",
        )
    return Layout(_unique(names), best[1], has_header=has_header, trailing=best[2], free_text=_MAY_HOLD_NEWLINES)


def _delimiter_candidates(line: bytes) -> list[bytes]:
    """Strings of a line that could be its delimiter: `|` first, then runs and single characters that are no letters."""
    text = line.decode("utf-8", "replace")
    runs = re.findall(r"[^\w\s.\-]+", text)
    units = {"|", "\t", *runs, *(letter for run in runs for letter in run)}
    present = sorted((unit for unit in units if unit in text), key=lambda unit: (unit != "|", -text.count(unit), unit))
    return [unit.encode() for unit in present]


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    result = []
    for position, name in enumerate(names):
        clean = name or f"field{position + 1}"
        seen[clean] = seen.get(clean, 0) + 1
        result.append(clean if seen[clean] == 1 else f"{clean}.{seen[clean]}")
    return tuple(result)


class _StepMerger:
    """Puts each step next to its job, also where a block ends between them.

    sacct prints a job and then its steps, so a step belongs to the job line before it. Sorted or merged files break that:
    there the job of the same id in the block is taken, and a step whose job never comes is refused.
    """

    def __init__(self) -> None:
        self._held = pl.DataFrame()  # the last job of the block before, with its steps
        self._orphans = pl.DataFrame()

    def chunk(self, frame: pl.DataFrame, refused: list[Refused], read: int, translate: Translate, done: int) -> Chunk:
        whole = pl.concat([part for part in (self._held, frame) if part.height], how="vertical") if frame.height else frame
        if not whole.height:
            return self._make(pl.DataFrame(), pl.DataFrame(), refused, read, translate, done)
        is_job = ~_is_step(whole)
        last_job = is_job.arg_true()
        cut = int(last_job[-1]) if len(last_job) else 0
        self._held = whole.slice(cut)
        return self._fold(whole.slice(0, cut), refused, read, translate, done)

    def last_chunk(self, translate: Translate, done: int) -> Chunk:
        whole, self._held = self._held, pl.DataFrame()
        return self._fold(whole, [], 0, translate, done, final=True)

    def _fold(
        self, whole: pl.DataFrame, refused: list[Refused], read: int, translate: Translate, done: int, *, final: bool = False
    ) -> Chunk:
        if not whole.height:
            return self._make(whole, pl.DataFrame(), refused, read, translate, done, final=final)
        is_step = _is_step(whole)
        numbered = whole.with_columns(record=(~is_step).cum_sum().cast(pl.UInt32))
        jobs = numbered.filter(~is_step) if is_step.any() else numbered
        steps = numbered.filter(is_step)
        if steps.height or self._orphans.height:
            steps = self._own_parent(jobs, steps)
        return self._make(jobs, steps, refused, read, translate, done, final=final)

    def _own_parent(self, jobs: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
        """Steps with the `record` of their job; those whose job is not here are kept for the next chunk."""
        id_name = _id_column(jobs)
        if self._orphans.height:
            steps = pl.concat([self._orphans, steps], how="diagonal")
        parent = pl.col(id_name).str.extract(r"^([^.]+)\.", 1)
        above = jobs.select("record", _above=id_name)
        named = steps.with_columns(_parent=parent).join(above, on="record", how="left")
        by_id = jobs.select(_parent=id_name, _same="record").unique("_parent", keep="last")
        named = named.join(by_id, on="_parent", how="left")
        owner = pl.when(pl.col("_above") == pl.col("_parent")).then("record").otherwise("_same")
        named = named.with_columns(record=owner).drop("_parent", "_above", "_same")
        self._orphans = named.filter(pl.col("record").is_null()).drop("record")
        return named.filter(pl.col("record").is_not_null())

    def _make(
        self,
        jobs: pl.DataFrame,
        steps: pl.DataFrame,
        refused: list[Refused],
        read: int,
        translate: Translate,
        done: int,
        *,
        final: bool = False,
    ) -> Chunk:
        if self._orphans.height and (final or self._orphans.height > _MAX_HELD_STEPS):
            refused = [*refused, *_refuse_steps(self._orphans)]
            self._orphans = pl.DataFrame()
        return Chunk(
            records=jobs,
            steps=steps if steps.height else None,
            translate=translate,
            read=read,
            rejects=rejects(refused),
            folded=steps.height,
            bytes_done=done,
        )


def _id_column(frame: pl.DataFrame) -> str:
    return "jobid" if "jobid" in frame.columns else "jobidraw"


def _is_step(frame: pl.DataFrame) -> pl.Series:
    return frame[_id_column(frame)].str.contains(".", literal=True).fill_null(False)


def _refuse_steps(steps: pl.DataFrame) -> list[Refused]:
    id_name = _id_column(steps)
    return [
        (line, "step_without_job", "the step's job is not in the file", step)
        for line, step in steps.select("line", id_name).iter_rows()
    ]
