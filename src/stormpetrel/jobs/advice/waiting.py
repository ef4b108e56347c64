"""Why a job has not started: what the scheduler itself says, as a sentence, with what to change.

job row (+ Cluster) -> why_waiting -> Waiting; job frame -> waiting_columns -> three columns, each distinct case worded once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.advice.fit_to_cluster import Misfit, clock, misfits, time_and_days
from stormpetrel.jobs.advice.holds import CODE, HOLD_EXTRA, hold_advice
from stormpetrel.records import units
from stormpetrel.records.cluster import Cluster, ResourceRequest
from stormpetrel.records.pending_reasons import KIND_LABELS, Reason, WaitKind, pending_reason
from stormpetrel.records.states import JobState

WAITING_STATES: Final = (JobState.PENDING.value, JobState.HELD.value)
# Entries of `extra` that say why a job waits; sources fill them where their scheduler tells.
EXTRA: Final = (
    "reason", "reason_detail", "dependency", "licenses", "reservation", "required_nodes", "constraints", "timelimit", *HOLD_EXTRA,
)  # fmt: skip
COLUMNS: Final = (
    "job_id", "array_task", "state", "partition", "account", "qos", "time_limit_s", "req_nodes", "req_cpus", "req_gpus",
    "req_mem_bytes", "req_tres", "eligible_time",
)  # fmt: skip
WAITING_SCHEMA: Final = {"waiting": pl.String(), "waiting_words": pl.String(), "never_runs": pl.Boolean()}

_LONGEST: Final = 200  # of text that comes from outside
_MOST_PARENTS: Final = 4
_PARENT: Final = re.compile(r"(after[a-z]*|expand):(\d{1,18}(?:_(?:\d{1,10}|\*))?)(?:\+\d{1,10})?\(([a-z]+)\)")
_COUNT: Final = re.compile(r"(?:^|,)(cpu|node|gres/gpu)=(\d{1,9})(?=,|$)", re.ASCII)
_UNAVAILABLE: Final = re.compile(r"UnavailableNodes:([\w.,\[\]-]{1,200})")
_CONDITIONS: Final = {
    "after": "to start",
    "afterok": "to complete",
    "afterany": "to end",
    "afternotok": "to fail",
    "aftercorr": "(the same task of it) to complete",
    "afterburstbuffer": "to copy its data out",
}
# What a misfit has to be about to explain a reason of Slurm's: the columns, or the rules.
_EXPLAINED_BY: Final = {
    "constraints": ("req_cpus", "req_mem_bytes", "req_gpus", "req_nodes", None),
    "partition": ("req_cpus", "req_mem_bytes", "req_gpus", "req_nodes", "time_limit_s", "partition"),
}
# On a full cluster Slurm says Resources or Priority, now and then, of jobs that their partition does not let in.
_TURN_NEVER_COMES: Final = ("account_not_allowed", "qos_not_allowed")


@dataclass(frozen=True, slots=True)
class Parent:
    """A job that another one depends on: its id, the condition (`afterok`), and how that stands (`unfulfilled`, `failed`)."""

    job: str
    condition: str
    status: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job has not started: the scheduler's own reason, what kind of waiting that is, the same in words, what to do.

    `command` does it, where one command does; `waits_for` names parent jobs, nodes, licences, a reservation, or the limit.
    """

    kind: WaitKind
    reason: str
    words: str
    change: str = ""
    command: str = ""
    waits_for: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What it waits for, as one sentence."""
        return f"{KIND_LABELS[self.kind]}{self.words}."

    @property
    def with_change(self) -> str:
        """The sentence, and what to change."""
        return f"{self.sentence} {self.change}".strip()

    @property
    def never_runs(self) -> bool:
        """Whether it cannot run as it stands."""
        return self.kind is WaitKind.NEVER


def why_waiting(job: Mapping[str, Any], cluster: Cluster | None = None, past: pl.DataFrame | None = None) -> Waiting | None:
    """What the scheduler says about a job that has not started; None where it is none, or where its scheduler says nothing.

    `job` is a row of the job frame. With the cluster at hand numbers are named: which limit, and which value fits. With `past`
    jobs at hand, others on the same host and of the same cluster id decide what to do about a held HTCondor job.
    """
    if job.get("state") not in WAITING_STATES:
        return None
    extra = job.get("extra") or {}
    if extra.get(CODE) is not None:
        return _held(job, past)
    raw = _printable(str(extra.get("reason") or "")).strip("() ")
    name, _, rest = raw.partition(",")
    if not name:
        return None
    reason = pending_reason(name)
    request = request_of(job, extra)
    facts = _Facts.of(job, extra, request, reason=name, detail=_printable(str(extra.get("reason_detail") or rest)))
    explanation = _explained(request, reason, name, cluster)
    kind = reason.kind
    if explanation is not None:
        kind = WaitKind.NEVER if explanation.never else WaitKind.NODE
    elif name == "PartitionNodeLimit" and _could_run(request, cluster):
        return _out_of_service(name, facts)
    text = explanation.words[0].lower() + explanation.words[1:].rstrip(".") if explanation else facts.filled(reason.words)
    change, command = (
        (explanation.change, _command(explanation, facts)) if explanation else map(facts.filled, (reason.change, reason.command))
    )
    return Waiting(kind, name, _with_detail(text, facts), change, command, facts.waits_for(kind, name))


def _held(job: Mapping[str, Any], past: pl.DataFrame | None) -> Waiting | None:
    """What became of a job that HTCondor has put on hold, and what to do about it."""
    advice = hold_advice(job, past)
    if advice is None:
        return None
    # Only where one job is looked into: a table of jobs has no place for it.
    reason = f'HTCondor says: "{advice.text}"' if advice.text and past is not None else ""
    evidence = "; ".join((*advice.evidence, reason) if reason else advice.evidence)
    change = f"{advice.change} ({evidence})" if evidence else advice.change
    hosts = (advice.host,) if advice.host else ()
    return Waiting(WaitKind.HELD, f"hold {advice.code}", advice.cause, change, " && ".join(advice.commands), hosts)


def parents_of(dependency: str) -> tuple[Parent, ...]:
    """The parent jobs in `afterok:12(failed),afterany:13_*(unfulfilled)`, as squeue writes dependencies."""
    return tuple(Parent(job, condition, status) for condition, job, status in _PARENT.findall(dependency[:4096]))


def waiting_columns(jobs: pl.DataFrame, cluster: Cluster | None = None) -> pl.DataFrame:
    """`waiting` (the kind) and `waiting_words` of every row, null for jobs that do not wait; and `never_runs`, true or false.

    Rows that wait for the same are worded once: the tasks of an array, and all who wait for their turn.
    """
    extra = pl.col("extra").map
    rows = jobs.with_row_index("_row").filter(pl.col("state").is_in(WAITING_STATES))
    rows = rows.select("_row", *(pl.col(name) for name in COLUMNS), *(extra.get(name).alias(f"_{name}") for name in EXTRA))
    rows = rows.filter(pl.col("_reason").is_not_null() | pl.col(f"_{CODE}").is_not_null())
    if rows.is_empty():
        nothing = [pl.Series(name, [None], dtype=dtype).new_from_index(0, jobs.height) for name, dtype in WAITING_SCHEMA.items()]
        return pl.DataFrame(nothing).with_columns(pl.col("never_runs").fill_null(False))
    case = [name for name in rows.columns if name not in ("_row", "job_id", "array_task")]
    distinct = rows.unique(case, keep="first", maintain_order=True).select("job_id", "array_task", *case)
    worded = distinct.select(case).hstack(_worded(distinct, cluster))
    waiting = rows.join(worded, on=case, how="left", nulls_equal=True).select("_row", *WAITING_SCHEMA)
    every = pl.DataFrame({"_row": pl.int_range(jobs.height, dtype=pl.UInt32, eager=True)})
    columns = every.join(waiting, on="_row", how="left", maintain_order="left").select(*WAITING_SCHEMA)
    return columns.with_columns(pl.col("never_runs").fill_null(False))


def _worded(distinct: pl.DataFrame, cluster: Cluster | None) -> pl.DataFrame:
    """What is said about each case: what it waits for, and what to change."""
    rows = []
    for row in distinct.iter_rows(named=True):
        explanation = why_waiting({**row, "extra": {name: row[f"_{name}"] for name in EXTRA}}, cluster)
        rows.append(
            (None, None, None)
            if explanation is None
            else (str(explanation.kind), explanation.with_change, explanation.never_runs)
        )
    return pl.DataFrame(rows, schema=WAITING_SCHEMA, orient="row")


# What the cluster adds.


def _explained(request: ResourceRequest, reason: Reason, name: str, cluster: Cluster | None) -> Misfit | None:
    """What of the request does not fit the cluster, where that is what the scheduler means."""
    if cluster is not None and reason.kind is WaitKind.TURN:
        return next((misfit for misfit in misfits(request, cluster) if misfit.rule in _TURN_NEVER_COMES), None)
    if cluster is None or reason.kind not in (WaitKind.NEVER, WaitKind.LIMIT) or reason.column is None:
        return None
    wanted = _EXPLAINED_BY.get(reason.column, (reason.column,))
    of_partition = name.startswith("Partition") or name in ("BadConstraints", "AccountNotAllowed", "QOSNotAllowed")
    for misfit in misfits(request, cluster):
        limit = misfit.rule in ("above_limit", "below_limit", "time_above_qos")
        if misfit.never and misfit.column in wanted and (limit is not of_partition):
            return misfit
    return None


def _could_run(request: ResourceRequest, cluster: Cluster | None) -> bool:
    """Whether the cluster is known, and nothing of the request is outside its partition: its nodes must be away."""
    known = cluster is not None and all(cluster.partition(name) for name in request.partitions)
    return bool(cluster and known and not any(misfit.never for misfit in misfits(request, cluster)))


def _out_of_service(name: str, facts: _Facts) -> Waiting:
    text = facts.filled("partition {partition} has fewer than the {nodes} that it asks for in service")
    return Waiting(WaitKind.NODE, name, text, "Wait until they are back: sinfo -R tells why they are away.")


def request_of(job: Mapping[str, Any], extra: Mapping[str, Any]) -> ResourceRequest:
    """What a waiting job asks for, as far as its record says: only totals, since how they are split is not in it."""
    tres = dict(_COUNT.findall(str(job.get("req_tres") or "")[:4096]))
    count = {name: int(text) if (text := tres.get(name)) else None for name in ("cpu", "node", "gres/gpu")}
    return ResourceRequest(
        partitions=tuple(name for name in str(job.get("partition") or "").split(",") if name),
        account=job.get("account"),
        qos=job.get("qos"),
        time_limit_s=job.get("time_limit_s"),
        no_time_limit=job.get("time_limit_s") is None and extra.get("timelimit") in units.NO_LIMIT[::2],
        min_nodes=job.get("req_nodes") or count["node"],
        cpus=job.get("req_cpus") or count["cpu"],
        mem_bytes=job.get("req_mem_bytes"),
        gpus=job.get("req_gpus") or count["gres/gpu"],
    )


def _command(misfit: Misfit, facts: _Facts) -> str:
    """How the change that fits is made in a job that is submitted already."""
    fields = {"time_limit_s": "TimeLimit", "req_nodes": "NumNodes", "account": "Account", "qos": "QOS", "partition": "Partition"}
    field = fields.get(misfit.column or "")
    if field is None or misfit.proposed is None:
        return ""
    value = clock(float(misfit.proposed)) if misfit.column == "time_limit_s" else misfit.proposed
    return f"scontrol update JobId={facts.job} {field}={value}"


# Words.


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the words of a reason are filled in with."""

    job: str
    values: Mapping[str, str]
    parents: tuple[Parent, ...]
    nodes: tuple[str, ...]
    detail: str

    @classmethod
    def of(
        cls, job: Mapping[str, Any], extra: Mapping[str, Any], request: ResourceRequest, *, reason: str, detail: str
    ) -> _Facts:
        ident = f"{job.get('job_id')}" + (f"_{job['array_task']}" if job.get("array_task") is not None else "")
        parents = parents_of(str(extra.get("dependency") or ""))
        away = _UNAVAILABLE.search(detail)
        required = str(extra.get("required_nodes") or "")[:_LONGEST]
        nodes = request.min_nodes
        reservation = str(extra.get("reservation") or "")[:_LONGEST]
        limit = job.get("time_limit_s")
        values = {
            "job": ident,
            "reason": reason,
            "partition": str(job.get("partition") or "its partition"),
            "account": str(job.get("account") or "its account"),
            "qos": str(job.get("qos") or "its QOS"),
            "time_limit": f" of {time_and_days(limit)}" if limit else "",
            "nodes": f"{nodes} node{'' if nodes == 1 else 's'}" if nodes else "a number of nodes",
            "constraints": f" ({str(extra['constraints'])[:_LONGEST]})" if extra.get("constraints") else "",
            "required": f" ({away[1] if away else required})" if away or required else "",
            "licences": str(extra.get("licenses") or "the ones that it asks for are")[:_LONGEST],
            "reservation": f" {reservation}" if reservation else "",
            "reservation_name": reservation or "it",
            "begin": _begin(job.get("eligible_time")),
            "parents": _parent_text(parents, reason, str(extra.get("dependency") or "")),
        }
        named = tuple(name for name in (away[1] if away else required,) if name)
        return cls(ident, values, parents, named, "" if away else detail)

    def filled(self, text: str) -> str:
        return text.format_map(self.values)

    def waits_for(self, kind: WaitKind, reason: str) -> tuple[str, ...]:
        if kind is WaitKind.PARENT or reason == "DependencyNeverSatisfied":
            return tuple(parent.job for parent in _that_matter(self.parents, reason))
        if kind is WaitKind.NODE:
            return self.nodes
        named = {
            WaitKind.LIMIT: reason,
            WaitKind.NEVER: reason,
            WaitKind.PARTITION: self.values["partition"],
            WaitKind.LICENCE: self.values["licences"],
            WaitKind.RESERVATION: self.values["reservation"].strip(),
        }.get(kind, "")
        return (named,) if named else ()


