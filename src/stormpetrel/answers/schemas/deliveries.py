"""Messages about incidents and what became of them, as `stormpetrel notify … --json` prints them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, IsoTime, Question, Request


class DeliveryQuestion(Question):
    """Which messages."""

    incident: int | None = Field(default=None, ge=0, description="about this incident; without it all")
    limit: int = Field(default=100, ge=1, le=10_000, description="at most so many")


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
