"""The watcher of the system itself: sources that stopped telling anything, and nodes that the scheduler has set down.

SourceBook, scontrol -> SystemFindings.step(now) -> findings.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final

from stormpetrel.alarms.system_rules import FAMILY, SourceLag, SystemRules
from stormpetrel.errors import SourceError
from stormpetrel.records.findings import Finding
from stormpetrel.sources.slurm_nodes import read_node_states
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook, SourceHealth, troubles
from stormpetrel.watch.cluster_name import ClusterName

_NODES_EVERY: Final = timedelta(seconds=30)
_PATIENCE_S: Final = 5.0


class SystemFindings:
    """Watches the sources of one watch, and the nodes of a Slurm, from where `state` was left."""

    name = FAMILY

    def __init__(self, site: Site, book: SourceBook, *, state: str = "") -> None:
        self._site, self._book = site, book
        found = [(key, datetime.fromisoformat(told)) for key, told in json.loads(state)["found"]] if state else []
        self._rules = SystemRules(ClusterName(site).name(), found)
        self._nodes_at: datetime | None = None

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next."""
        return max(1.0, self._site.settings.watch.poll_s)

    @property
    def state(self) -> str:
        """What lasts, and when each was last told."""
        return json.dumps({"found": [(key, told.isoformat()) for key, told in self._rules.found]})

    def step(self, now: datetime) -> list[Finding]:
        """Return what is wrong with the sources and the nodes; a scheduler that does not answer is its source's problem."""
        findings = self._rules.sources((self._lag(source, now) for source in self._unwell()), now)
        if self._nodes_at is None or now - self._nodes_at >= _NODES_EVERY:
            self._nodes_at = now
            findings += self._nodes(now)
        return findings

    def _unwell(self) -> list[SourceHealth]:
        sources = self._book.sources()
        names = {trouble.source for trouble in troubles(sources, datetime.now(UTC))}
        return [source for source in sources if source.name in names]

    def _lag(self, source: SourceHealth, now: datetime) -> SourceLag:
        """The source, its moments (the machine's) in the site's own clock."""
        real, pace = datetime.now(UTC), self._site.pace()
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
