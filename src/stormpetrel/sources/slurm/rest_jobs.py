"""The accounting database through slurmrestd -> job records, by windows of time or by ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.config import SlurmSection
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.pending_arrays import split_arrays
from stormpetrel.sources.slurm.rest import SlurmRest, check_errors
from stormpetrel.sources.slurm.unfinished import in_one_form, is_unfinished

if TYPE_CHECKING:
    from stormpetrel.sources.slurm.live import Window, WindowSource


@dataclass(frozen=True, slots=True)
class RestAccounting:
    """The accounting database through slurmrestd."""

    slurm: SlurmSection
    version: str
    default_cluster: str
    most_ids: int = 50  # each is a request of its own

    def window(self, cluster: str, window: Window, *, ended_only: bool) -> WindowSource:
        """The jobs of a window of time."""
        return RestWindow(self, cluster, window, ended_only=ended_only)

    def lookup(self, cluster: str, ids: Sequence[str]) -> JobSource:
        """Jobs by their ids: the only way to one that was never eligible."""
        return RestLookup(self, cluster, ids)

    def going_on(self, cluster: str, start: datetime, end: datetime) -> JobSource | None:
        """None: the controller lists the submit lines as well."""
        del cluster, start, end
        return None


class RestAnswer(LiveSource):
    """What slurmrestd answers to requests for jobs of the accounting database."""

    format = "slurmrestd"

    def __init__(self, accounting: RestAccounting, cluster: str, what: str, window: Window | None = None) -> None:
        super().__init__(f"{accounting.slurm.rest_url} {what}", window.cursor if window else None)
        self._accounting, self._slurm, self._window = accounting, accounting.slurm, window
        self._requested_cluster, self._cluster = cluster, cluster or accounting.default_cluster

    def _chunks_of(self, server: SlurmRest, path: str, parameters: dict[str, str]) -> Iterator[Chunk]:
        if self._requested_cluster:
            parameters = {**parameters, "cluster": self._requested_cluster}
        server.resume = self._window.start if self._window else None
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-rest-") as answer:
            server.fetch(f"/slurmdb/{self._accounting.version}/{path}", parameters, answer.file)
            answer.flush()
            check_errors(Path(answer.name), server.name)
            source = SlurmJson(answer.name, cluster=self._cluster)
            for chunk in source.chunks():
                self._columns = source.fields()
                yield split_arrays(in_one_form(chunk), most=self._slurm.array_tasks, notes=self.notes)


class RestWindow(RestAnswer):
    """The jobs that slurmrestd shows for one window of time."""

    def __init__(self, accounting: RestAccounting, cluster: str, window: Window, *, ended_only: bool) -> None:
        super().__init__(accounting, cluster, str(window), window)
        self._span, self._ended_only = window, ended_only

    def chunks(self) -> Iterator[Chunk]:
        """Request the window and read the answer; a request that fails commits nothing."""
        # "uts" and Unix seconds is the one form that every slurmrestd from 22.05 on reads, whatever its time zone.
        start, end = (f"uts{int(moment.timestamp())}" for moment in (self._span.start, self._span.end))
        rows = 0
        with SlurmRest(self._slurm) as server:
            for chunk in self._chunks_of(server, "jobs", {"start_time": start, "end_time": end}):
                rows += chunk.read
                yield ended_of(chunk) if self._ended_only else chunk
        self.rows_read = rows


class RestLookup(RestAnswer):
    """Jobs that are requested one by one, by their ids."""

    def __init__(self, accounting: RestAccounting, cluster: str, ids: Sequence[str]) -> None:
        super().__init__(accounting, cluster, f"{len(ids)} jobs by their ids")
        self._ids = sorted({text.partition("_")[0] for text in ids})

    def chunks(self) -> Iterator[Chunk]:
        """Request each of them; one that the server does not know is left out."""
        with SlurmRest(self._slurm) as server:
            for number in self._ids:
                yield from self._chunks_of(server, f"job/{number}", {})


def ended_of(chunk: Chunk) -> Chunk:
    """The records of a chunk whose jobs have ended."""
    if not chunk.records.height:
        return chunk
    records = chunk.records.filter(~is_unfinished(chunk.records))
    return replace(chunk, records=records, read=chunk.read - chunk.records.height + records.height)
