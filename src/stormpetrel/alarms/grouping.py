"""Findings become incidents: what shares a subject or a cause is one trouble, with one number.

findings -> IncidentBook.take -> incidents. What a book says depends on the times in the findings,
not on how often it is asked, except for when something was known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.acts import LATE, Silences
from stormpetrel.alarms.blame import POINTS_AT, blame_of, is_without_culprit, severity_of
from stormpetrel.alarms.budget import BUDGET, PageBudget
from stormpetrel.alarms.verdict_memory import DISMISSED, VerdictMemory
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.records.incidents import LEADING, SEVERITIES, Blame, Incident, IncidentState, Severity, order_of

# How long nothing may be heard before an incident is resolved. A sick node that gets no job at night is still sick.
_QUIET: Final = {
    FindingKind.NODE_EATS_JOBS: timedelta(hours=24),
    FindingKind.SILENCE: timedelta(hours=2),
    FindingKind.SOURCE_GONE: timedelta(minutes=30),
    FindingKind.WINDOWS_KNOWN: timedelta(hours=1),
    FindingKind.WINDOWS_ODD: timedelta(hours=1),
}
_USUALLY_QUIET: Final = timedelta(hours=6)
_MOST_DOUBLINGS: Final = 2  # what keeps coming back must stay away longer: twice as long each time, up to this
RETURNS_WITHIN: Final = timedelta(days=7)  # after it was resolved; later it is a new incident
_LATE: Final = timedelta(hours=1)  # what is known so long after the fact wakes nobody
_AT_ONCE: Final = timedelta(minutes=15)  # nodes that fall ill within this time have a cause in common
_OF_PEOPLE: Final = frozenset({SubjectKind.USER, SubjectKind.GROUP})
_SAME_JOBS: Final = 0.5  # share of a finding's jobs that are an incident's as well
_OF_THE_BEGINNING: Final = frozenset(
    {"usual", "deciding_lost", "deciding_tried", "deciding_score", "losing_nodes"}
)  # what was so when the trouble began
_MOST_JOBS: Final = 2000  # of one kind and subject that are remembered, the newest
# What traces showed when most nodes waited.
_AT_THE_WORST: Final = frozenset({"waiting", "waiting_nodes", "watched_nodes", "waiting_nodes_of_one_job"})


class IncidentBook:
    """The incidents of a site, in the order in which they were raised; numbered from `first_id` on.

    A book that is opened with the incidents of an earlier one goes on as that one would have.
    """

    def __init__(self, incidents: Iterable[Incident] = (), *, first_id: int = 1) -> None:
        self._next_id = first_id
        self._incidents = {incident.id: incident for incident in sorted(incidents, key=lambda incident: incident.id)}
        # The lost jobs of the incidents that are not over, or can come back.
        self._jobs = {number: _jobs_of(incident) for number, incident in self._incidents.items()}
        self.silences = Silences()
        self.budget: PageBudget | None = None  # without one only what a rule calls a page is sent
        self.memory = VerdictMemory()  # what people have said of past incidents

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._incidents.values())

    def take(self, findings: Iterable[Finding], now: datetime) -> list[Incident]:
        """Return the incidents that are new or changed by these findings or by the silence up to `now`."""
        changed: dict[int, None] = dict.fromkeys(self._heard_again(now))
        for finding in sorted(findings, key=order_of):
            changed |= dict.fromkeys(self._resolve_quiet(finding.decided_at))
            home = self._home(finding)
            if home is not None and home.resolved_at is not None and self.memory.like([finding], finding.known_at) is not None:
                home = None  # what nobody wants to hear of again brings nothing back
            incident = self._open(finding) if home is None else _joined(home, finding)
            incident = self._send(self._remembered(incident, finding.known_at, is_new=home is None), finding)
            self._incidents[incident.id] = incident
            self._jobs[incident.id] = _jobs_of(incident)
            changed[incident.id] = None
        changed |= dict.fromkeys(self._resolve_quiet(now))
        return [self._incidents[number] for number in changed]

    def _home(self, finding: Finding) -> Incident | None:
        """The incident that a finding belongs to: the oldest that is about the same subject, or has its cause."""
        if finding.continues:
            before = [incident for incident in self._recent() if any(_is_same(old, finding) for old in incident.findings)]
            if before:
                return max(before, key=lambda incident: max(old.until for old in incident.findings if _is_same(old, finding)))
        near = [incident for incident in self._recent() if incident.cluster == finding.cluster]
        there = next(
            (
                incident
                for incident in near
                if incident.resolved_at is None and any(_points_at(finding, old) for old in incident.findings)
            ),
            None,
        )
        if there is not None:  # rather than what else is unusual on the cluster
            return there
        about = [incident for incident in near if _is_about(incident, finding)]
        if about:  # an open one rather than one that would come back, and rather where the same was seen
            return min(
                about, key=lambda incident: (incident.resolved_at is not None, finding.kind not in incident.kinds, incident.id)
            )
        return next((incident for incident in near if incident.resolved_at is None and self._same_cause(incident, finding)), None)

    def _recent(self) -> Iterator[Incident]:
        """The incidents that are open, or can come back, the oldest first; one that was dismissed is over for good."""
        return (self._incidents[number] for number in self._jobs if not self.memory.is_dismissed(number))

    def _heard_again(self, now: datetime) -> list[int]:
        """Put open incidents on the list that were like one whose dismissal was taken back; their numbers."""
        numbers = []
        for number in self._jobs:
            incident = self._incidents[number]
            if incident.like is not None and incident.resolved_at is None and not self.memory.is_dismissed(incident.like):
                self._incidents[number] = replace(incident, like=self.memory.like(incident.findings, now))
                numbers.append(number)
        return numbers

    def _remembered(self, incident: Incident, at: datetime, *, is_new: bool) -> Incident:
        """The incident with the dismissed one that it is like; one that was raised already stays on the list while it is open."""
        like = self.memory.like(incident.findings, at) if is_new or incident.like is not None else None
        return incident if like == incident.like else replace(incident, like=like)

    def _same_cause(self, incident: Incident, finding: Finding) -> bool:
        """Whether most jobs of a finding are an incident's, one names what the other is about, or nodes fell ill at once."""
        if any(_points_at(finding, old) or _points_at(old, finding) or _explains(finding, old) for old in incident.findings):
            return True
        if incident.blame == Blame.STORAGE and _waits_for_data(incident, finding.decided_at) and is_without_culprit(finding):
            return True
        # Two nodes that have some jobs in common have a cause each, unless they fell ill together.
        node = finding.subject.kind == SubjectKind.NODE
        deciding = finding.jobs[: finding.deciding_jobs]
        shared = sum(job in self._jobs[incident.id] for job in deciding)
        other_node = node and any(old.subject.kind == SubjectKind.NODE for old in incident.findings)
        if deciding and shared >= _SAME_JOBS * len(deciding) and not other_node:
            return True
        together = (
            old.kind == finding.kind and abs(old.decided_at - finding.decided_at) <= _AT_ONCE for old in incident.findings
        )
        return node and any(together)

    def _open(self, finding: Finding) -> Incident:
        blame, reasons = blame_of([finding])
        number, self._next_id = self._next_id, self._next_id + 1
        return Incident(
            id=number,
            cluster=finding.cluster,
            severity=severity_of([finding]),
            state=IncidentState.OPEN,
            findings=(finding,),
            since=finding.since,
            until=finding.until,
            raised_at=finding.known_at,
            blame=blame,
            reasons=reasons,
            late=_is_late(finding),
        )

    def _send(self, incident: Incident, finding: Finding) -> Incident:
        """The incident with the page that is due after this finding: one per opening, unless something holds it back."""
        by_rule = severity_of(incident.findings) == Severity.PAGE
        is_page = by_rule
        if self.budget is not None:
            is_page = by_rule or self.budget.is_page(finding)
            self.budget.note((incident.id, len(incident.reopened_at)), finding, by_rule=by_rule)
        if not is_page or incident.is_sent:
            return incident
        if incident.like is not None:
            return replace(incident, held_back=DISMISSED)
        incident = replace(incident, severity=Severity.PAGE)
        reason = LATE if _is_late(finding) else self.silences.reason(incident, finding.known_at)
        if not reason and self.budget is not None and not self.budget.has_room(finding.known_at, by_rule=by_rule):
            reason = BUDGET
        if reason:
            return replace(incident, held_back=reason)
        if self.budget is not None:
            self.budget.sent(finding.known_at)
        return replace(incident, paged_at=(*incident.paged_at, finding.known_at), held_back="", late=False)

    def _resolve_quiet(self, now: datetime) -> list[int]:
        """Resolve what has been quiet for long enough, and forget the jobs of what cannot come back; the numbers of the first."""
        resolved: list[int] = []
        for number in list(self._jobs):
            incident = self._incidents[number]
            end = incident.until + quiet_time(incident)
            if incident.resolved_at is None and end <= now:
                self._incidents[number] = replace(incident, state=IncidentState.RESOLVED, resolved_at=end)
                resolved.append(number)
            if end + RETURNS_WITHIN <= now:
                del self._jobs[number]
        return resolved


