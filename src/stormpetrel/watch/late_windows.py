"""Late samples of CPU counters: which nodes of which past windows are read once more.

moments of nodes (alarms/trace_rules.py) -> LateWindows.next(...) -> PastWindow, one at a time. A window is scored when every node
has been scraped behind its end, or `prometheus.settle_s` after it; what a server receives later (an agent that was cut off, a
remote write that is behind) is read again twice within `prometheus.overlap_s`, for the nodes alone that had fewer windows than
usual. Nothing has to be kept for that: after a restart the table of scores says the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

_POLLS: Final = (0.25, 1.0)  # of `overlap_s` behind its end, at which a window is read again
_NODES_AT_ONCE: Final = 32  # so that the next window does not wait for it
_SEEN_WITHIN: Final = timedelta(hours=1)  # nodes of which nothing was heard for so long are gone

KnownNodes = Callable[[datetime, datetime], Collection[str]]


@dataclass(frozen=True, slots=True)
class PastWindow:
    """A window that is over, and the nodes of which some threads are missing in it."""

    start: datetime
    end: datetime
    nodes: frozenset[str]
    share: float  # of the nodes of the site


class LateWindows:
    """Chooses what is read again; `taken` is called when it was."""

    def __init__(self, *, window_s: float, overlap_s: float) -> None:
        self._window, self._overlap = timedelta(seconds=window_s), timedelta(seconds=overlap_s)
        self._polls: dict[datetime, int] = {}  # by end of the window, how often it was looked at
        self._waiting: list[PastWindow] = []

    def next(self, moments: pl.DataFrame, known: KnownNodes, passed_to: datetime, now: datetime) -> PastWindow | None:
        """Return what is to be read again now; None where nothing is.

        Parameters
        ----------
        moments
            Of `node_moments`: how many windows each node had at each moment.
        known
            Says of which nodes the server has samples from one time to another; some may never have had a whole window.
        passed_to
            The end of the last window that was cut.
        """
        if not self._waiting and moments.height:
            for end in self._ends(moments, passed_to, now):
                self._waiting += self._missing(moments, known, end)
        return self._waiting[0] if self._waiting else None

    def taken(self) -> None:
        """Note that what `next` returned was read."""
        self._waiting.pop(0)

    def _ends(self, moments: pl.DataFrame, passed_to: datetime, now: datetime) -> Iterator[datetime]:
        """The ends of windows that are due for a look, the oldest first."""
        first = moments["at"].min()
        assert isinstance(first, datetime)
        oldest = max(first, now - self._overlap - self._window)
        window_s = self._window.total_seconds()
        numbers = range(math.ceil(oldest.timestamp() / window_s), math.floor(passed_to.timestamp() / window_s) + 1)
        ends = [datetime.fromtimestamp(number * window_s, UTC) for number in numbers]
        before = self._polls
        self._polls = {end: sum(end + look * self._overlap <= now for look in _POLLS) for end in ends}
        yield from (end for end, looks in self._polls.items() if looks > before.get(end, 0))

    def _missing(self, moments: pl.DataFrame, known: KnownNodes, end: datetime) -> Iterator[PastWindow]:
        lately = moments.filter(pl.col("at").is_between(end - _SEEN_WITHIN, end + _SEEN_WITHIN))
        usual = dict(lately.group_by("node").agg(pl.col("windows").max()).iter_rows())
        there = dict(lately.filter(pl.col("at") == end).select("node", "windows").iter_rows())
        everyone = {*usual, *known(end - self._window, end)}
        missing = sorted(node for node in everyone if there.get(node, 0) < usual.get(node, 1))
        for begin in range(0, len(missing), _NODES_AT_ONCE):
            nodes = frozenset(missing[begin : begin + _NODES_AT_ONCE])
            yield PastWindow(end - self._window, end, nodes, len(nodes) / len(everyone))
