"""The watcher of the system itself: sources that stopped telling anything, and nodes that the scheduler has set down.

SourceBook, scontrol or slurmrestd -> SystemFindings.step(now) -> findings. It also reads which nodes are reserved for
maintenance, and hands that on: nobody is paged about them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from stormpetrel.alarms.system_rules import FAMILY, SourceLag, SystemRules
from stormpetrel.errors import SourceError
from stormpetrel.records.findings import Finding
from stormpetrel.records.outages import MaintenanceWindow
from stormpetrel.sources.slurm.nodes import read_maintenance, read_node_states
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook, SourceHealth, troubles
from stormpetrel.watch.cluster_name import ClusterName

_NODES_EVERY: Final = timedelta(seconds=30)
_RESERVED_EVERY: Final = timedelta(minutes=1)
_PATIENCE_S: Final = 5.0


class SystemFindings:
    """Watches the sources of one watch, and the nodes of a Slurm, from where `state` was left.

    `note_reserved` hears of the maintenance that is reserved: at once of what the state says, since a watch that starts again
    during maintenance must not page about it, and then of what Slurm says.
    """

    name = FAMILY

    def __init__(
        self,
        site: Site,
        book: SourceBook,
        *,
        state: str = "",
        note_reserved: Callable[[tuple[MaintenanceWindow, ...]], None] = lambda windows: None,
    ) -> None:
        self._site, self._book, self._note_reserved = site, book, note_reserved
        before = json.loads(state) if state else {}
        lasting = [(key, datetime.fromisoformat(reported_at)) for key, reported_at in before.get("found", [])]
        self._cluster = ClusterName(site)
        self._rules = SystemRules(self._cluster.name(), lasting)
        self._nodes_at: datetime | None = None
        self._reserved_at: datetime | None = None
        self._reserved = tuple(_window(facts) for facts in before.get("reserved", []))
        note_reserved(self._reserved)

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next."""
        return max(1.0, self._site.settings.watch.poll_s)

    @property
    def state(self) -> str:
        """What lasts, and when each was last told; and what is reserved."""
        lasting = [(key, reported_at.isoformat()) for key, reported_at in self._rules.lasting]
        return json.dumps({"found": lasting, "reserved": [_facts(window) for window in self._reserved]})

    def step(self, now: datetime) -> list[Finding]:
        """Return what is wrong with the sources and the nodes; a scheduler that does not answer is its source's problem."""
        if self._reserved_at is None or abs(now - self._reserved_at) >= _RESERVED_EVERY:
            self._reserved_at = now
            self._read_reserved()
        findings = self._rules.sources((self._lag(source, now) for source in self._unwell()), now)
        if self._nodes_at is None or abs(now - self._nodes_at) >= _NODES_EVERY:
            self._nodes_at = now
            findings += self._nodes(now)
        return findings

    def _unwell(self) -> list[SourceHealth]:
        sources = self._book.sources()
        names = {trouble.source for trouble in troubles(sources, self._book.now()) if trouble.kind != "behind"}
        return [source for source in sources if source.name in names]

    def _lag(self, source: SourceHealth, now: datetime) -> SourceLag:
        """The source, its moments (the machine's) in the site's own clock."""
        real, pace = self._book.now(), self._site.pace()
        moments = [
            None if moment is None else now - (real - moment) * pace
            for moment in (source.last_good, source.problem_since or source.looking_since or source.last_good or source.since)
        ]
        return SourceLag(source.name, moments[0], moments[1])

    def _nodes(self, now: datetime) -> list[Finding]:
        try:
            nodes = read_node_states(self._site.settings.slurm, patience_s=_PATIENCE_S)
        except SourceError:
            return []
        return [] if nodes is None else self._rules.nodes(nodes, now)

    def _read_reserved(self) -> None:
        """Ask which nodes are under maintenance; while Slurm does not answer, what it said before holds."""
        try:
            windows = read_maintenance(self._site.settings.slurm, cluster=self._cluster.name(), patience_s=_PATIENCE_S)
        except SourceError:
            return
        self._reserved = windows or ()
        self._note_reserved(self._reserved)


def _facts(window: MaintenanceWindow) -> dict[str, object]:
    end = window.end.isoformat() if window.end else None
    return {"start": window.start.isoformat(), "end": end, "nodes": sorted(window.nodes), "cluster": window.cluster}


def _window(facts: dict[str, Any]) -> MaintenanceWindow:
    end = datetime.fromisoformat(facts["end"]) if facts["end"] else None
    return MaintenanceWindow(datetime.fromisoformat(facts["start"]), end, frozenset(facts["nodes"]), facts["cluster"])
