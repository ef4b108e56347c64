"""Whose fault an incident probably is, from who else failed there and where else this user failed.

findings of one incident -> blame_of -> Blame and the figures that it rests on; severity_of -> Severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stormpetrel.records.findings import Evidence, Finding, FindingKind, SubjectKind, Unit
from stormpetrel.records.incidents import SEVERITIES, Blame, Severity

_SHARED: Final = 3  # nodes that lose jobs, or go down, at once have something in common
_MOSTLY: Final = 0.8  # share of a wave's jobs on one node
_FEWEST_NEIGHBOURS: Final = 3  # jobs of others on the same nodes
_OF_JOBS: Final = frozenset({FindingKind.BATCH_FAILS, FindingKind.TIMEOUT_WAVE, FindingKind.OOM_WAVE})
_HEALTHY: Final = 0.34  # share of them that failed, below which the nodes are fine


def blame_of(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]]:
    """Return whom the findings of one incident point at, and the figures behind that."""
    nodes = _nodes(findings, FindingKind.NODE_EATS_JOBS)
    if nodes:
        lost = [finding for finding in findings if finding.kind == FindingKind.NODE_EATS_JOBS]
        users = len({user for finding in lost for user in finding.users})
        reasons = (Evidence("nodes", len(nodes), Unit.COUNT), Evidence("users", users, Unit.COUNT))
        return (Blame.STORAGE if len(nodes) >= _SHARED else Blame.NODE), reasons
    down = _nodes(findings, FindingKind.NODE_DOWN)
    if down:
        return Blame.NODE, (Evidence("nodes", len(down), Unit.COUNT),)
    speaking = [finding for finding in findings if finding.kind in _OF_JOBS] or findings
    verdicts = [_blame_of_batch(finding) for finding in speaking]
    blames = {blame for blame, _ in verdicts}
    return verdicts[0] if len(blames) == 1 else (Blame.UNCLEAR, verdicts[0][1])


def _blame_of_batch(finding: Finding) -> tuple[Blame, tuple[Evidence, ...]]:
    """A user is to blame whose jobs fail on several nodes where those of others do not."""
    neighbours, failed = finding.figure("neighbours"), finding.figure("neighbours_failed")
    names = ("nodes", "on_one_node", "neighbours", "neighbours_failed")
    reasons = tuple(figure for figure in finding.evidence if figure.name in names)
    if finding.subject.kind == SubjectKind.USER:
        fine = neighbours >= _FEWEST_NEIGHBOURS and failed <= _HEALTHY * neighbours
        return (Blame.USER if fine else Blame.UNCLEAR), reasons
    if finding.kind in (FindingKind.HOLD_WAVE, FindingKind.SHADOW_WAVE) and finding.subject.kind == SubjectKind.NODE:
        return Blame.NODE, reasons
    if finding.kind == FindingKind.SILENCE and finding.subject.kind == SubjectKind.SUBMIT_HOST:
        return Blame.SCHEDULER, reasons
    if finding.subject.kind == SubjectKind.CLUSTER and finding.figure("nodes") > 1 and finding.figure("on_one_node") >= _MOSTLY:
        return Blame.NODE, reasons
    return Blame.UNCLEAR, reasons


def severity_of(findings: Sequence[Finding]) -> Severity:
    """Return how loud the findings of one incident are."""
    return max((_severity(finding, findings) for finding in findings), key=SEVERITIES.index)


def _severity(finding: Finding, findings: Sequence[Finding]) -> Severity:
    if finding.kind == FindingKind.NODE_EATS_JOBS:
        return Severity.PAGE
    if finding.kind == FindingKind.NODE_DOWN:
        return Severity.PAGE if len(_nodes(findings, FindingKind.NODE_DOWN)) >= _SHARED else Severity.WARNING
    if finding.kind == FindingKind.SILENCE:
        return Severity.PAGE
    if finding.kind == FindingKind.WINDOWS_ODD or finding.subject.kind == SubjectKind.USER:
        return Severity.INFO
    return Severity.WARNING


def _nodes(findings: Sequence[Finding], kind: FindingKind) -> set[str]:
    return {finding.subject.name for finding in findings if finding.kind == kind}
