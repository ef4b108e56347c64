"""Outages and maintenance: spans of time that somebody has given a name, or a simulator an order for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

BY_HAND: Final = "hand"  # the source of what was labelled at the command line


class OutageKind(StrEnum):
    """What a span is to the models: an outage is an anomaly, a maintenance is not, and neither is learnt as normal."""

    OUTAGE = "outage"
    MAINTENANCE = "maintenance"
    NORMAL = "normal"  # somebody has looked and found nothing: a false alarm is labelled so


@dataclass(frozen=True, slots=True)
class Outage:
    """A span of time with a meaning; `end` is None while it lasts. (source, uid) names it for good."""

    start: datetime  # UTC
    end: datetime | None
    kind: OutageKind
    title: str
    source: str = BY_HAND  # hand, grafana, file:NAME, simulated
    uid: str = ""
    outage_type: str = ""  # of a simulated one: node_collapse, …
    severity: str = ""  # of a simulated one: mild, moderate, severe
