"""Whose fault an incident probably is, from who else failed there and where else this user failed.

findings of one incident -> blame_of -> Blame and the figures that it rests on; severity_of -> Severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stormpetrel.alarms.event_blame import POINTS_AT, SUSPECTS
from stormpetrel.records.findings import Evidence, Finding, FindingKind, SubjectKind, Unit
from stormpetrel.records.incidents import SEVERITIES, Blame, Severity

_SHARED: Final = 3  # nodes that lose jobs, or go down, at once have something in common
_MOSTLY: Final = 0.8  # share of a wave's jobs on one node
_FEWEST_NEIGHBOURS: Final = 3  # jobs of others on the same nodes
_OF_JOBS: Final = frozenset({FindingKind.BATCH_FAILS, FindingKind.TIMEOUT_WAVE, FindingKind.OOM_WAVE})
_FEWEST_POINTS: Final = 3.0  # nats: one kind of events, one in a thousand
_NEXT_BELOW: Final = 0.5  # of the first suspect's, what the second has at most
_HEALTHY: Final = 0.6  # share of them that failed, below which the nodes are fine: others break their scripts as well
_MANY_NEIGHBOURS: Final = 10
_ALL_FAIL: Final = 0.85  # share of them that failed, above which it is nobody's script
_SPREAD: Final = 0.5  # share of the lost jobs on one node, below which they fail everywhere


def blame_of(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]]:
    """Return whom the findings of one incident point at, and the figures behind that."""
    nodes = _nodes(findings, FindingKind.NODE_EATS_JOBS)
    if nodes:
        lost = [finding for finding in findings if finding.kind == FindingKind.NODE_EATS_JOBS]
        users = len({user for finding in lost for user in finding.users})
        losing = max(len(nodes), *(int(finding.figure("losing_nodes")) for finding in lost))
        reasons = (
            Evidence("nodes", len(nodes), Unit.COUNT),
            Evidence("users", users, Unit.COUNT),
            Evidence("losing_nodes", losing, Unit.COUNT),
        )
        return (Blame.STORAGE if losing >= _SHARED else Blame.NODE), reasons
    down = _nodes(findings, FindingKind.NODE_DOWN)
    if down:
        return Blame.NODE, (Evidence("nodes", len(down), Unit.COUNT),)
    speaking = [finding for finding in findings if finding.kind in _OF_JOBS] or findings
    verdicts = [_blame_of_batch(finding) for finding in speaking]
    blames = {blame for blame, _ in verdicts}
    verdict = verdicts[0] if len(blames) == 1 else (Blame.UNCLEAR, verdicts[0][1])
    return verdict if verdict[0] != Blame.UNCLEAR else _blame_of_events(findings) or verdict


def _blame_of_events(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]] | None:
    """The suspect that the kinds and places of unusual events point at; None where they point at nobody, or at two alike."""
    points = {suspect: sum(finding.figure(f"{POINTS_AT}{suspect}") for finding in findings) for suspect in SUSPECTS}
    first, second = sorted(points, key=lambda suspect: -points[suspect])[:2]
    if points[first] < _FEWEST_POINTS or points[second] > _NEXT_BELOW * points[first]:
        return None
    return first, tuple(Evidence(f"{POINTS_AT}{suspect}", value, Unit.NATS) for suspect, value in points.items() if value)


def _blame_of_batch(finding: Finding) -> tuple[Blame, tuple[Evidence, ...]]:
    """A user is to blame whose jobs fail where those of others do not; where all fail, one node is, or what many share."""
    names = ("nodes", "on_one_node", "neighbours", "neighbours_failed", "losing_nodes")
    reasons = tuple(figure for figure in finding.evidence if figure.name in names)
    if finding.kind in (FindingKind.HOLD_WAVE, FindingKind.SHADOW_WAVE) and finding.subject.kind == SubjectKind.NODE:
        return Blame.NODE, reasons
    if finding.kind == FindingKind.SILENCE and finding.subject.kind == SubjectKind.SUBMIT_HOST:
        return Blame.SCHEDULER, reasons
    return (_blame_of_surroundings(finding) if finding.kind in _OF_JOBS else Blame.UNCLEAR), reasons


def _blame_of_surroundings(finding: Finding) -> Blame:
    neighbours, failed = finding.figure("neighbours"), finding.figure("neighbours_failed")
    nodes, on_one_node = finding.figure("nodes"), finding.figure("on_one_node")
    everywhere = nodes >= _SHARED and on_one_node <= _SPREAD
    if neighbours >= _MANY_NEIGHBOURS and failed >= _ALL_FAIL * neighbours:
        if finding.figure("losing_nodes") >= _SHARED and everywhere:
            return Blame.STORAGE
        return Blame.NODE if on_one_node >= _MOSTLY and finding.figure("losing_nodes") < _SHARED else Blame.UNCLEAR
    if finding.subject.kind == SubjectKind.USER:
        fine = neighbours >= _FEWEST_NEIGHBOURS and failed <= _HEALTHY * neighbours
        return Blame.USER if fine or (everywhere and failed == 0) else Blame.UNCLEAR
    mostly = finding.subject.kind == SubjectKind.CLUSTER and nodes > 1 and on_one_node >= _MOSTLY
    return Blame.NODE if mostly else Blame.UNCLEAR


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
