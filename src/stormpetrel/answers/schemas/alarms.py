"""Incidents as `stormpetrel alarms … --json` prints them and the API sends them; times as ISO 8601 with their offset.

What verdicts have changed, and which cases are asked about, as `--json` prints them and the API sends them.

Rehearsals as `stormpetrel rehearse --json` prints them and the page shows them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request
from stormpetrel.answers.schemas.jobs import Moment

MOST_INCIDENTS: Final = 1000  # that one answer lists
_FAMILY: Final = r"^[a-z_]{1,32}$"
MOST_CASES: Final = 50
LONGEST_CASE: Final = 300
MOST_FAULTS: Final = 100  # of each kind and severity


class IncidentQuestion(Question):
    """Which incidents; those that are not over, where nothing else is requested."""

    state: Literal["open", "all", "quiet"] = Field(
        default="open",
        description="`open`: those that are not over, acknowledged or not; `all`: those that are over as well; "
        "`quiet`: those that are on no list, as like dismissed ones",
    )
    since: Moment | None = Field(default=None, description="of which something was heard at this time or later")
    severity: Literal["info", "warning", "page"] | None = Field(default=None, description="so loud, or louder")
    family: str | None = Field(default=None, pattern=_FAMILY, description="that this family of watchers saw", examples=["jobs"])
    limit: int = Field(default=100, ge=1, le=MOST_INCIDENTS, description="so many, the newest")


class ReplayQuestion(Question):
    """Which part of the past; without times all of it."""

    since: Moment | None = Field(default=None, description="from this time on")
    until: Moment | None = Field(default=None, description="up to this time")
    models: bool = Field(default=True, description="train the models of events that the watch would have had; else rules alone")


class ReplayFiles(Question):
    """Files to replay without a site."""

    jobs: list[str] = Field(default=[], description="files of job records")
    events: list[str] = Field(default=[], description="event logs, tables of events or of counts")
    format: str | None = Field(default=None, description="of them all; found from each file if left out")
    time_zone: str = Field(default="UTC", description="of their times")
    fields: list[str] | None = Field(default=None, description="columns of sacct text without a header")
    year: int | None = Field(default=None, description="of event logs whose dates have none")


class IncidentSubject(Answer):
    """Something or somebody that an incident is about, or that is involved."""

    kind: str = Field(description="node, user, application or cluster", examples=["node"])
    name: str


class IncidentLine(Answer):
    """One incident."""

    id: int
    severity: Literal["info", "warning", "page"]
    state: Literal["open", "acknowledged", "resolved"]
    kinds: list[str] = Field(description="what was seen, the first first", examples=[["node_eats_jobs"]])
    families: list[str] = Field(description="which watchers saw it", examples=[["jobs"]])
    subjects: list[IncidentSubject] = Field(description="what it is about, and then what is involved")
    since: IsoTime = Field(description="the first record of it")
    until: IsoTime = Field(description="the newest record of it")
    raised_at: IsoTime = Field(
        description="when it was known to be what it is; in a replay when it would have been, by the site's time"
    )
    blame: Literal["user", "node", "storage", "scheduler", "unclear"]
    verdict: Literal["confirmed", "dismissed"] | None
    late: bool = Field(description="known so long after the fact that nobody is woken for it")
    title: str = Field(description="one line that says it all")
    page: bool = Field(description="whether it was, or would have been, sent at once")
    like: int | None = Field(
        default=None, description="the dismissed incident that it is like, which is why it was not sent; null: like none"
    )
    returns: int = Field(default=0, exclude=True, description="how often it came back")
    change: str = Field(
        default="", description="what has changed, where that explains it: something new at the site, not an anomaly; else empty"
    )


class VerdictEffect(Answer):
    """What one verdict has changed."""

    incident: int = Field(description="that was judged")
    verdict: Literal["confirmed", "dismissed"]
    user: str = Field(description="who judged it")
    at: IsoTime
    fewer_alarms: int = Field(description="incidents since then that would be on the list of alarms without this verdict")
    fewer_pages: int = Field(description="of them, those that would have been due to be sent")
    incidents: list[int] = Field(description="their numbers")
    words: str = Field(examples=["since anna's word of Tuesday on incident 12: 3 fewer alarms"])


class VerdictEffects(Answer):
    """What all verdicts that stand have changed; empty where nobody has judged anything, and for users."""

    since: IsoTime | None = Field(default=None, description="the first verdict that stands")
    confirmed: int = 0
    dismissed: int = 0
    fewer_alarms: int = Field(
        default=0, description="incidents since then that are not on the list of alarms, as like dismissed ones"
    )
    fewer_pages: int = Field(default=0, description="incidents that were due to be sent and were not, as like dismissed ones")
    words: str = Field(default="", description="the same in words; empty where nothing has changed")
    verdicts: list[VerdictEffect] = Field(default=[], description="those that changed something by themselves, the newest first")


class IncidentList(Answer):
    """Incidents, the newest first; of a replay, the oldest first."""

    incidents: list[IncidentLine]
    pages_per_week: float | None = Field(
        description="what was sent at once, returns counted, also of incidents that are not listed; null: no time to count over"
    )
    weeks: float = Field(description="how long that was: since the watch or the first incident, or since the time asked for")
    quiet: int = Field(default=0, description="open incidents that are not listed, as like dismissed ones")
    verdicts: VerdictEffects = Field(default=VerdictEffects(), description="what verdicts have changed; administrators only")

    @property
    def rate_text(self) -> str:
        """How often somebody was paged, in a few words; empty where there was no time to count over."""
        return "" if self.pages_per_week is None else f"pages a week: {self.pages_per_week:.2g}, over {self.weeks:.1f} weeks"


class ReplayAnswer(IncidentList):
    """What a watch would have reported about a part of the past; verdicts of today say nothing about it."""

    quiet: int = Field(default=0, exclude=True)
    verdicts: VerdictEffects = Field(default=VerdictEffects(), exclude=True)

    since: IsoTime | None = Field(exclude=True, description="from when on records were looked at; null: there are none at all")
    until: IsoTime | None = Field(exclude=True)
    first: IsoTime | None = Field(exclude=True, description="from when on there are records")
    last: IsoTime | None = Field(exclude=True)
    zone: str = Field(exclude=True, description="of the site")
    jobs: int = Field(exclude=True, description="that ended in that time")
    buckets: int = Field(exclude=True, description="of events, seen whole in that time")
    partial_buckets: int = Field(exclude=True, description="of events that were counted, but not seen whole, at any time")
    event_models: int = Field(exclude=True, description="of events, trained on the way")
    has_traces: bool = Field(exclude=True, description="whether there are scored CPU windows")


class CaseQuestion(Question):
    """How many cases."""

    limit: int = Field(default=10, ge=1, le=MOST_CASES, description="so many, what helps most first")


class CaseLine(Answer):
    """A case whose answer teaches much: an incident, or a candidate that stayed below the threshold."""

    case: str = Field(description="what names it: incident:53, node:n017@1794990000, bucket:1794990000", examples=["incident:53"])
    family: str = Field(examples=["jobs"])
    kind: str = Field(examples=["batch_fails"])
    about: str = Field(description="what it is about, in words", examples=["node n017"])
    at: IsoTime = Field(description="when it was")
    score: float = Field(description="higher is more abnormal")
    threshold: float | None = Field(description="from which it would have been raised by itself; null where that is not known")
    raised: bool = Field(description="whether it was raised as an incident, on the list or not")
    chance: float = Field(description="probability, by the verdicts so far, that it is real trouble")
    uncertainty: float = Field(description="1 where the chance is ½, 0 where it is certain")
    density: float = Field(description="0 to 1: how many cases are like it")
    worth: float = Field(description="uncertainty × density")
    words: str = Field(description="one line for people")
    link: str | None = Field(default=None, description="a path of the dashboard")


class CaseList(Answer):
    """The cases whose answer helps most, what helps most first."""

    cases: list[CaseLine]
    candidates: int = Field(description="how many were weighed")
    answered: int = Field(description="how many have been answered so far, verdicts on incidents counted")


class NewCaseAnswer(Request):
    """What a case was."""

    case: str = Field(max_length=LONGEST_CASE, description="as the list names it", examples=["node:n017@1794990000"])
    answer: Literal["confirm", "dismiss", "withdraw"] = Field(description="it is real trouble, it is none, or it is taken back")
    note: str = Field(default="", max_length=4000, description="why")


class CaseReceipt(Answer):
    """What was kept."""

    case: str
    answer: Literal["confirm", "dismiss", "withdraw"]
    incident: int | None = Field(default=None, description="the incident that was judged by it")
    words: str


class RehearsalQuestion(Question):
    """What is rehearsed; all kinds and severities where none is named."""

    kinds: list[str] = Field(default=[], description="kinds of faults and outages")
    severities: list[str] = Field(default=[], description="how bad: mild, moderate, severe")
    n: int = Field(default=3, ge=1, le=MOST_FAULTS, description="faults of each kind and severity")
    seed: int = Field(default=0, ge=0, description="of everything random")
    since: datetime | None = Field(default=None, description="history from this time on; without it the last ten weeks")
    until: datetime | None = Field(default=None, description="history up to this time")
    models: bool = Field(default=True, description="train the models of events that the watch would have had; else rules alone")


class RehearsedFault(Answer):
    """What became of the faults of one kind and severity."""

    recall: float = Field(description="share of which a finding was listed that the same walk without them does not have")
    delay_s: float | None = Field(description="median seconds from the beginning of a fault to that finding; null: none")
    n: int = Field(description="faults")
    paged: float | None = Field(
        default=None, description="share that was sent at once, within the budget; null: too little history for a budget"
    )
    paged_delay_s: float | None = Field(default=None, description="median seconds to the message; null: none")


class RehearsalAnswer(Answer):
    """What a site would have seen of faults in its own history, or in a copy of its live stream."""

    faults: dict[str, dict[str, RehearsedFault]] = Field(description="by kind and severity")
    false_pages_per_week: float | None = Field(
        description="messages a week without a fault, beside labelled outages and confirmed incidents; null: no history"
    )
    holes: list[str] = Field(description="what would not be seen here, in sentences")
    notes: list[str] = Field(default=[], description="what else to know, in sentences")
    labels: dict[str, str] = Field(default={}, description="what each kind is, in words")
    promised_pages_per_week: float = Field(default=0.0, description="the site's budget: alarms.pages_per_week")
    since: IsoTime | None = Field(default=None, description="from when on history was walked through")
    until: IsoTime | None = None
    done_at: IsoTime | None = Field(default=None, description="when the rehearsal was done, by the site's clock")
    seed: int = 0
    walks: int = Field(default=0, description="walks through the history, the one without faults counted")
    seconds: float = Field(default=0.0, description="how long it took")
    live: bool = Field(default=False, description="whether faults were put into a copy of the live stream")