def quiet_time(incident: Incident) -> timedelta:
    """Return how long nothing may be heard of an incident before it is resolved; longer for one that has come back."""
    doublings = min(len(incident.reopened_at), _MOST_DOUBLINGS)
    return max(_QUIET.get(kind, _USUALLY_QUIET) for kind in incident.kinds) * (1 << doublings)


def _jobs_of(incident: Incident) -> frozenset[str]:
    """The lost jobs of an incident. Unusual counts have whatever failed in their hour, most of it for reasons of its own."""
    return frozenset(job for finding in incident.findings if finding.kind != FindingKind.COUNTS_ODD for job in finding.jobs)


def _explains(finding: Finding, counts: Finding) -> bool:
    """Whether most of what failed in the time of unusual counts are jobs of another finding."""
    shared = len({*finding.jobs} & {*counts.jobs}) if counts.kind == FindingKind.COUNTS_ODD else 0
    return shared > 0 and shared >= _SAME_JOBS * len(counts.jobs)


def _is_late(finding: Finding) -> bool:
    return finding.known_at - finding.decided_at > _LATE


def _is_about(incident: Incident, finding: Finding) -> bool:
    """Whether an incident is about the subject of a finding; of a user's work, about the same application of his.

    A batch that fell to a sick node is part of that incident, but the next batch of its user is another matter; and much can
    happen to a whole cluster: what is over comes back only as what it was.
    """
    if finding.subject.kind == SubjectKind.CLUSTER and incident.resolved_at is not None and finding.kind not in incident.kinds:
        return False
    leading = min(incident.kinds, key=LEADING.index)
    about = [old.subjects for old in incident.findings if old.kind == leading]
    if finding.subject.kind == SubjectKind.USER:
        return finding.subjects in about
    return finding.subject in [subjects[0] for subjects in about]


