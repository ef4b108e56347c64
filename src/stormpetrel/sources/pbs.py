"""Accounting logs of PBS Professional, OpenPBS and Torque -> job rows.

`MM/DD/YYYY HH:MM:SS;KIND;JOB;key=value …` -> the records of one run (Q, S, D, A, R, E) folded -> one row per run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.contract import Chunk, FileSource
from stormpetrel.sources.job_rows import JobBatch
from stormpetrel.sources.lines import Block, sound_lines
from stormpetrel.sources.pbs_fields import COLUMNS, Run, absorb, job_row, next_run

_LINE: Final = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)(?:\.\d+)?;([A-Za-z]{1,2});([^;]*);(.*)", re.ASCII)
# 12.server, 12[3].server and its whole 12[].server, Torque's older 12-3.server; a range (12[1-9].server) names no single job.
_JOB: Final = re.compile(r"(\d{1,18})(?:\[(\d{0,18})\]|-(\d{1,18})|\[([\d,:-]+)\])?(?:\.(\S+))?", re.ASCII)
_EXIT_STATUS: Final = re.compile(r"(?<!\S)Exit_status=[+-]?\d{1,9}(?!\S)", re.ASCII)
_JOB_KINDS: Final = frozenset("QSEDAR")  # of the others (L, P, T, C, M, Y, …) none begins or ends a run
_MAX_OPEN: Final = 200_000  # jobs held for a record that may still come; beyond it the oldest is told as it stands
_MAX_ENDED: Final = 100_000
_MAX_BODIES: Final = 16


class PbsAccounting(FileSource):
    """An accounting log of PBS or Torque, usually of one day."""

    format = "pbs"

    def __init__(self, path: Path | str, *, time_zone: str = "UTC", cluster: str = "", block_bytes: int | None = None) -> None:
        super().__init__(path, block_bytes)
        self._zone = ZoneInfo(time_zone)
        self._cluster = cluster

    def fields(self) -> frozenset[str]:
        """The job columns that an accounting log can fill."""
        return COLUMNS

    def chunks(self) -> Iterator[Chunk]:
        """The runs of the log, in the order in which they ended; those that did not end come last."""
        batch = JobBatch()
        folder = _Folder(batch, self._zone, self._cluster)
        bytes_done, recognised = 0, False
        for block in self._file.blocks():
            recognised = recognised or self._recognise(block)
            lines, refused = sound_lines(block)
            batch.refuse_all([*block.refused, *refused])
            for number, line in lines:
                folder.take(number, line.decode())
                if batch.is_full:
                    yield batch.chunk(bytes_done)
            bytes_done = block.bytes_done
        for _ in folder.give_up():
            if batch.is_full:
                yield batch.chunk(bytes_done)
        yield batch.chunk(bytes_done)

    def _recognise(self, block: Block) -> bool:
        head = [line for _, line in sound_lines(block)[0][:1000]]
        if head and not any(_LINE.match(line.decode()) for line in head):
            raise SourceFormatError(
                f"{self.name} is not an accounting log of PBS: no line of its beginning is DATE TIME;KIND;JOB;….",
                hint="Name the files in server_priv/accounting (not the server's own log).",
            )
        return bool(head)


class _Folder:
    """Folds the records of each run into one."""

    def __init__(self, batch: JobBatch, zone: ZoneInfo, cluster: str) -> None:
        self._batch, self._zone, self._cluster = batch, zone, cluster
        self._open: dict[str, Run] = {}
        self._ended: dict[str, None] = {}

    def take(self, number: int, line: str) -> None:
        """One line of the log."""
        found = _LINE.fullmatch(line)
        if not found:
            self._batch.refuse(number, "bad_record", "the line is not DATE TIME;KIND;JOB;key=value …", line)
            return
        stamp, kind, name, body = found.groups()
        if kind not in _JOB_KINDS:
            self._batch.fold()
            return
        job = _JOB.fullmatch(name)
        if not job:
            self._batch.refuse(number, "bad_value", "the job id is not one of PBS", line)
        elif kind == "E" and not _EXIT_STATUS.search(body):
            # The log of today is read while it is written: its last line may be half a record.
            self._batch.refuse(number, "truncated_record", "the end record has no Exit_status", line)
        elif job[4] or (kind in "DA" and name in self._ended):
            self._batch.fold()
        else:
            self._follow(kind, Run(job, number, at=_utc(stamp, self._zone), bodies=[(kind, body)]), name)

    def give_up(self) -> Iterator[None]:
        """Tell the runs for which no end came, one at a time."""
        for run in self._open.values():
            if not run.is_implied:
                self._tell(run)
            yield
        self._open.clear()

    def _follow(self, kind: str, news: Run, name: str) -> None:
        run = self._open.pop(name, None)
        if run is None:
            run = news
        else:
            self._merge(run, news)
        run.kind = kind
        if kind == "Q":
            run.queued = run.queued or news.at
        if kind == "E":
            self._tell(run)
            self._remember(name)
        elif kind == "R":
            self._tell(run)
            self._open[name] = next_run(run)
        else:
            self._open[name] = run
        if len(self._open) > _MAX_OPEN:
            oldest = self._open.pop(next(iter(self._open)))
            if not oldest.is_implied:
                self._tell(oldest)

    def _merge(self, run: Run, news: Run) -> None:
        if not run.is_implied:
            self._batch.fold()
        run.is_implied = False
        run.bodies += news.bodies
        if len(run.bodies) > _MAX_BODIES:
            absorb(run)
        run.line, run.at = news.line, news.at

    def _tell(self, run: Run) -> None:
        absorb(run)
        self._batch.add(job_row(run, self._cluster), run.line)

    def _remember(self, name: str) -> None:
        self._ended[name] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]


@lru_cache(maxsize=4096)  # records come in bursts
def _utc(stamp: str, zone: ZoneInfo) -> datetime | None:
    """The local time of a line: the first pass of a doubled hour, an hour later for one that was left out."""
    month, day, year, hour, minute, second = (int(part) for part in re.split(r"[/ :]", stamp))
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
