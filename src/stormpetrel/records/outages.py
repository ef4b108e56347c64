"""Outages and maintenance: spans of time that somebody has given a name, or a simulator an order for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from stormpetrel.records.findings import Subject, SubjectKind

_MACHINES: Final = (SubjectKind.NODE, SubjectKind.SUBMIT_HOST)
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
    resource: str = ""  # the machine or service that it is of, as a list of downtimes names it; empty: the whole cluster


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """Work on a cluster from `start` on, until `end` or for an unknown time; on these nodes and submit hosts, or on all."""

    start: datetime
    end: datetime | None
    nodes: frozenset[str] = frozenset()
    cluster: str = ""  # empty: any

    def is_open(self, cluster: str, at: datetime) -> bool:
        """Whether there is work on this cluster at a moment."""
        return self.cluster in ("", cluster) and self.start <= at and (self.end is None or at < self.end)

    def covers(self, subject: Subject) -> bool:
        """Whether a subject of its cluster is worked on: one of its nodes, or anything where it names none."""
        return not self.nodes or (subject.kind in _MACHINES and subject.name in self.nodes)