def _waits_for_data(incident: Incident, at: datetime) -> bool:
    """Whether CPU traces of the incident showed nodes that wait for data, in the hour before a time."""
    odd = (old for old in incident.findings if old.kind == FindingKind.WINDOWS_ODD)
    return any(old.figure("waiting_nodes") and abs(at - old.until) <= _QUIET[FindingKind.WINDOWS_ODD] for old in odd)


def _points_at(counts: Finding, other: Finding) -> bool:
    """Whether unusual counts lie mostly at the place that another finding is about."""
    return counts.kind == FindingKind.COUNTS_ODD and other.subject in counts.subjects[1:]


def _is_same(old: Finding, new: Finding) -> bool:
    """Whether two findings are of one watcher, and of one kind about the same subjects of one cluster."""
    return (old.family, old.kind, old.subjects, old.cluster) == (new.family, new.kind, new.subjects, new.cluster)


def _joined(incident: Incident, finding: Finding) -> Incident:
    """The incident with one more finding; one that was resolved is open again."""
    reopened = incident.resolved_at is not None
    findings = _with(tuple(map(_without_pointers, incident.findings)) if reopened else incident.findings, finding)
    blame, reasons = blame_of(findings)
    severity = max(incident.severity, severity_of(findings), key=SEVERITIES.index)
    return replace(
        incident,
        findings=findings,
        since=min(incident.since, *(part.since for part in findings)),
        until=max(incident.until, finding.until),
        severity=severity,
        blame=blame,
        reasons=reasons,
        state=IncidentState.OPEN if reopened else incident.state,
        resolved_at=None,
        reopened_at=(*incident.reopened_at, finding.known_at) if reopened else incident.reopened_at,
    )


