"""Jobs through slurmrestd: accounting by windows of time or by ids, and the controller's list, where there are no Slurm commands.

slurmrestd -> RestAccounting -> job records; RestQueue.list_jobs -> QueueList: one answer holds list and details.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.slurm.json_jobs import RowBatch, SlurmJson, fields_of, is_job_record, listed_facts
from stormpetrel.sources.slurm.pending_arrays import split_arrays
from stormpetrel.sources.slurm.queue import LISTED, OPERATORS, QueueList, make_list, of_queue, state_names
from stormpetrel.sources.slurm.rest import MOST_BYTES, SlurmRest, check_errors
from stormpetrel.sources.slurm.unfinished import in_one_form, is_unfinished, reason_class

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


def rest_queue(slurm: SlurmSection) -> RestQueue | None:
    """Return the reader of a slurmrestd's list; None where it shows accounting only."""
    with SlurmRest(slurm) as server:
        version = controller_version(server, slurm)
        return RestQueue(slurm, version, _cluster_name(server, version)) if version else None


class RestQueue:
    """The list as slurmrestd answers it."""

    def __init__(self, slurm: SlurmSection, version: str, cluster: str) -> None:
        self._slurm, self._version, self.cluster = slurm, version, cluster
        self._records: dict[int, Record] = {}  # of the last answer, by raw id

    def list_jobs(self) -> QueueList:
        """Request all jobs, and keep the answer until the next call."""
        refused = 0
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-rest-") as answer:
            with SlurmRest(self._slurm) as server:
                server.fetch(f"/slurm/{self._version}/jobs", {}, answer.file)
            answer.flush()
            check_errors(Path(answer.name), server.name)
            self._records = {}
            for _, record, _ in records_in(LineFile(answer.name), key="jobs", is_record=is_job_record):
                if isinstance(record, tuple):
                    refused += 1
                else:
                    self._records[int(record["job_id"])] = record
        listed = make_list(self.cluster, self._frame(), self._slurm.array_tasks)
        if not refused:
            return listed
        return replace(listed, whole=False, notes=(*listed.notes, f"{refused} of the listed jobs cannot be read"))

    def _frame(self) -> pl.DataFrame:
        try:
            facts = [listed_facts(record, reason_class) for record in self._records.values()]
        except (KeyError, TypeError, ValueError) as error:
            raise SourceFormatError(
                f"{self._slurm.rest_url} lists a job that cannot be read: {error}.", hint="Set slurm.rest_version to another one."
            ) from error
        jobs = pl.DataFrame(facts, schema=list(LISTED), orient="row", infer_schema_length=None)
        return jobs.with_columns(state=state_names(jobs["state"].cast(pl.String))).cast(LISTED)

    def details(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that wait or run."""
        return RestRows(self._slurm, self.cluster, self._chosen(raw_ids), ended=False)

    def ended(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that have ended."""
        return RestRows(self._slurm, self.cluster, self._chosen(raw_ids), ended=True)

    def _chosen(self, raw_ids: Collection[int]) -> list[Record]:
        return [record for number, record in self._records.items() if number in raw_ids]

    def sees_all(self) -> bool | None:
        """Whether the user of the token is an operator; None where it is not: slurmrestd does not show PrivateData."""
        if not self._slurm.rest_user:
            return None
        with SlurmRest(self._slurm) as server:
            try:
                users = server.get(f"/slurmdb/{self._version}/user/{self._slurm.rest_user}").get("users") or [{}]
                level = users[0].get("administrator_level")
            except (SourceError, AttributeError, LookupError):
                return None
        levels = level if isinstance(level, list) else [level]
        return True if OPERATORS & {str(name).lower() for name in levels} else None


class RestRows(LiveSource):
    """Rows of jobs, out of records that slurmrestd has answered."""

    format = "squeue"

    def __init__(self, slurm: SlurmSection, cluster: str, records: list[Record], *, ended: bool) -> None:
        super().__init__(f"{slurm.rest_url} jobs", None)
        self._slurm, self._cluster, self._records, self._ended = slurm, cluster, records, ended

    def chunks(self) -> Iterator[Chunk]:
        """The rows as one chunk."""
        batch = RowBatch(self._cluster)
        for number, record in enumerate(self._records):
            batch.add(number, record)
        if self._records:
            self._columns = fields_of(self._records[0])
        yield of_queue(batch.chunk(0), self._slurm.array_tasks, ended=self._ended, notes=self.notes)


def controller_version(server: SlurmRest, slurm: SlurmSection) -> str | None:
    """Return the version of the controller's API to use; None where the server offers none."""
    versions = server.versions("slurm", "jobs")
    if slurm.rest_version in versions:
        return slurm.rest_version
    return max(versions, key=lambda version: versions[version]) if versions else None


def _cluster_name(server: SlurmRest, version: str) -> str:
    """The cluster whose controller answers: as its jobs name it, or the only one that accounting knows."""
    clusters = server.get(f"/slurmdb/{version}/clusters").get("clusters") or []
    names = [str(cluster.get("name")) for cluster in clusters if isinstance(cluster, dict)]
    if len(names) == 1:
        return names[0]
    jobs = server.get(f"/slurm/{version}/jobs", most_bytes=MOST_BYTES).get("jobs") or []
    named = {str(job.get("cluster")) for job in jobs if isinstance(job, dict) and job.get("cluster")}
    if len(named) != 1:
        hint = "It will, once there is a job in it."
        raise server.failure(SourceUnavailableError, "does not show which cluster its list is of", hint)
    return named.pop()
