"""Labelled recordings of CPU traces, as `stormpetrel campaign … --json` prints them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, FlatAnswer, Question


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
