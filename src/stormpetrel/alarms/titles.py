"""One line that says it all of an incident; made here and nowhere else.

Incident, time zone -> title -> "n017 fails every job since 14:00: 46 of 46, others 2 %; suspected: node".

Figures and reasons of incidents in words; sentences about a whole incident are made in `titles.py`.

Evidence -> figure_label, figure_text -> "jobs lost", "46"; held back -> held_back_words.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.alarms.acts import LATE, MAINTENANCE, MUTED
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.records.incidents import LEADING, Blame, Incident

_MOST_NAMES: Final = 2
_A_DAY: Final = timedelta(days=1)
_PLACES: Final = {  # of counted events, as `event_rules.py` makes them subjects
    SubjectKind.NODE: "on node",
    SubjectKind.SUBMIT_HOST: "on submit host",
    SubjectKind.PARTITION: "at site",
    SubjectKind.GROUP: "of group",
    SubjectKind.USER: "of group",  # of incidents that were kept before groups were told from users
}
_LABELS: Final = {
    "lost": "jobs lost",
    "tried": "jobs tried",
    "users": "users whose jobs were lost",
    "usual": "usual before",
    "deciding_lost": "failed among the jobs that decided",
    "deciding_tried": "jobs that decided",
    "nodes": "nodes involved",
    "on_one_node": "share of the lost jobs on one node",
    "neighbours": "jobs of others on the same nodes",
    "neighbours_failed": "of these failed",
    "losing_nodes": "nodes that lost nearly all jobs of several users in the hour before",
    "points_at_user": "events that point at a user, in nats",
    "points_at_node": "events that point at a node, in nats",
    "points_at_storage": "events that point at storage, in nats",
    "points_at_scheduler": "events that point at the scheduler, in nats",
    "flagged": "CPU windows that are unusual",
    "windows": "CPU windows",
    "waiting": "share of the unusual CPU windows that wait for data",
    "waiting_nodes": "nodes whose CPU traces wait for data at once",
    "waiting_nodes_of_one_job": "of these nodes on which one and the same job waits",
    "watched_nodes": "nodes whose CPU traces are known",
    "late_s": "seconds between the end of a job and its record, by our clock",
    "count": "events counted",
    "expected": "expected",
    "share": "of these at the place named",
    "inside": "windows in the known region",
}
_HELD_BACK: Final = {
    LATE: "It was known too long after the fact to wake anybody.",
    MUTED: "What it is about was muted.",
    MAINTENANCE: "What it is about was under maintenance.",
}


def title(incident: Incident, zone: str, now: datetime | None = None) -> str:
    """Return the line of an incident, times in this zone: with the date, unless `now` says that it began within 24 hours."""
    kind = min(incident.kinds, key=LEADING.index)
    findings = _of_one_watcher([finding for finding in incident.findings if finding.kind == kind])
    if kind == FindingKind.COUNTS_ODD:  # each has figures of its own span: they do not add up
        newest = max(finding.until for finding in findings)
        findings = [max((finding for finding in findings if newest - finding.until <= _A_DAY), key=lambda finding: finding.score)]
    since = format_since(min(finding.since for finding in findings), zone, now)
    end = "cause unclear" if incident.blame == Blame.UNCLEAR else f"suspected: {incident.blame}"
    return f"{_words(kind, findings, since)}; {end}"


def _of_one_watcher(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The findings of the watcher that saw most subjects, of several the first: two that see the same must not be added up."""
    families = list(dict.fromkeys(finding.family for finding in findings))
    by_family = {family: [finding for finding in findings if finding.family == family] for family in families}
    return max(by_family.values(), key=len)


def format_since(since: datetime, zone: str, now: datetime | None = None) -> str:
    """Return a time as people say it: the hour alone where it is of the 24 hours before `now`, else the date as well.

    Lists give no `now`: their lines are read side by side, and again on another day.
    """
    local = since.astimezone(ZoneInfo(zone))
    recent = now is not None and timedelta(0) <= now - since < _A_DAY
    return f"{local:%H:%M}" if recent else f"{local:%Y-%m-%d %H:%M}"


def _words(kind: FindingKind, findings: Sequence[Finding], since: str) -> str:
    first = findings[0]
    lost, tried = (int(sum(finding.figure(name) for finding in findings)) for name in ("lost", "tried"))
    usual = first.figure("usual")
    many = len(findings) > 1
    if kind == FindingKind.NODE_EATS_JOBS:
        share = "every job" if lost == tried else "nearly every job" if lost >= 0.8 * tried else "many jobs"
        verb = "fail" if many else "fails"
        others = f", others {_percent(usual)}" if first.has_figure("usual") else ""  # none ran, or counts of events do not tell
        return f"{_names(findings)} {verb} {share} since {since}: {lost:,} of {tried:,}{others}"
    if kind == FindingKind.NODE_DOWN:
        return f"{_names(findings)} went down at {since}: {lost:,} {'job' if lost == 1 else 'jobs'} lost"
    if kind == FindingKind.BATCH_FAILS:
        before = f"before {_percent(usual)}" if first.has_figure("usual") else "hardly any such jobs before"
        return f"{_batch(findings)} since {since}: {_failed(findings)}, {before}"
    if kind in (FindingKind.TIMEOUT_WAVE, FindingKind.OOM_WAVE):
        what = "run out of time" if kind == FindingKind.TIMEOUT_WAVE else "run out of memory"
        users = int(max(finding.figure("users") for finding in findings))
        return f"jobs of {users:,} users {what} since {since}: {lost:,} jobs, usual in 3 hours: {usual:.2g} users"
    return _event_phrases(kind, findings, since)


