"""Rehearsals as `stormpetrel rehearse --json` prints them and the page shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question

MOST_FAULTS: Final = 100  # of each kind and severity


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
