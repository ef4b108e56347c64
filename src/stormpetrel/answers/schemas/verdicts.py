"""What verdicts have changed, and which cases are asked about, as `--json` prints them and the API sends them."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request

MOST_CASES: Final = 50
LONGEST_CASE: Final = 300


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