def _event_phrases(kind: FindingKind, findings: Sequence[Finding], since: str) -> str:
    """What was counted, or not heard of, rather than seen in the records of jobs."""
    first, names = findings[0], _names(findings)
    count, expected = int(sum(finding.figure("count") for finding in findings)), first.figure("expected")
    if kind == FindingKind.SILENCE:
        what = "the cluster" if first.subject.kind == SubjectKind.CLUSTER else names
        return f"nothing was heard of {what} since {since}, usual are {expected:,.0f} events in that time"
    if kind == FindingKind.SOURCE_GONE:
        return f"{names} cannot be read since {since}: what it would tell is not known"
    if kind == FindingKind.CLOCK_AHEAD:
        late_s = max(finding.figure("late_s") for finding in findings)
        return f"{names} tells of ends {late_s:,.0f} s late since {since}, or our clock is ahead: what it tells is judged later"
    if kind in (FindingKind.HOLD_WAVE, FindingKind.SHADOW_WAVE):
        what = "jobs are held" if kind == FindingKind.HOLD_WAVE else "shadow exceptions"
        return f"{what} on {names} since {since}: {count:,}, usual {expected:,.2g}"
    if kind == FindingKind.WINDOWS_KNOWN:
        inside, windows = (int(sum(finding.figure(name) for finding in findings)) for name in ("inside", "windows"))
        regions = _list(list(dict.fromkeys(finding.label for finding in findings)))
        return f"CPU traces of {names} look like {regions} since {since}: {inside:,} of {windows:,} windows"
    if kind == FindingKind.WINDOWS_ODD and first.label:
        return f"{_nodes_by_label(findings)} since {since}"
    if kind == FindingKind.WINDOWS_ODD:
        flagged, windows = (int(sum(finding.figure(name) for finding in findings)) for name in ("flagged", "windows"))
        usual = _percent(first.figure("usual"))
        return f"CPU traces of {names} are unusual since {since}: {flagged:,} of {windows:,} windows, usual {usual}"
    places = list(dict.fromkeys(_place(subject) for finding in findings for subject in finding.subjects[1:]))
    where = f", mostly {_list(places)}" if places else ""
    return f"events of jobs are unusual since {since}: {count:,} {first.label}, expected {expected:,.0f}{where}"


def _nodes_by_label(findings: Sequence[Finding]) -> str:
    """What the threads of nodes do: nodes of which the same is said together, and of more than two sentences the first two."""
    of_node: dict[str, Finding] = {}
    by_label: dict[str, list[Finding]] = {}
    for finding in findings:
        of_node.setdefault(finding.subject.name, finding)
    for finding in of_node.values():
        by_label.setdefault(finding.label, []).append(finding)
    groups = list(by_label.values())
    parts = [f"{_names(group)}: {group[0].label}" for group in groups[:2]]
    if more := sum(len(group) for group in groups[2:]):
        parts.append(f"{more:,} more {'node' if more == 1 else 'nodes'} unusual")
    return "; ".join(parts)


def _place(subject: Subject) -> str:
    """Where events were counted, with what it is: a number alone may be a group, a node or a site."""
    return f"{_PLACES.get(subject.kind, 'on')} {subject.name}"


def _failed(findings: Sequence[Finding]) -> str:
    """How many of a batch failed: those counted, or what decided where that is more (the rest is counted elsewhere)."""
    lost = tried = 0.0
    of_last = False
    for finding in findings:
        earlier = finding.figure("deciding_tried") > finding.figure("tried")
        lost += finding.figure("deciding_lost" if earlier else "lost")
        tried += finding.figure("deciding_tried" if earlier else "tried")
        of_last = of_last or earlier
    return f"{lost:,.0f} of {'the last ' if of_last else ''}{tried:,.0f}"


def _batch(findings: Sequence[Finding]) -> str:
    """Whose jobs fail as one."""
    by_user = [finding for finding in findings if finding.subject.kind == SubjectKind.USER]
    if not by_user:
        users = int(findings[0].figure("users"))
        return f"{_names(findings)} fails for {users:,} {'user' if users == 1 else 'users'}"
    applications = list(dict.fromkeys(subject.name for finding in by_user for subject in finding.subjects[1:]))
    what = f"{_list(applications)} jobs" if applications else "jobs"
    return f"{what} of {_names(by_user)} fail"


def _names(findings: Sequence[Finding]) -> str:
    return _list(list(dict.fromkeys(finding.subject.name for finding in findings)))


def _list(names: list[str]) -> str:
    shown, more = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def figure_label(figure: Evidence) -> str:
    """Return what a figure is; its own name where there are no words for it."""
    return _LABELS.get(figure.name, figure.name.replace("_", " "))


def figure_text(figure: Evidence) -> str:
    """Return the value as people read it: a share in per cent, counts with their thousands told apart."""
    if figure.unit == Unit.SHARE:
        return f"{100 * figure.value:.0f} %"
    if figure.value == int(figure.value):
        return f"{figure.value:,.0f}"
    return f"{figure.value:,.3g}"


def held_back_words(reason: str) -> str:
    """Return why an incident was not sent, as a sentence; empty where nothing holds it back."""
    return _HELD_BACK.get(reason, f"It was held back: {reason}." if reason else "")
