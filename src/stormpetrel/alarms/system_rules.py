"""Findings about the system itself: a source that stopped, a node that is down.

sources, node states -> SystemRules.step(now) -> findings. What lasts is found again and again, so that its incident stays open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.records.nodes import NodeState

FAMILY: Final = "system"
GONE_AFTER: Final = timedelta(minutes=5)  # a source that was not read for so long, and longer than it is usually left alone
_AGAIN: Final = timedelta(minutes=10)  # how often something that lasts is found again
_POLLS: Final = 3  # that a node must be seen down, so that a reboot is none


@dataclass(frozen=True, slots=True)
class SourceLag:
    """A source: since when it was not read, and whether something is wrong with it."""

    name: str
    last_good: datetime | None
    problem_since: datetime | None


class SystemRules:
    """Remembers what it found, so that it is reported once, and again from time to time while it lasts."""

    def __init__(self, cluster: str, lasting: Iterable[tuple[str, datetime]] = ()) -> None:
        self._cluster = cluster
        self._lasting = dict(lasting)  # what lasts -> when it was last reported
        self._down: dict[str, int] = {}  # polls at which a node was down, one after the other
        self._was_up: set[str] = set()

    @property
    def lasting(self) -> list[tuple[str, datetime]]:
        """What lasts, and when each was last reported."""
        return sorted(self._lasting.items())

    def sources(self, sources: Iterable[SourceLag], now: datetime) -> list[Finding]:
        """Return the sources that have been away for long."""
        findings, gone = [], set()
        for source in sources:
            if source.problem_since is None or now - source.problem_since < GONE_AFTER:
                continue
            key = f"source:{source.name}"
            gone.add(key)
            if self._is_due(key, now):
                away = (now - source.problem_since).total_seconds()
                about = Subject(SubjectKind.SOURCE, source.name)
                findings.append(self._finding(FindingKind.SOURCE_GONE, about, source.problem_since, now, key, away))
        self._over("source:", gone)
        return findings

    def nodes(self, nodes: Iterable[NodeState], now: datetime) -> list[Finding]:
        """Return the nodes that went down while they were watched and are still down; called once per look at the scheduler."""
        findings, down = [], set()
        for node in nodes:
            key = f"node:{node.name}"
            if not node.is_down:
                self._down.pop(node.name, None)
                self._was_up.add(node.name)
                continue
            down.add(key)
            self._down[node.name] = self._down.get(node.name, 0) + 1
            is_news = node.name in self._was_up or key in self._lasting
            if is_news and self._down[node.name] >= _POLLS and self._is_due(key, now):
                since = min(node.since or now, now)
                seconds = (now - since).total_seconds()
                findings.append(
                    self._finding(FindingKind.NODE_DOWN, Subject(SubjectKind.NODE, node.name), since, now, key, seconds)
                )
        self._over("node:", down)
        return findings

    def _is_due(self, key: str, now: datetime) -> bool:
        return key not in self._lasting or now - self._lasting[key] >= _AGAIN

    def _over(self, prefix: str, lasting: set[str]) -> None:
        for key in [key for key in self._lasting if key.startswith(prefix) and key not in lasting]:
            del self._lasting[key]

    def _finding(self, kind: FindingKind, about: Subject, since: datetime, now: datetime, key: str, seconds: float) -> Finding:
        goes_on = key in self._lasting
        self._lasting[key] = now
        return Finding(
            family=FAMILY,
            rule=f"{kind}/1",
            kind=kind,
            cluster=self._cluster,
            subjects=(about,),
            since=since,
            decided_at=now,
            until=now,
            known_at=now,
            score=seconds,
            threshold=GONE_AFTER.total_seconds() if kind == FindingKind.SOURCE_GONE else 0.0,
            evidence=(Evidence("seconds", seconds, Unit.SECONDS),),
            continues=goes_on,
        )
