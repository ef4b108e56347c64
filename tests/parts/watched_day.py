"""A day of the watch in seconds: the real loop with all its watchers, one turn after the other, by a clock that the test moves.

`with watched_day(site, monkeypatch) as day: day.go(hours=6)`. The site is that of a recorded feed with two sick nodes
(`sick_feed`): one falls ill while the sources are away and stays so, the other is well again before they are back.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stormpetrel.simulate.cluster import ClusterSpec, Fault
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.watch import running
from stormpetrel.watch.logs import Log
from stormpetrel.watch.running import WatchOptions
from tests.parts.watched_site import START, make_watched_site, move_clock

_DAY_S = 86_400
AWAY_FROM = START + timedelta(days=3, hours=12)  # a day without a source begins
BACK_AT = AWAY_FROM + timedelta(days=1)
PASSING, LASTING = "n003", "n006"  # nodes: ill and well again within that day; ill from its end on
SPEC = ClusterSpec(
    name="small",
    nodes=12,
    days=7,
    load=0.7,
    seed=2,
    start=START,
    faults=(
        Fault(2, int(3.58 * _DAY_S), int(3.8 * _DAY_S)),
        Fault(5, int(4.3 * _DAY_S), 7 * _DAY_S),
    ),
)


def sick_feed(folder: Path, **sections: dict[str, Any]) -> Site:
    """A site that has read its feed up to three hours before the sources go away; no model."""
    return make_watched_site(folder, trained=False, spec=SPEC, now=AWAY_FROM - timedelta(hours=3), **sections)


class WatchedDay:
    """A watch whose turns the test makes."""

    def __init__(self, site: Site) -> None:
        self.site, self.ahead = site, timedelta(0)  # of our machine's clock: Slurm's goes right
        self._right = site.now
        self._log = io.StringIO()
        self.runner = running.WatchRunner(site, WatchOptions(address="", poll_s=0.0), Log(self._log, as_json=True))
        self._has_learnt = False

    def turn(self, moment: datetime) -> None:
        """Set the clock, and let the loop and each watcher beside it make a step."""
        move_clock(self.site, moment)
        self.turn_now()

    def turn_now(self) -> None:
        """Make the steps without touching the clock."""
        self.runner.turn()
        for one in self.runner.others._stepping:
            if one.name != "budget" or not self._has_learnt:
                self.runner.others._guarded(one.step)
        self._has_learnt = True

    def go(self, until: datetime, *, every: timedelta = timedelta(minutes=30)) -> None:
        """Let time pass."""
        moment = self._right()
        while moment < until:
            moment = min(until, moment + every)
            self.turn(moment)

    def logged(self, *events: str) -> list[dict[str, Any]]:
        """The lines of the log, of some events."""
        lines = [json.loads(line) for line in self._log.getvalue().splitlines()]
        return [line for line in lines if line["event"] in events]


@contextmanager
def watched_day(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedDay]:
    """Watch a site by its own clock, the health of sources included."""
    monkeypatch.setattr(running, "SourceBook", functools.partial(SourceBook, clock=lambda: site.now()))
    day, right = WatchedDay(site), site.now
    monkeypatch.setattr(site, "now", lambda: right() + day.ahead)
    try:
        yield day
    finally:
        day.runner.end()
