"""What people do about incidents: acknowledge, confirm, dismiss, note; mute a subject.

Site + Viewer + number, kind, note -> act_on_incident -> ActReceipt; + NewMute -> mute_subject -> MuteReceipt; unmute, list_mutes.
Administrators only, also for notes; each act stands in the audit trail.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from stormpetrel.alarms.acts import MUTED, Silences, with_acts
from stormpetrel.answers.alarms.timeline import act_line
from stormpetrel.answers.schemas.incident import MOST_MUTE_HOURS, ActReceipt, MuteLine, MuteReceipt, Mutes, NewMute
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.trace_regions import name_incident, unname_incident
from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import VERDICTS, ActKind, Incident, IncidentAct, IncidentState, Mute, standing_verdict
from stormpetrel.records.model_families import ModelFamily

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

TRACES: Final = ModelFamily.TRACES.value  # the family whose windows are kept
_RECENT_INCIDENTS: Final = 200  # incidents whose clusters are known, the newest
_MUTES: Final = "See what is muted: stormpetrel alarms mutes"


def act_on_incident(site: Site, viewer: Viewer, number: int, kind: str, note: str = "") -> ActReceipt:
    """Keep what a person did to an incident; done again, it is kept again: each says who and when."""
    viewer.require(MANAGE)
    act = ActKind(kind)
    if act == ActKind.NOTE and not note.strip():
        raise UsageError("The note is empty.", hint='Say something: stormpetrel alarms note 53 "disk replaced"')
    user = signed(site, viewer)
    if act == ActKind.WITHDRAW and standing_verdict(site.incidents.acts([number])[number]) is None:
        site.incidents.get(number)  # an incident that is not there is told as such
        raise NotThereError(f"Incident {number} has no verdict to withdraw.", hint=f"See it: stormpetrel alarms show {number}")
    kept = site.incidents.add_act(IncidentAct(number, site.now(), user, act, note))
    site.audit.record(user, f"incident {act.value}", {"incident": number})
    incident = site.incidents.get(number)
    after = with_acts(incident, site.incidents.acts([number])[number])
    return ActReceipt(
        incident=number,
        state=after.state.value,
        verdict=None if after.verdict is None else after.verdict.value,
        act=act_line(kept, names=True),
        regions=_regions(site, incident, act, note, user),
    )


def _regions(site: Site, incident: Incident, act: ActKind, note: str, user: str) -> list[str]:
    """What a verdict on an incident of CPU traces does to the known regions: a confirmation names, any other takes back."""
    if TRACES not in incident.families or act not in (*VERDICTS, ActKind.WITHDRAW):
        return []

    is_named = act == ActKind.CONFIRM
    regions = name_incident(site, incident, note, user=user) if is_named else unname_incident(site, incident.id)
    return sorted({region.name for region in regions})


def mute_subject(site: Site, viewer: Viewer, mute: NewMute) -> MuteReceipt:
    """Send nothing about a subject for a time; a mute of the same subject is replaced. Incidents are listed all the same."""
    viewer.require(MANAGE)
    now, user = site.now(), signed(site, viewer)
    subject = Subject(SubjectKind(mute.kind), mute.name.strip())
    kept = site.incidents.mute(Mute(0, _cluster(site, mute.cluster), subject, now, _end(mute, now), user, mute.reason))
    about = {"subject": _name(kept.subject), "cluster": kept.cluster, "until": kept.until.isoformat(timespec="seconds")}
    site.audit.record(user, "subject muted", about)
    return MuteReceipt(mute=_line(kept), holds_back=_held_back(site, kept, now))


def unmute(site: Site, viewer: Viewer, mute: int) -> MuteReceipt:
    """End a mute by its id; NotThereError where there is none, or it has ended."""
    viewer.require(MANAGE)
    match = next((candidate for candidate in site.incidents.mutes(after=site.now()) if candidate.id == mute), None)
    if match is None:
        raise NotThereError(f"There is no mute {mute}, or it has ended.", hint=_MUTES)
    return _ended(site, viewer, match)


def unmute_subject(site: Site, viewer: Viewer, kind: str, name: str, cluster: str | None = None) -> MuteReceipt:
    """End the mute of a subject; NotThereError where it is not muted."""
    viewer.require(MANAGE)
    subject = Subject(SubjectKind(kind), name.strip())
    matches = [
        mute for mute in site.incidents.mutes(after=site.now()) if mute.subject == subject and cluster in (None, mute.cluster)
    ]
    if not matches:
        raise NotThereError(f"{_name(subject)!r} is not muted.", hint=_MUTES)
    if len(matches) > 1:
        clusters = ", ".join(sorted(mute.cluster for mute in matches))
        raise UsageError(f"{_name(subject)!r} is muted in several clusters: {clusters}.", hint="Say in which one: --cluster NAME")
    return _ended(site, viewer, matches[0])


def list_mutes(site: Site, viewer: Viewer) -> Mutes:
    """Return what is muted now, the oldest first; administrators only: reasons and subjects name users."""
    viewer.require(READ)
    viewer.require_admin()
    return Mutes(mutes=[_line(mute) for mute in site.incidents.mutes(after=site.now())])


def _ended(site: Site, viewer: Viewer, mute: Mute) -> MuteReceipt:
    now, user = site.now(), signed(site, viewer)
    # The store ends what is muted by a mute that has no length.
    site.incidents.mute(Mute(0, mute.cluster, mute.subject, now, now, user))
    site.audit.record(user, "subject unmuted", {"subject": _name(mute.subject), "cluster": mute.cluster})
    ended = Mute(mute.id, mute.cluster, mute.subject, mute.since, now, mute.user, mute.reason)
    return MuteReceipt(mute=_line(ended))


def _end(mute: NewMute, now: datetime) -> datetime:
    if (mute.until is None) == (mute.hours is None):
        raise UsageError("Muted until when?", hint="Name either `until` or `hours`; on the command line --until or --for.")
    end = now + timedelta(hours=mute.hours) if mute.hours is not None else mute.until
    assert end is not None
    if end <= now:
        raise UsageError(f"{end.astimezone(UTC):%Y-%m-%d %H:%M} UTC is over.", hint="Name a later time.")
    if end - now > timedelta(hours=MOST_MUTE_HOURS):
        raise UsageError(
            "Nothing is muted for more than a year.", hint="Name an earlier time: what is muted for ever is forgotten."
        )
    return end


def _cluster(site: Site, named: str | None) -> str:
    """The cluster that is meant: the one that was named, or the only one that there is."""
    known = _clusters(site)
    if named is not None:
        if known and named not in known:
            raise UsageError(f"There is no cluster {named!r}.", hint=f"Known: {', '.join(known)}.")
        return named
    if len(known) > 1:
        raise UsageError(f"The site has several clusters: {', '.join(known)}.", hint="Say in which one: --cluster NAME")
    return known[0] if known else site.settings.site.cluster or "cluster"


def _clusters(site: Site) -> list[str]:
    of_jobs = site.jobs.table.scan().select("cluster").unique().collect()["cluster"].drop_nulls().to_list()
    return sorted({*of_jobs, *(incident.cluster for incident in site.incidents.list(limit=_RECENT_INCIDENTS))})


def _held_back(site: Site, mute: Mute, now: datetime) -> list[int]:
    """The open incidents about which nothing is sent because of this mute and those before it."""
    silences = Silences(tuple(site.incidents.mutes(after=now)))
    lasting = site.incidents.list(is_open=True)
    acts = site.incidents.acts(incident.id for incident in lasting)
    about = [candidate for candidate in lasting if candidate.cluster == mute.cluster and mute.subject in candidate.subjects]
    shown = [with_acts(incident, acts[incident.id]) for incident in about]
    return [
        candidate.id
        for candidate in shown
        if candidate.state != IncidentState.RESOLVED and silences.reason(candidate, now) == MUTED
    ]


def _line(mute: Mute) -> MuteLine:
    return MuteLine(
        id=mute.id,
        cluster=mute.cluster,
        kind=mute.subject.kind.value,  # type: ignore[arg-type]  # a job is never muted
        name=mute.subject.name,
        since=mute.since,
        until=mute.until,
        user=mute.user,
        reason=mute.reason,
    )


def _name(subject: Subject) -> str:
    """A subject as the command line writes it."""
    return f"{subject.kind.value}:{subject.name}"


def signed(site: Site, viewer: Viewer) -> str:
    """The name for the audit trail; of who runs the command where nobody had to log in."""
    viewer.require(MANAGE)
    return viewer.user or site.user_in_tables(operator())
