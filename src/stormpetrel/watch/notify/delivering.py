"""The thread of the watch that delivers messages: every few seconds a turn of the outbox, its problems told once.

Outbox -> Delivering.step -> seconds until the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from stormpetrel.alarms.acts import Silences
from stormpetrel.errors import StormpetrelError
from stormpetrel.store.site import Site
from stormpetrel.watch.logs import Log
from stormpetrel.watch.metrics import WatchMetrics
from stormpetrel.watch.notify.outbox import Outbox


class Delivering:
    """Delivers the messages of one site while the watch runs; SettingsError at once where a route cannot work."""

    name = "messages"

    def __init__(
        self, site: Site, metrics: WatchMetrics, log: Log, *, every_s: float, silences: Callable[[datetime], Silences]
    ) -> None:
        self._site, self._metrics, self._log, self._every_s = site, metrics, log, every_s
        self._outbox = Outbox(site, silences=silences)
        self._problems: Mapping[str, str] = {}

    def step(self) -> float:
        """Make one turn; return the seconds until the next."""
        now = self._site.now()
        step = self._outbox.step(now)
        self._metrics.note_outbox(step, now)
        self._metrics.note_incidents(self._site.incidents.list(is_open=True))
        for route, problem in step.problems.items():
            if self._problems.get(route) != problem:
                self._log.warning("message problem", route=route, what=problem)
        for route in self._problems.keys() - step.problems.keys():
            self._log.info("message problem over", route=route)
        self._problems = step.problems
        return self._every_s

    def end(self) -> None:
        """Send what is still to be sent, as far as receivers take it at once, and stop."""
        with suppress(StormpetrelError, OSError):
            self.step()
        self._outbox.close()
