"""Campaigns (labelled recordings of CPU traces) and rehearsals, as `campaign … --json` and `rehearse --json` print them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, FlatAnswer, IsoTime, Question

MOST_FAULTS: Final = 100  # of each kind and severity of a rehearsal


class CampaignRun(Question):
    """Which jobs are run on this machine, and what the recording is for."""

    split: Literal["train", "validation", "test"] = "train"
    whole_set: bool = Field(default=False, description="three campaigns, for train, validation and test")
    name: str = Field(default="", description="empty: the next free one, such as train-1")
    types: str = Field(description="job types, separated by commas", examples=["np,bad_io"])
    seconds_per_job: float = 300.0
    repeat: int = Field(default=1, description="how often the whole set of jobs is run")
    cpus: str = Field(default="", description="such as 0,1 or 0-3; empty: all")
    prometheus: str = Field(default="", description="a server that scrapes an exporter here; empty: both are started")
    node: str = Field(default="", description="what that server calls this machine")
    scratch: Path | None = Field(default=None, description="a folder on a disk, for the files of the IO jobs")
    seed: int = 0


class CampaignSimulation(Question):
    """How many campaigns of a simulated cluster, and how large."""

    train: int = 3
    validation: int = 1
    test: int = 1
    nodes: int = 5
    threads: int = Field(default=32, description="per node")
    minutes: float = 30.0
    seed: int = 0


class WrittenCampaign(FlatAnswer):
    """A campaign on disk; in JSON what is known about it stands next to its path."""

    flat: ClassVar[str] = "facts"
    path: str
    facts: dict[str, Any] = Field(description="as in the JSON file beside it: split, steps, step_s, types, problems, …")


class CampaignReceipt(Answer):
    """The campaigns that were written, in their order."""

    campaigns: list[WrittenCampaign]


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
