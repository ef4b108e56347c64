"""The controller's list through slurmrestd: the same as squeue's, of a site that has no commands of Slurm.

slurmrestd -> RestQueue.list_jobs -> QueueList; one answer holds list and details.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.slurm.json_jobs import RowBatch, fields_of, is_job_record, listed_facts
from stormpetrel.sources.slurm.queue import LISTED, OPERATORS, QueueList, make_list, of_queue, state_names
from stormpetrel.sources.slurm.rest import MOST_BYTES, SlurmRest, check_errors
from stormpetrel.sources.slurm.unfinished import reason_class


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
