"""Which acts a policy decides on: pure, out of what is known at `now`.

Policy + judged jobs -> decide_by_risk -> Acts; Policy + incidents + running jobs -> decide_by_incident -> Acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.alarms.acts import Silences
from stormpetrel.errors import UsageError
from stormpetrel.records.actions.acts import Act, ActState, Mode, check_node
from stormpetrel.records.actions.policies import Action, Policy
from stormpetrel.records.findings import Finding, SubjectKind
from stormpetrel.records.incidents import Blame, Incident, IncidentState
from stormpetrel.records.jobs import JobRef
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import JobState

FRESH: Final = timedelta(minutes=15)  # a prediction that is older decides nothing: the job has gone on meanwhile
GOES_ON: Final = timedelta(hours=6)  # a node of which nothing bad is heard for so long is not acted on
_WAITING: Final = "submit"


def decide_by_risk(policy: Policy, judged: pl.DataFrame, *, now: datetime, mode: Mode, pace: float = 1.0) -> list[Act]:
    """Return what a policy decides about jobs by their risk, the riskiest first.

    `judged` has a row per prediction with the job's own columns: KEY, user, account, partition, node_list, state, source, moment,
    moment_time, risk, threshold, model_version. Only jobs that are in the state that the action needs are decided on.
    """
    state = JobState.PENDING if policy.decided_at == _WAITING else JobState.RUNNING
    tau = pl.lit(policy.tau, pl.Float32) if policy.tau else pl.col("threshold")
    rows = judged.filter(
        pl.col("moment") == policy.decided_at,
        pl.col("state") == state.value,
        pl.col("risk") >= tau,
        pl.col("moment_time") > now - FRESH * pace,
        pl.col("moment_time") <= now,
    ).sort("risk", "moment_time", descending=[True, False])
    return [_by_risk(policy, row, now, mode) for row in rows.iter_rows(named=True) if _allows(policy, row)]


def decide_by_incident(
    policy: Policy, incidents: Iterable[Incident], running: pl.DataFrame, silences: Silences, *, now: datetime, mode: Mode
) -> list[Act]:
    """Return what a policy decides about sick nodes, or about the jobs that run on them.

    Only open incidents that are not muted or under maintenance, were not heard of late, and in which the node is suspected.
    """
    acts: list[Act] = []
    for incident in incidents:
        if not _counts(incident, silences, now):
            continue
        for finding in _of_nodes(policy, incident, now):
            node = finding.subject.name
            if policy.kind == Action.DRAIN:
                acts.append(_drain(policy, incident, finding, now, mode))
            else:
                acts += [_requeue(policy, incident, node, row, now, mode) for row in running_on(running, node, policy)]
    return list({act.key: act for act in acts}.values())


def running_on(running: pl.DataFrame, node: str, policy: Policy) -> Iterator[dict[str, Any]]:
    """The rows of running jobs on a node that a policy may act on."""
    candidates = running.filter(
        pl.col("state") == JobState.RUNNING.value, pl.col("node_list").str.contains(node, literal=True)
        | pl.col("node_list").str.contains("[", literal=True),
    )  # fmt: skip
    for row in candidates.iter_rows(named=True):
        if node in expand_nodes(row["node_list"]) and _allows(policy, row):
            yield row


def _counts(incident: Incident, silences: Silences, now: datetime) -> bool:
    is_open = incident.state != IncidentState.RESOLVED and not incident.late
    return is_open and incident.blame == Blame.NODE and not silences.reason(incident, now)


def _of_nodes(policy: Policy, incident: Incident, now: datetime) -> Sequence[Finding]:
    return [
        finding
        for finding in incident.findings
        if finding.kind.value in policy.kinds
        and finding.subject.kind == SubjectKind.NODE
        and policy.allows_node(finding.subject.name)
        and finding.known_at <= now
        and now - max(finding.until, finding.known_at) <= GOES_ON
    ]


def _allows(policy: Policy, row: Mapping[str, Any]) -> bool:
    return policy.allows_job(
        user=row["user"] or "",
        account=row["account"] or "",
        partition=row["partition"] or "",
        nodes=expand_nodes(row["node_list"]),
    )


def _by_risk(policy: Policy, row: Mapping[str, Any], now: datetime, mode: Mode) -> Act:
    ref = str(JobRef.of(dict(row)))
    evidence = {
        "risk": round(float(row["risk"]), 4),
        "threshold": round(policy.tau or float(row["threshold"]), 4),
        "moment": row["moment"],
        "model_version": int(row["model_version"]),
    }
    return _act(policy, f"{policy.name}:{mode}:{ref}", mode, row["cluster"], ref, row, evidence, now)


def _requeue(policy: Policy, incident: Incident, node: str, row: Mapping[str, Any], now: datetime, mode: Mode) -> Act:
    ref = str(JobRef.of(dict(row)))
    key = f"{policy.name}:{mode}:{ref}:{node}"
    return _act(policy, key, mode, row["cluster"], ref, row, {"incident": incident.id}, now, node=node)


def _drain(policy: Policy, incident: Incident, finding: Finding, now: datetime, mode: Mode) -> Act:
    node = finding.subject.name
    key = f"{policy.name}:{mode}:{incident.id}.{len(incident.reopened_at)}:{node}"
    evidence = {"incident": incident.id, "kind": finding.kind.value, "score": round(finding.score, 3)}
    return _act(policy, key, mode, incident.cluster, node, {}, evidence, now, node=node)


def _act(
    policy: Policy,
    key: str,
    mode: Mode,
    cluster: str,
    subject: str,
    row: Mapping[str, Any],
    evidence: dict[str, Any],
    now: datetime,
    *,
    node: str = "",
) -> Act:
    try:
        if node:
            check_node(node)
        state, why = ActState.DRY if mode == Mode.DRY else ActState.INTENDED, ""
    except UsageError as error:
        state, why = ActState.REFUSED, error.what
    return Act(
        key=key[:400], policy=policy.name, digest=policy.digest, mode=mode, action=policy.kind, cluster=cluster, subject=subject,
        user=row.get("user") or "", by=f"policy:{policy.name}", decided=now, evidence=evidence, state=state, node=node,
        source=row.get("source") or "", why=why,
    )  # fmt: skip
