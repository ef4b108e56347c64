"""What is wrong with the cluster: the incidents of a site, and one of them in full.

Site + Viewer + IncidentQuestion -> list_incidents -> IncidentList; + number -> show_incident -> IncidentAnswer. A user sees the
incidents of own jobs, without names, jobs and notes of others.

What verdicts have changed: how many alarms there were fewer since each of them.

Site + Viewer -> verdict_effects -> VerdictEffects. Of each incident that is not on the list it is asked whether it would be there
without one verdict, and without all of them. Nothing is estimated: incidents are kept whether they are listed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.similar import Likeness, nearest
from stormpetrel.alarms.titles import figure_label, figure_text, held_back_words, title
from stormpetrel.alarms.verdict_memory import DISMISSED, VerdictMemory
from stormpetrel.answers.alarms.deliveries import delivery_line
from stormpetrel.answers.alarms.replay import incident_line, visible
from stormpetrel.answers.alarms.timeline import act_line, timeline
from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentList, IncidentQuestion, VerdictEffect, VerdictEffects
from stormpetrel.answers.schemas.incident import (
    MOST_JOBS,
    IncidentAnswer,
    IncidentFigure,
    IncidentFinding,
    IncidentJob,
    LinkedSubject,
    SimilarIncident,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError
from stormpetrel.lifecycle.changes import explanation
from stormpetrel.records.findings import SubjectKind
from stormpetrel.records.incidents import SEVERITIES, IncidentState, Severity, Verdict, standing_verdict

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.findings import Evidence, Finding, Subject
    from stormpetrel.records.incidents import Incident, IncidentAct, JudgedIncident
    from stormpetrel.store.site import Site

MOST_EFFECTS: Final = 5  # verdicts that are named, the newest that changed something
_MOST_WEIGHED: Final = 50  # dismissals that are asked one by one, the newest
_NAMED_DAYS: Final = timedelta(days=6)  # so long ago a day is called by its name


def subject_link(subject: Subject, since: datetime, until: datetime, zone: str) -> str | None:
    """Return where a subject is shown as it was in a span of time: a node's windows, a user's jobs."""
    if subject.kind == SubjectKind.NODE:
        span = f"{int(since.timestamp())}..{int(until.timestamp()) + 1}"
        return f"/nodes?{urlencode({'node': subject.name, 'at': span})}"
    columns = {SubjectKind.USER: "user", SubjectKind.GROUP: "account", SubjectKind.PARTITION: "partition"}
    column = columns.get(subject.kind)
    return None if column is None else jobs_link(since, until, zone, **{column: subject.name})


def jobs_link(since: datetime, until: datetime, zone: str, **equal: str) -> str:
    """Return the table of the jobs that started in the days of a span, with these values in their columns."""
    first, last = (f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d}" for moment in (since, until))
    wanted = {name: f"equals:{value}" for name, value in equal.items()}
    query = {"view": "all", **wanted, "start_time": f"inRange:{first}..{last}", "sort": "-start_time"}
    return f"/jobs?{urlencode(query)}"


def job_link(ref: str) -> str:
    """Return where one job is shown."""
    return f"/jobs?{urlencode({'view': 'all', 'job': ref})}"


_AT_ONCE: Final = 50  # incidents read at a time
_RECENT_INCIDENTS: Final = 300  # past incidents among which similar ones are looked for, the newest
_WEEK: Final = timedelta(weeks=1)
_EXPLAINED_FOR: Final = timedelta(weeks=4)  # after it was raised, that what has changed then is looked for
_SHORTEST: Final = timedelta(days=1)  # over less no rate is told
_ABOUT_JOBS: Final = ("lost", "tried")  # figures that the table of jobs shows


def list_incidents(site: Site, viewer: Viewer, question: IncidentQuestion | None = None) -> IncidentList:
    """Return the incidents that this viewer may see, the newest first, and how many messages a week there were."""
    viewer.require(READ)
    wanted = question or IncidentQuestion()
    zone = site.settings.site.time_zone
    shown: list[Incident] = []
    for incident in _matching(site, viewer, wanted):
        shown.append(incident)
        if len(shown) == wanted.limit:
            break
    began = _counted_from(site, wanted.since)
    span = max(site.now() - began, timedelta(0)) if began else timedelta(0)
    pages = _pages(site, viewer, began) / (span / _WEEK) if began and span >= _SHORTEST else None
    return IncidentList(
        incidents=[_line(site, viewer, item, zone) for item in shown],
        pages_per_week=pages,
        weeks=span / _WEEK,
        quiet=sum(incident.is_quiet and visible(incident, viewer) is not None for incident in site.incidents.list(is_open=True)),
        verdicts=verdict_effects(site, viewer),
    )


def _line(site: Site, viewer: Viewer, incident: Incident, zone: str) -> IncidentLine:
    """An incident, for administrators with what has changed where that explains it: it may name others."""
    line = incident_line(incident, zone)
    if not viewer.is_admin:
        return line
    change = explanation(site, incident, oldest=site.now() - _EXPLAINED_FOR)
    return line.model_copy(update={"change": change}) if change else line


def show_incident(site: Site, viewer: Viewer, number: int) -> IncidentAnswer:
    """Return one incident in full; NotThereError where there is none, or none that this viewer may see, in the same words."""
    viewer.require(READ)
    incident, acts = _seen(site, viewer, number)
    zone = site.settings.site.time_zone
    jobs = list(dict.fromkeys(ref for finding in incident.findings for ref in reversed(finding.jobs)))
    return IncidentAnswer(
        **dict(_line(site, viewer, incident, zone)),
        cluster=incident.cluster,
        findings=[_finding(finding, viewer, zone) for finding in incident.findings],
        reasons=[_figure(figure) for figure in incident.reasons],
        timeline=timeline(incident, acts, names=viewer.is_admin),
        acts=[act_line(act, names=viewer.is_admin) for act in acts],
        jobs=[IncidentJob(ref=ref, job=ref.partition("-")[0], link=job_link(ref)) for ref in jobs[:MOST_JOBS]],
        jobs_total=len(jobs),
        similar=[_similar(site, viewer, likeness) for likeness in _nearest(site, viewer, incident)],
        held_back=incident.held_back,
        held_back_words=_held_back_text(site, incident, names=viewer.is_admin),
        deliveries=[delivery_line(message) for message in site.messages.list(incident=number)] if viewer.is_admin else [],
    )


def _held_back_text(site: Site, incident: Incident, *, names: bool) -> str:
    """Why an incident was not sent, as a sentence; of what is like a dismissed one, who said so and when."""
    if incident.like is None:
        return held_back_words(incident.held_back)
    act = standing_verdict(site.incidents.acts([incident.like])[incident.like])
    if act is None:
        return f"It was like incident {incident.like}, which was dismissed then."
    who = f" by {act.user}" if names and act.user else ""
    return f"It is like incident {incident.like}, dismissed{who} {day_text(act.at, site.now(), site.settings.site.time_zone)}."


def _seen(site: Site, viewer: Viewer, number: int) -> tuple[Incident, Sequence[IncidentAct]]:
    """An incident as this viewer may see it, with what people did to it; NotThereError where that is nothing."""
    try:
        incident, acts = site.incidents.get(number), site.incidents.acts([number])[number]
    except NotThereError:
        past = site.incident_history.get(number) if number <= site.incidents.pruned().number else None
        if past is None:
            raise
        incident, acts = past
    shown = visible(with_acts(incident, acts), viewer)
    if shown is None:
        raise NotThereError(f"There is no incident {number}.", hint="List them: stormpetrel alarms list")
    return shown, acts


def _matching(site: Site, viewer: Viewer, question: IncidentQuestion) -> Iterator[Incident]:
    """The incidents that are requested, the newest first; those that the state store has let go of among them."""
    loud = None if question.severity is None else SEVERITIES[SEVERITIES.index(Severity(question.severity)) :]
    kept = _kept(site, question, loud)
    highest_gone = 0 if question.state == "open" else site.incidents.pruned().number
    every: Iterator[tuple[Incident, Sequence[IncidentAct]]] = kept
    for incident, acts in kept:
        if incident.id <= highest_gone:
            every = chain([(incident, acts)], kept)
            break
        yield from _shown(incident, acts, viewer, question)
    if highest_gone:
        past = site.incident_history.list(resolved_after=question.since, severities=loud, up_to=highest_gone)
        every = merge(every, past, key=lambda pair: -pair[0].id)
    last_id = 0
    for incident, acts in every:
        if incident.id != last_id:  # one may be in both for a moment
            yield from _shown(incident, acts, viewer, question)
        last_id = incident.id


def _shown(incident: Incident, acts: Sequence[IncidentAct], viewer: Viewer, question: IncidentQuestion) -> Iterator[Incident]:
    shown = visible(with_acts(incident, acts), viewer)
    if shown is not None and _is_requested(shown, question):
        yield shown


def _kept(
    site: Site, question: IncidentQuestion, loud: Sequence[Severity] | None
) -> Iterator[tuple[Incident, Sequence[IncidentAct]]]:
    """The incidents of the state store with what people did to them, the newest first, read piece by piece."""
    before: int | None = None
    while True:
        piece = site.incidents.list(
            is_open=True if question.state == "open" else None,
            resolved_after=question.since,
            severities=loud,
            before=before,
            limit=_AT_ONCE,
        )
        acts = site.incidents.acts(incident.id for incident in piece)
        yield from ((incident, acts[incident.id]) for incident in piece)
        if len(piece) < _AT_ONCE:
            return
        before = piece[-1].id


def _is_requested(incident: Incident, question: IncidentQuestion) -> bool:
    """Whether an incident fits what the store does not know: what people said, when it was last heard of, who saw it."""
    if question.state == "open" and (incident.state == IncidentState.RESOLVED or incident.is_quiet):
        return False
    if question.state == "quiet" and not incident.is_quiet:
        return False
    if question.since is not None and incident.until < question.since:
        return False
    return question.family is None or question.family in incident.families


def _counted_from(site: Site, since: datetime | None) -> datetime | None:
    """From when on messages are counted: since the watch began or the first incident, but not before `since`.

    Nor before what is still in the state store: what is older is in the table of incidents only.
    """
    began = min(filter(None, (site.incidents.first_raised(), site.predictions.began())), default=None)
    counted = site.incidents.pruned().resolved_before or began
    return counted if counted is None or since is None else max(counted, since)


def _pages(site: Site, viewer: Viewer, began: datetime) -> int:
    """How many messages were sent at once about what this viewer may see, returns counted."""
    loud = site.incidents.list(resolved_after=began, severities=[Severity.PAGE])
    shown = [incident for incident in loud if visible(incident, viewer) is not None]
    return sum(moment >= began for incident in shown for moment in incident.paged_at)


def _finding(finding: Finding, viewer: Viewer, zone: str) -> IncidentFinding:
    subjects = [
        LinkedSubject(kind=subject.kind.value, name=subject.name, link=subject_link(subject, finding.since, finding.until, zone))
        for subject in finding.subjects
    ]
    return IncidentFinding(
        kind=finding.kind.value,
        family=finding.family,
        rule=finding.rule,
        subjects=subjects,
        since=finding.since,
        until=finding.until,
        decided_at=finding.decided_at,
        known_at=finding.known_at,
        score=finding.score,
        threshold=finding.threshold,
        evidence=[_figure(figure, _jobs_of(finding, figure, viewer, zone)) for figure in finding.evidence],
    )


def _jobs_of(finding: Finding, figure: Evidence, viewer: Viewer, zone: str) -> str | None:
    """Where the jobs of a figure are shown: those of the user whom it is about, or who asks; else all of that time."""
    if figure.name not in _ABOUT_JOBS:
        return None
    user = finding.subject.name if finding.subject.kind == SubjectKind.USER else "" if viewer.is_admin else viewer.user
    return jobs_link(finding.since, finding.until, zone, **({"user": user} if user else {}))


def _figure(figure: Evidence, link: str | None = None) -> IncidentFigure:
    return IncidentFigure(
        name=figure.name,
        value=figure.value,
        unit=figure.unit.value,
        label=figure_label(figure),
        text=figure_text(figure),
        link=link,
    )


def _nearest(site: Site, viewer: Viewer, incident: Incident) -> list[Likeness]:
    past = site.incidents.list(before=incident.id, limit=_RECENT_INCIDENTS)
    return nearest(incident, [shown for candidate in past if (shown := visible(candidate, viewer)) is not None])


def _similar(site: Site, viewer: Viewer, likeness: Likeness) -> SimilarIncident:
    number = likeness.incident.id
    acts = site.incidents.acts([number])[number]
    then = with_acts(likeness.incident, acts)
    kinds = [kind.value.replace("_", " ") for kind in likeness.kinds]
    same = [*kinds, *(f"{subject.kind.value.replace('_', ' ')} {subject.name}" for subject in likeness.subjects)]
    return SimilarIncident(
        id=number,
        title=title(then, site.settings.site.time_zone),
        since=then.since,
        distance=likeness.distance,
        same=[*same, f"suspected: {then.blame}"] if likeness.same_blame else same,
        verdict=None if then.verdict is None else then.verdict.value,
        acts=[act_line(act, names=viewer.is_admin) for act in acts],
    )


def verdict_effects(site: Site, viewer: Viewer) -> VerdictEffects:
    """Return what the verdicts that stand have changed so far; administrators only, for others it is empty."""
    viewer.require(READ)
    judged = site.incidents.judged() if viewer.is_admin else []
    if not judged:
        return VerdictEffects()
    first = min(judgement.act.at for judgement in judged)
    quiet = [incident for incident in site.incidents.list(resolved_after=first) if incident.like is not None]
    memory, zone = VerdictMemory(judged), site.settings.site.time_zone
    dismissed = [judgement for judgement in judged if judgement.verdict == Verdict.DISMISSED][-_MOST_WEIGHED:]
    effects = [_effect(judgement, _due_to(judgement, quiet, memory), site.now(), zone) for judgement in dismissed]
    telling = sorted((effect for effect in effects if effect.fewer_alarms), key=lambda effect: effect.at, reverse=True)
    return VerdictEffects(
        since=first,
        confirmed=sum(judgement.verdict == Verdict.CONFIRMED for judgement in judged),
        dismissed=sum(judgement.verdict == Verdict.DISMISSED for judgement in judged),
        fewer_alarms=sum(incident.is_quiet for incident in quiet),
        fewer_pages=sum(incident.held_back == DISMISSED for incident in quiet),
        words=_total_text([incident for incident in quiet if incident.is_quiet], first, site.now(), zone),
        verdicts=telling[:MOST_EFFECTS],
    )


def day_text(moment: datetime, now: datetime, zone: str) -> str:
    """Return a day as people call it: today, yesterday, on Tuesday, or on its date."""
    day, today = (at.astimezone(ZoneInfo(zone)).date() for at in (moment, now))
    if day == today:
        return "today"
    if day == today - timedelta(days=1):
        return "yesterday"
    return f"on {day:%A}" if timedelta(0) < today - day <= _NAMED_DAYS else f"on {day:%Y-%m-%d}"


def _due_to(judged: JudgedIncident, quiet: Sequence[Incident], memory: VerdictMemory) -> list[Incident]:
    """The incidents that are not on the list and would be there without one verdict, which was given before them."""
    later = [incident for incident in quiet if incident.is_quiet and judged.act.at <= incident.raised_at]
    others = memory.without(judged.incident.id) if later else memory
    return [incident for incident in later if others.like(incident.findings, incident.raised_at) is None]


def _effect(judged: JudgedIncident, fewer: Sequence[Incident], now: datetime, zone: str) -> VerdictEffect:
    count = len(fewer)
    word = f"{judged.act.user}'s" if judged.act.user else "the"
    when = day_text(judged.act.at, now, zone).removeprefix("on ")
    return VerdictEffect(
        incident=judged.incident.id,
        verdict=judged.verdict.value,
        user=judged.act.user,
        at=judged.act.at,
        fewer_alarms=count,
        fewer_pages=sum(incident.held_back == DISMISSED for incident in fewer),
        incidents=[incident.id for incident in fewer],
        words=f"since {word} word of {when} on incident {judged.incident.id}: {_alarms(count)}",
    )


def _total_text(quiet: Sequence[Incident], first: datetime, now: datetime, zone: str) -> str:
    return f"since the first verdict, {day_text(first, now, zone)}: {_alarms(len(quiet))}" if quiet else ""


def _alarms(count: int) -> str:
    return f"{count:,} fewer {'alarm' if count == 1 else 'alarms'}"
