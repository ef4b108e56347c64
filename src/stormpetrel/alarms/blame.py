"""Whose fault an incident probably is, from who else failed there, where else this user failed, and what CPU traces say.

findings of one incident -> blame_of -> Blame and the figures that it rests on; severity_of -> Severity.

Whom unusual counts of events point at: which kinds are more or fewer than expected, and at which sort of place.

reasons of a bucket (events/finding.py) -> pointers -> Evidence, one figure per suspect, in nats; they add up over the buckets of
an incident.

Lost lines and lost jobs lie with the host that has them: a submit host (the scheduler), a site or a node. A submit service that
does not answer takes no jobs. Storage that is slow holds the ends of jobs back while they go on running and being handed in.
What is held, removed or fails at once for one group only is that group's mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from stormpetrel.alarms.trace_rules import MOSTLY_WAITS
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.events import EventKind
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
_WAITING_SHARE: Final = 1 / 3  # of the nodes, that wait for data at once where it is the storage, and not one large job
_ONE_JOB: Final = 0.8  # of the nodes that wait, on which one job runs that waits, from which on it is that job's doing
_SOON_AFTER: Final = timedelta(minutes=15)
_SPREAD: Final = 0.5  # share of the lost jobs on one node, below which they fail everywhere
POINTS_AT: Final = "points_at_"
SUSPECTS: Final = (Blame.USER, Blame.NODE, Blame.STORAGE, Blame.SCHEDULER)
_MOST: Final = 8.0  # nats that one kind adds in one bucket: a hundred times as many are not a hundred times as telling
_LOST: Final = frozenset(
    {
        EventKind.DISCONNECTED, EventKind.RECONNECTED, EventKind.RECONNECT_FAILED, EventKind.SHADOW_EXCEPTION,
        EventKind.EVICTED, EventKind.NODE_FAILED,
    }
)  # fmt: skip
_FAILING: Final = frozenset({EventKind.HELD, EventKind.FAILED, EventKind.FAILED_FAST, EventKind.ABORTED})
_BUSY: Final = frozenset({EventKind.EXECUTE, EventKind.TERMINATED, EventKind.SUBMIT, EventKind.RELEASED})
_AT: Final = {"node": Blame.NODE, "site": Blame.NODE, "submit_host": Blame.SCHEDULER, "group": Blame.USER}


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
        traces = _waiting_nodes([finding for finding in findings if any(_meets(finding, loss) for loss in lost)])
        return (Blame.STORAGE if losing >= _SHARED or traces else Blame.NODE), (*reasons, *traces)
    down = _nodes(findings, FindingKind.NODE_DOWN)
    if down:
        return Blame.NODE, (Evidence("nodes", len(down), Unit.COUNT),)
    traces = _waiting_nodes(findings)
    if traces:
        return Blame.STORAGE, traces
    speaking = [finding for finding in findings if finding.kind in _OF_JOBS] or findings
    verdicts = [_blame_of_batch(finding) for finding in speaking]
    blames = {blame for blame, _ in verdicts}
    verdict = verdicts[0] if len(blames) == 1 else (Blame.UNCLEAR, verdicts[0][1])
    if verdict[0] != Blame.UNCLEAR:
        return verdict
    return _blame_of_events(findings) or _blame_of_one_node(findings) or _blame_of_one_job(findings) or verdict


def _blame_of_events(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]] | None:
    """The suspect that the kinds and places of unusual events point at; None where they point at nobody, or at two alike."""
    points = {suspect: sum(finding.figure(f"{POINTS_AT}{suspect}") for finding in findings) for suspect in SUSPECTS}
    first, second = sorted(points, key=lambda suspect: -points[suspect])[:2]
    if points[first] < _FEWEST_POINTS or points[second] > _NEXT_BELOW * points[first]:
        return None
    return first, tuple(Evidence(f"{POINTS_AT}{suspect}", value, Unit.NATS) for suspect, value in points.items() if value)


def _waiting_nodes(findings: Sequence[Finding]) -> tuple[Evidence, ...]:
    """The figures of CPU traces that show many nodes waiting for data at once, not for one job; empty where they do not."""
    most = _when_most_waited(findings)
    if most is None or _is_one_job(most):
        return ()
    waiting, nodes = most.figure("waiting_nodes"), most.figure("watched_nodes")
    return _figures_of_waiting(most) if waiting >= max(_SHARED, _WAITING_SHARE * nodes) else ()


def _blame_of_one_job(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]] | None:
    """The user of a job that waits for data on several nodes, while other nodes do not; None where there is no such job."""
    most = _when_most_waited(findings)
    if most is None or not _is_one_job(most) or most.figure("waiting_nodes") < _SHARED:
        return None
    return Blame.USER, _figures_of_waiting(most)


def _when_most_waited(findings: Sequence[Finding]) -> Finding | None:
    """What CPU traces showed when most nodes waited for data; None where what is unusual is something else."""
    odd = [finding for finding in findings if finding.kind == FindingKind.WINDOWS_ODD]
    waits = max((finding.figure("waiting") for finding in odd), default=0.0) >= MOSTLY_WAITS
    return max(odd, key=lambda finding: finding.figure("waiting_nodes")) if waits else None


def _is_one_job(most: Finding) -> bool:
    """Whether one job waits on nearly all of the nodes that wait. A job on every node of the cluster tells nothing."""
    waiting = most.figure("waiting_nodes")
    return most.figure("waiting_nodes_of_one_job") >= _ONE_JOB * waiting and 0 < waiting < most.figure("watched_nodes")


def _figures_of_waiting(most: Finding) -> tuple[Evidence, ...]:
    names = ("waiting_nodes", "watched_nodes", "waiting_nodes_of_one_job")
    return tuple(figure for figure in most.evidence if figure.name in names)


def _meets(odd: Finding, lost: Finding) -> bool:
    """Whether two findings are of the same time: a node that was sick days ago may wait for the storage today."""
    return odd.since <= lost.until + _SOON_AFTER and lost.since <= odd.until + _SOON_AFTER


def _blame_of_one_node(findings: Sequence[Finding]) -> tuple[Blame, tuple[Evidence, ...]] | None:
    """The node whose CPU traces are unusual while jobs fail there; None where traces are all there is, or of several nodes."""
    odd = [finding for finding in findings if finding.kind == FindingKind.WINDOWS_ODD]
    if len({finding.subject for finding in odd}) != 1 or not any(finding.figure("lost") for finding in findings):
        return None
    return Blame.NODE, tuple(figure for figure in odd[0].evidence if figure.name in ("flagged", "windows"))


def is_without_culprit(finding: Finding) -> bool:
    """Whether a finding about jobs, looked at alone, points at nobody, although jobs failed on several nodes."""
    return finding.kind in _OF_JOBS and finding.figure("nodes") >= _SHARED and blame_of([finding])[0] == Blame.UNCLEAR


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


def pointers(reasons: Iterable[Reason]) -> tuple[Evidence, ...]:
    """Return how much the counts of a bucket speak for each suspect; those for whom nothing speaks are left out."""
    more = {reason.event_kind: reason for reason in reasons if reason.kind == ReasonKind.MORE}
    fewer = {reason.event_kind: reason for reason in reasons if reason.kind == ReasonKind.FEWER}
    points = dict.fromkeys(SUSPECTS, 0.0)
    for kind, reason in more.items():
        suspect = _of_more(kind, reason.place)
        if suspect is not None:
            points[suspect] += _weight(reason)
    for kind, reason in fewer.items():
        suspect = _of_fewer(kind, reason.place, more, fewer)
        if suspect is not None:
            points[suspect] += _weight(reason)
    return tuple(Evidence(f"{POINTS_AT}{suspect}", value, Unit.NATS) for suspect, value in points.items() if value)


def _of_more(kind: str, place: str) -> Blame | None:
    if kind in _LOST:  # who loses the line is no user
        return None if place == "group" else _AT.get(place)
    if kind in _FAILING or kind in _BUSY:
        return _AT.get(place)
    return None


def _of_fewer(kind: str, place: str, more: dict[str, Reason], fewer: dict[str, Reason]) -> Blame | None:
    if kind == EventKind.SUBMIT:
        return Blame.SCHEDULER
    if kind not in (EventKind.TERMINATED, EventKind.EXECUTE, EventKind.IMAGE_SIZE):
        return None
    if EventKind.SUBMIT in fewer:  # nothing comes in: what does not start and end follows from that
        return Blame.SCHEDULER
    if place in ("site", "submit_host"):
        return _AT[place]
    if EventKind.IMAGE_SIZE in fewer or _LOST & set(more):  # jobs are gone, not slow
        return Blame.NODE
    return Blame.STORAGE if kind == EventKind.TERMINATED else None


def _weight(reason: Reason) -> float:
    return min(abs(reason.surprise), _MOST)