def _begin(moment: object) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if isinstance(moment, datetime) else "it was submitted to begin later"


def _that_matter(parents: tuple[Parent, ...], reason: str) -> tuple[Parent, ...]:
    """The parents that keep the job from starting: those that failed it, or those that are still to come."""
    status = "failed" if reason == "DependencyNeverSatisfied" else "unfulfilled"
    return tuple(parent for parent in parents if parent.status == status) or parents


def _parent_text(parents: tuple[Parent, ...], reason: str, dependency: str) -> str:
    if "singleton" in dependency and not parents:
        return "an earlier job of the same name and user to end"
    chosen = _that_matter(parents, reason)
    if not chosen:
        return "another job"
    phrases = [
        f"job {parent.job} {_CONDITIONS.get(parent.condition, f'({parent.condition})')}" for parent in chosen[:_MOST_PARENTS]
    ]
    more = f" and {len(chosen) - _MOST_PARENTS} more" if len(chosen) > _MOST_PARENTS else ""
    return ", ".join(phrases) + more


def _with_detail(text: str, facts: _Facts) -> str:
    """The words, and what the scheduler adds to its reason in its own."""
    detail = facts.detail.strip(" .,")
    return f"{text} ({detail})" if detail and detail.lower() not in text.lower() else text


def _printable(text: str) -> str:
    """Text from outside: short, and on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST])
