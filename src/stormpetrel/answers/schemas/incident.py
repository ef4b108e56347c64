"""One incident in full, and what people do to incidents: acts, mutes, and their receipts.

Messages about incidents and what became of them, as `stormpetrel notify … --json` prints them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentSubject
from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request
from stormpetrel.answers.schemas.jobs import Moment

MOST_JOBS: Final = 100  # of an incident that one answer names
LONGEST_NOTE: Final = 4000
LONGEST_NAME: Final = 300
MOST_MUTE_HOURS: Final = 8784.0  # a year: what is muted for ever is forgotten
_LINK: Final = "a path of the dashboard; null where there is no page for it"
Act = Literal["acknowledge", "confirm", "dismiss", "withdraw", "note"]
MutedKind = Literal["node", "user", "application", "partition", "submit_host", "cluster"]


class IncidentFigure(Answer):
    """One figure that a finding or a suspicion rests on."""

    name: str = Field(examples=["lost"])
    value: float | None
    unit: str = Field(description="what it counts: jobs, share (0 to 1), count", examples=["jobs"])
    label: str = Field(description="what it is, in words", examples=["jobs lost"])
    text: str = Field(description="the value as people read it", examples=["46"])
    link: str | None = Field(default=None, description=_LINK)


class LinkedSubject(IncidentSubject):
    """Something or somebody that a finding is about, and where to look."""

    link: str | None = Field(default=None, description=_LINK, examples=["/nodes?node=n017"])


class IncidentFinding(Answer):
    """What one watcher saw, in figures."""

    kind: str = Field(examples=["node_eats_jobs"])
    family: str = Field(examples=["jobs"])
    rule: str = Field(description="name and version of the rule, or of the model", examples=["node_eats_jobs/1"])
    subjects: list[LinkedSubject] = Field(description="what it is about, and then what is involved")
    since: IsoTime
    until: IsoTime
    decided_at: IsoTime = Field(description="the time of the record that decided it")
    known_at: IsoTime = Field(description="when the watch looked at that record")
    score: float | None = Field(description="higher is more abnormal")
    threshold: float | None
    evidence: list[IncidentFigure]


class IncidentMoment(Answer):
    """Something that happened to an incident."""

    time: IsoTime
    what: Literal[
        "began", "raised", "identified", "sent", "acknowledge", "confirm", "dismiss", "withdraw", "note", "reopened", "resolved"
    ]
    words: str


class IncidentActLine(Answer):
    """What one person did to an incident."""

    time: IsoTime
    kind: Act
    user: str = Field(description="who did it; empty where that is not for you to see")
    note: str = Field(description="empty where there is none, or it is not for you to see")


class IncidentJob(Answer):
    """A job that was lost in an incident."""

    ref: str = Field(description="what names the job in links")
    job: str = Field(description="its id as people write it", examples=["12345_7"])
    link: str | None = Field(default=None, description=_LINK)


class SimilarIncident(Answer):
    """An earlier incident that is like this one, and what was done then."""

    id: int
    title: str
    since: IsoTime
    distance: float = Field(description="0: same kind, subject and suspect; 2.5: nothing in common")
    same: list[str] = Field(description="what they have in common, in words", examples=[["kind", "node n017"]])
    verdict: Literal["confirmed", "dismissed"] | None
    acts: list[IncidentActLine] = Field(description="what was done then, the oldest first")


class DeliveryLine(Answer):
    """A message to one receiver, and what became of it."""

    key: str = Field(description="its stable name", examples=["incident-53-0-firing-ops"])
    incident: int = Field(description="0 for a test")
    route: str = Field(description="its name in site.toml")
    kind: Literal["firing", "resolved", "test"]
    state: Literal["waiting", "delivered", "given_up"]
    created: IsoTime
    delivered: IsoTime | None = None
    tries: int = 0
    next_try: IsoTime | None = Field(default=None, description="not before this time; null: as soon as the route allows it")
    problem: str = Field(default="", description="why the last attempt failed")


class IncidentAnswer(IncidentLine):
    """One incident in full. A user sees what concerns own jobs: no names, jobs or notes of others, and no deliveries."""

    cluster: str = Field(default="", description="where it is")
    findings: list[IncidentFinding] = Field(default=[], description="what was seen, the first first")
    reasons: list[IncidentFigure] = Field(default=[], description="figures that the suspicion (`blame`) rests on")
    timeline: list[IncidentMoment] = Field(default=[], description="the oldest first")
    acts: list[IncidentActLine] = Field(default=[], description="what people did, the oldest first")
    jobs: list[IncidentJob] = Field(default=[], description=f"lost jobs, the newest first, at most {MOST_JOBS}")
    jobs_total: int = Field(default=0, description="how many lost jobs are remembered")
    similar: list[SimilarIncident] = Field(default=[], description="the nearest earlier incidents, the nearest first")
    held_back: str = Field(
        default="", description="why it was not sent: late, muted, maintenance, budget, dismissed; empty: it was, or need not be"
    )
    held_back_words: str = Field(default="", description="the same as a sentence")
    deliveries: list[DeliveryLine] = Field(default=[], description="messages about it, the newest first")


class NewAct(Request):
    """What you do to an incident."""

    kind: Act = Field(
        description="`acknowledge`: I look after it; `confirm`: it is one; `dismiss`: it is none; `withdraw`: the verdict that "
        "stands is taken back; `note`: this only"
    )
    note: str = Field(default="", max_length=LONGEST_NOTE, description="why, or what was done; a `note` needs it")


class ActReceipt(Answer):
    """What was kept, and the incident as it stands now."""

    incident: int = Field(description="its number")
    state: Literal["open", "acknowledged", "resolved"]
    verdict: Literal["confirmed", "dismissed"] | None
    act: IncidentActLine
    regions: list[str] = Field(
        default=[], description="known regions of CPU traces that the confirmation named, or the dismissal took back"
    )


class NewMute(Request):
    """What nothing is to be sent about, and until when: `until` or `hours`."""

    kind: MutedKind = Field(description="what it is", examples=["node"])
    name: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=r"\S")] = Field(
        description="its name as incidents have it", examples=["n017"]
    )
    until: Moment | None = Field(default=None, description="up to this time")
    hours: float | None = Field(default=None, gt=0, le=MOST_MUTE_HOURS, description="for so long from now on", examples=[8.0])
    reason: str = Field(default="", max_length=LONGEST_NOTE, description="why, for those who come after you")
    cluster: str | None = Field(
        default=None, min_length=1, max_length=LONGEST_NAME, description="in which cluster, where the site has several"
    )


class MuteLine(Answer):
    """Something that nothing is sent about for a time."""

    id: int
    cluster: str
    kind: MutedKind
    name: str
    since: IsoTime
    until: IsoTime
    user: str = Field(description="who muted it")
    reason: str


class Mutes(Answer):
    """What is muted now, the oldest first."""

    mutes: list[MuteLine]


class MuteReceipt(Answer):
    """The mute as it was kept, or was ended."""

    mute: MuteLine
    holds_back: list[int] = Field(default=[], description="the open incidents that it holds back")


class DeliveryQuestion(Question):
    """Which messages."""

    incident: int | None = Field(default=None, ge=0, description="about this incident; without it all")
    limit: int = Field(default=100, ge=1, le=10_000, description="at most so many")


class DeliveryList(Answer):
    """Messages, the newest first, and how many of all wait or were given up."""

    deliveries: list[DeliveryLine]
    waiting: int = 0
    given_up: int = 0
    routes: list[str] = Field(default=[], description="the routes of the site")


class RouteTrial(Request):
    """Which routes are tried."""

    route: str | None = Field(default=None, description="the name of one; without it all")


class TrialLine(Answer):
    """What became of a test message on one route."""

    route: str
    kind: Literal["alertmanager", "webhook", "email"]
    delivered: bool
    problem: str = Field(default="", description="why it was not taken, or not by all recipients")


class TrialReceipt(Answer):
    """What became of the test messages."""

    trials: list[TrialLine]
    failed: int
