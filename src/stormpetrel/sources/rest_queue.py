"""The controller's list through slurmrestd: the same as squeue's, of a site that has no commands of Slurm.

slurmrestd -> RestQueue.list_jobs -> QueueList; one answer holds list and details.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import polars as pl

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.json_records import Record, records_in
from stormpetrel.sources.lines import LineFile
from stormpetrel.sources.slurm_json import RowBatch, fields_of, is_job_record, listed_facts
from stormpetrel.sources.slurm_queue import LISTED, OPERATORS, QueueList, make_list, of_queue, state_words
from stormpetrel.sources.slurm_rest import check_errors, connect, fetch
from stormpetrel.sources.unfinished import reason_class

if TYPE_CHECKING:
    import httpx

_PATHS: Final = re.compile(r'"/slurm/(v\d+\.\d+\.(\d+))/jobs/?"')


def rest_queue(slurm: SlurmSection) -> RestQueue | None:
    """The door to the list of a slurmrestd; None where it shows accounting only."""
    with connect(slurm) as client:
        version = controller_version(client, slurm)
        return RestQueue(slurm, version, _cluster_name(client, version, slurm)) if version else None


class RestQueue:
    """The list as slurmrestd answers it."""

    def __init__(self, slurm: SlurmSection, version: str, cluster: str) -> None:
        self._slurm, self._version, self.cluster = slurm, version, cluster
        self._records: dict[int, Record] = {}  # of the last answer, by raw id

    def list_jobs(self) -> QueueList:
        """Ask for all jobs, and keep the answer until the next look."""
        refused = 0
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-rest-") as answer:
            with connect(self._slurm) as client:
                fetch(client, f"/slurm/{self._version}/jobs", {}, answer.file, self._slurm)
            answer.flush()
            check_errors(Path(answer.name), self._slurm.rest_url)
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
        return jobs.with_columns(state=state_words(jobs["state"].cast(pl.String))).cast(LISTED)

    def details(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that wait or run."""
        return RestRows(self._slurm, self.cluster, self._chosen(raw_ids), ended=False)

    def ended(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that have ended."""
        return RestRows(self._slurm, self.cluster, self._chosen(raw_ids), ended=True)

    def _chosen(self, raw_ids: Collection[int]) -> list[Record]:
        return [record for number, record in self._records.items() if number in raw_ids]

    def sees_all(self) -> bool | None:
        """Whether the user of the token is an operator; what PrivateData says to others, slurmrestd does not tell."""
        if not self._slurm.rest_user:
            return None
        with connect(self._slurm) as client, tempfile.TemporaryFile() as answer:
            try:
                fetch(client, f"/slurmdb/{self._version}/user/{self._slurm.rest_user}", {}, answer, self._slurm)
                users = _json(answer).get("users") or [{}]
                level = users[0].get("administrator_level")
            except (SourceError, AttributeError, LookupError):
                return None
        words = level if isinstance(level, list) else [level]
        return True if OPERATORS & {str(word).lower() for word in words} else None


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


def controller_version(client: httpx.Client, slurm: SlurmSection) -> str | None:
    """The version of the controller's API to ask for; None where the server offers none."""
    with tempfile.TemporaryFile() as answer:
        fetch(client, "/openapi/v3", {}, answer, slurm)
        answer.seek(0)
        offered = _PATHS.findall(answer.read().decode("utf-8", "replace").replace("\\/", "/"))  # Slurm escapes its slashes
    versions = {version: int(number) for version, number in offered}
    if slurm.rest_version in versions:
        return slurm.rest_version
    return max(versions, key=lambda version: versions[version]) if versions else None


def _cluster_name(client: httpx.Client, version: str, slurm: SlurmSection) -> str:
    """The cluster whose controller answers: as its jobs name it, or the only one that accounting knows."""
    with tempfile.TemporaryFile() as answer:
        fetch(client, f"/slurmdb/{version}/clusters", {}, answer, slurm)
        clusters = _json(answer).get("clusters") or []
    names = [str(cluster.get("name")) for cluster in clusters if isinstance(cluster, dict)]
    if len(names) == 1:
        return names[0]
    with tempfile.TemporaryFile() as answer:
        fetch(client, f"/slurm/{version}/jobs", {}, answer, slurm)
        jobs = _json(answer).get("jobs") or []
    named = {str(job.get("cluster")) for job in jobs if isinstance(job, dict) and job.get("cluster")}
    if len(named) != 1:
        raise SourceUnavailableError(
            f"{slurm.rest_url} does not tell which cluster its list is of.", hint="It will, once there is a job in it."
        )
    return named.pop()


def _json(answer: IO[bytes]) -> Record:
    answer.seek(0)
    try:
        document = json.load(answer)
    except ValueError as error:
        raise SourceFormatError("slurmrestd answered something that is no JSON.", hint="Check slurm.rest_url.") from error
    if not isinstance(document, dict):
        raise SourceFormatError("slurmrestd answered something that is no object.", hint="Check slurm.rest_url.")
    return document
