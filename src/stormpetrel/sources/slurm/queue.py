"""What slurmctld lists now: every job that waits or runs, and those that ended a short while ago.

squeue, or the jobs of slurmrestd -> list_jobs -> QueueList (ids, states, what changed); details -> job rows of some of them.

The list holds no text of a user, so that no name can break it, and costs a few milliseconds; the details of a job are asked for
when its line in the list has changed.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import polars as pl

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceFormatError, SourceUnavailableError
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.states import UNFINISHED, JobState, slurm_state
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from stormpetrel.sources.slurm.live import run_sacct
from stormpetrel.sources.slurm.pending_arrays import bounded, cut_note, split_arrays
from stormpetrel.sources.slurm.unfinished import in_one_form, reason_class

LISTED: Final = pl.Schema(
    {
        "raw_id": pl.Int64(),
        "job_id": pl.Int64(),
        "tasks": pl.String(),  # of an array: the task, or the list of those that wait
        "state": pl.String(),
        "submit_time": UTC_TIME,
        "line": pl.String(),  # equal at two polls: nothing has changed that is worth asking for
    }
)
# id, array, tasks, state, submission, start, time limit, CPUs, nodes, partition, reason; the last may hold anything
_FORMAT: Final = "%A|%F|%K|%T|%V|%S|%l|%C|%D|%P|%r"
_FIELDS: Final = ("raw_id", "array", "tasks", "state", "submit", "start", "limit", "cpus", "nodes", "partition", "reason")
_NO_ARRAY: Final = "N/A"
_COMPLETING: Final = "COMPLETING"  # it has ended, its nodes are not free yet: what it came to, accounting says
OPERATORS: Final = frozenset({"operator", "administrator", "admin"})


@dataclass(frozen=True, slots=True)
class QueueList:
    """The jobs of one cluster as its controller lists them at one moment."""

    cluster: str
    jobs: pl.DataFrame  # LISTED
    open: pl.DataFrame  # OPEN_KEY and `state` of everything that waits or runs, waiting tasks one by one
    cut: frozenset[int]  # arrays of which not all waiting tasks are known
    whole: bool = True  # no job of it could not be read
    notes: tuple[str, ...] = ()


class Queue(Protocol):
    """A controller that can be asked for its list."""

    cluster: str  # the one it tells of

    def list_jobs(self) -> QueueList:
        """The list as it is now; SourceError where it cannot be had whole."""
        ...

    def details(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of these jobs that wait or run, as a source."""
        ...

    def ended(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of these jobs that have ended, as a source."""
        ...

    def sees_all(self) -> bool | None:
        """Whether the list holds the jobs of all users; None where that cannot be found out."""
        ...


def make_list(cluster: str, jobs: pl.DataFrame, most: int) -> QueueList:
    """A list with its waiting tasks one by one."""
    # A job that is being requeued is listed as such until its nodes are free; it goes on.
    going_on = [*(str(state) for state in UNFINISHED), JobState.REQUEUED.value]
    open_jobs = jobs.filter(pl.col("state").is_in(going_on))
    tasks, cut = bounded([text or "" for text in open_jobs["tasks"]], most)
    alone = open_jobs["tasks"].is_null().to_numpy()
    counts = np.where(alone, 1, [len(own) for own in tasks]).astype(np.int64) if tasks else np.empty(0, dtype=np.int64)
    numbers = [np.array([-1]) if single else own for own, single in zip(tasks, alone, strict=True)]
    each = open_jobs[np.repeat(np.arange(open_jobs.height), counts)].select(
        "job_id",
        pl.Series("array_task", np.concatenate(numbers) if numbers else [], dtype=JOB_SCHEMA["array_task"]),
        "submit_time",
        "state",
    )
    each = each.with_columns(array_task=pl.when(pl.col("array_task") >= 0).then("array_task"))
    cut_arrays = {int(open_jobs["job_id"][position]): len(tasks[position]) for position in cut}
    notes = tuple(cut_note(number, shown) for number, shown in cut_arrays.items())
    return QueueList(cluster, jobs, each, frozenset(cut_arrays), notes=notes)


def state_names(states: pl.Series) -> pl.Series:
    """Slurm's words for states in the common vocabulary."""
    distinct = states.unique().drop_nulls()
    known = pl.Series([JobState.RUNNING if _COMPLETING in word else slurm_state(word) for word in distinct], dtype=pl.String)
    return states.replace_strict(distinct, known, default=None, return_dtype=pl.String)


class Squeue:
    """The list as `squeue` prints it."""

    def __init__(self, slurm: SlurmSection, command: str, cluster: str = "") -> None:
        self._slurm, self._command = slurm, command
        # Of a federation squeue may show the other clusters too: each is asked for by itself.
        self._where = ["--clusters", cluster] if cluster else ["--local"]
        self._facts = ControllerFacts(slurm, command, cluster)
        self.cluster = cluster or self._facts.cluster()
        self._last: tuple[bytes, QueueList] | None = None  # the answer to the last poll

    def list_jobs(self) -> QueueList:
        """Ask squeue for the list."""
        arguments = [self._command, *self._where, "--all", "--states=all", "--noheader", f"--format={_FORMAT}"]
        with tempfile.TemporaryFile(prefix="stormpetrel-squeue-") as answer:
            run_sacct(arguments, answer.fileno(), self._slurm.timeout_s)
            answer.seek(0)
            text = answer.read()
        if self._last is None or self._last[0] != text:
            jobs = parse_list(text.decode("utf-8", "replace").splitlines())
            self._last = (text, make_list(self.cluster, jobs, self._slurm.array_tasks))
        return self._last[1]

    def details(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that wait or run."""
        return SqueueRows(self._slurm, [self._command, *self._where], self.cluster, raw_ids, ended=False)

    def ended(self, raw_ids: Collection[int]) -> JobSource:
        """The rows of jobs that have ended."""
        return SqueueRows(self._slurm, [self._command, *self._where], self.cluster, raw_ids, ended=True)

    def sees_all(self) -> bool | None:
        """Whether PrivateData leaves us the jobs of others."""
        return self._facts.sees_all()


def parse_list(lines: list[str]) -> pl.DataFrame:
    """The lines of squeue as a frame; a line that is none makes the whole look one in vain."""
    fields = pl.Series("line", lines, dtype=pl.String).str.splitn("|", len(_FIELDS)).struct.rename_fields(list(_FIELDS))
    parts = fields.struct.unnest()
    is_array = pl.col("tasks") != _NO_ARRAY
    jobs = parts.select(
        raw_id=pl.col("raw_id").cast(pl.Int64, strict=False),
        job_id=pl.when(is_array).then("array").otherwise("raw_id").cast(pl.Int64, strict=False),
        tasks=pl.when(is_array).then("tasks"),
        state=state_names(parts["state"]),
        submit_time=(pl.col("submit").cast(pl.Int64, strict=False) * 1_000_000).cast(UTC_TIME),
        line=_line(parts),
    )
    if jobs.select(pl.any_horizontal(pl.col("raw_id", "job_id", "state", "submit_time", "line").is_null().any())).item():
        raise SourceFormatError(
            "squeue printed a line that is not of its list of jobs.", hint="Set slurm.squeue to the real one."
        )
    return jobs


def _line(parts: pl.DataFrame) -> pl.Expr:
    """What makes a look ask for a job again: of a waiting job not the start that the scheduler guesses."""
    start = pl.when(pl.col("state") == "PENDING").then(pl.lit("")).otherwise("start")
    distinct = parts["reason"].unique()
    classes = pl.Series([reason_class(reason) for reason in distinct], dtype=pl.String)
    reason = pl.col("reason").replace_strict(distinct, classes, return_dtype=pl.String)
    others = [pl.col(name) for name in ("tasks", "state", "submit", "limit", "cpus", "nodes", "partition")]
    return pl.concat_str([*others, start, reason], separator="|")


class SqueueRows(LiveSource):
    """Rows of some jobs, out of `squeue --json` (which prints all of them, whatever it is asked for)."""

    format = "squeue"

    def __init__(self, slurm: SlurmSection, command: list[str], cluster: str, raw_ids: Collection[int], *, ended: bool) -> None:
        super().__init__("squeue", None)
        self._slurm, self._command, self._cluster = slurm, command, cluster
        self._raw_ids, self._ended = raw_ids, ended

    def chunks(self) -> Iterator[Chunk]:
        """Ask squeue, and read what it says."""
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-squeue-") as answer:
            run_sacct([*self._command, "--all", "--states=all", "--json"], answer.fileno(), self._slurm.timeout_s)
            source = SlurmJson(answer.name, cluster=self._cluster, raw_ids=self._raw_ids)
            for chunk in source.chunks():
                self._columns = source.fields()
                yield of_queue(chunk, self._slurm.array_tasks, ended=self._ended, notes=self.notes)


def of_queue(chunk: Chunk, most: int, *, ended: bool, notes: list[str]) -> Chunk:
    """The rows of a controller's list that go on, or those that have ended; waiting tasks one by one."""
    going_on = pl.col("state").is_in([str(state) for state in UNFINISHED])
    over = ~going_on & (pl.col("state") != JobState.REQUEUED.value)
    settled = ~pl.col("state_raw").str.contains(_COMPLETING, literal=True)
    records = chunk.records.filter(over if ended else going_on, settled)
    kept = replace(chunk, records=records, read=records.height + chunk.rejects.height)
    return split_arrays(in_one_form(kept), most=most, notes=notes)


class ControllerFacts:
    """What `scontrol show config` says: the cluster's name, and whose jobs its lists show."""

    def __init__(self, slurm: SlurmSection, squeue: str, cluster: str) -> None:
        self._slurm, self._cluster = slurm, cluster
        self._folder = str(Path(squeue).parent)

    def cluster(self) -> str:
        """The name of the cluster that is asked."""
        name = self._setting(self._config(), "ClusterName")
        if not name:
            raise SourceUnavailableError(
                "scontrol does not tell the name of the cluster.", hint="Try the same by hand: scontrol show config."
            )
        return name

    def sees_all(self) -> bool | None:
        """Whether we are shown the jobs of all users: no PrivateData, or a right that lifts it."""
        config = self._config()
        private = self._setting(config, "PrivateData")
        if private is None:
            return None
        if not {"jobs", "all"} & set(private.lower().split(",")):
            return True
        slurm_user = re.search(r"\((\d+)\)", self._setting(config, "SlurmUser") or "")
        if os.geteuid() == 0 or (slurm_user and int(slurm_user[1]) == os.geteuid()):
            return True
        return self._is_operator()

    def _is_operator(self) -> bool:
        arguments = ["--noheader", "--parsable2", "show", "user", f"name={getpass.getuser()}", "format=AdminLevel"]
        level = self._answer("sacctmgr", *arguments).strip().lower()
        return level in OPERATORS

    def _config(self) -> str:
        where = ["--clusters", self._cluster] if self._cluster else []
        return self._answer("scontrol", *where, "show", "config")

    @staticmethod
    def _setting(config: str, name: str) -> str | None:
        match = re.search(rf"^{name}\s*=\s*(\S+)", config, re.MULTILINE)
        return match[1] if match else None

    def _answer(self, program: str, *arguments: str) -> str:
        command = shutil.which(program, path=self._folder) or shutil.which(program)
        if not command:
            raise SourceUnavailableError(
                f"There is no {program} beside squeue.", hint="Set slurm.squeue to the squeue of a whole Slurm installation."
            )
        with tempfile.TemporaryFile() as out:
            run_sacct([command, *arguments], out.fileno(), self._slurm.timeout_s)
            out.seek(0)
            return out.read().decode("utf-8", "replace")