def _with(findings: tuple[Finding, ...], new: Finding) -> tuple[Finding, ...]:
    """The findings with a new one: joined with the one of its kind about the same subjects, or added."""
    same = next((place for place, old in enumerate(findings) if _is_same(old, new)), None)
    if same is None:
        return (*findings, new)
    old = findings[same]
    users = tuple(sorted({*old.users, *new.users}))
    fuller = old if _tells_more(old, new) else new
    joined = replace(
        new,
        since=_since(old, fuller),
        label=fuller.label,
        decided_at=min(old.decided_at, new.decided_at),
        known_at=min(old.known_at, new.known_at),
        until=max(old.until, new.until),
        score=max(old.score, new.score),
        evidence=(
            *(_summed(figure, old, len(users)) for figure in fuller.evidence if _stays(figure, old)),
            *_pointers(old, new),
        ),
        jobs=(*old.jobs, *new.jobs)[-_MOST_JOBS:],
        deciding_jobs=old.deciding_jobs,
        continues=old.continues,
        users=users,
    )
    return (*findings[:same], joined, *findings[same + 1 :])


def _tells_more(old: Finding, new: Finding) -> bool:
    """Whether figures stay as they were: of unusual counts those of the worst bucket are told, until there is a pause."""
    return new.kind == FindingKind.COUNTS_ODD and new.decided_at - old.until <= _USUALLY_QUIET and old.score >= new.score


def _since(old: Finding, new: Finding) -> datetime:
    """Since when a finding that was joined with another holds; where figures are of its own span, the last one is told."""
    if new.kind in (FindingKind.SILENCE, FindingKind.COUNTS_ODD):
        return new.since
    return old.since if new.continues else min(old.since, new.since)


def _without_pointers(finding: Finding) -> Finding:
    """A finding of what was over: what comes back may have another cause."""
    return replace(finding, evidence=tuple(figure for figure in finding.evidence if not figure.name.startswith(POINTS_AT)))


def _pointers(old: Finding, new: Finding) -> tuple[Evidence, ...]:
    """What speaks for a cause, of both together."""
    pointers = {figure.name: figure for figure in (*old.evidence, *new.evidence) if figure.name.startswith(POINTS_AT)}
    return tuple(replace(figure, value=old.figure(name) + new.figure(name)) for name, figure in pointers.items())


def _stays(figure: Evidence, old: Finding) -> bool:
    """Whether a figure is told of two findings together: not what only the second knows of how it was before both."""
    known = figure.name not in _OF_THE_BEGINNING or old.has_figure(figure.name)
    return known and not figure.name.startswith(POINTS_AT)


def _summed(figure: Evidence, old: Finding, users: int) -> Evidence:
    if figure.name == "users":
        return replace(figure, value=users)
    if figure.name in _AT_THE_WORST:
        return replace(figure, value=max(figure.value, old.figure(figure.name)))
    if figure.name in _OF_THE_BEGINNING:
        return replace(figure, value=old.figure(figure.name))
    return replace(figure, value=figure.value + old.figure(figure.name)) if figure.unit == Unit.JOBS else figure


def seen_by_user(incident: Incident, user: str) -> Incident | None:
    """Return what a user may see of an incident: the findings with jobs of his, without names of others; None: nothing."""
    own = tuple(
        replace(
            finding,
            subjects=tuple(s for s in finding.subjects if s.kind not in _OF_PEOPLE or s == Subject(SubjectKind.USER, user)),
            users=(user,),
            jobs=(),
        )
        for finding in incident.findings
        if user in finding.users and (finding.subject.kind != SubjectKind.USER or finding.subject.name == user)
    )
    return replace(incident, findings=own) if user and own else None
