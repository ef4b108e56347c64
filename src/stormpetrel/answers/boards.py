"""What a live site works out off the request, one Background per topic: it belongs to its site and goes with it.

LiveSite.boards -> Boards.capacity, cluster, … -> Background. A topic's module is imported at its first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stormpetrel.answers.background import Background
from stormpetrel.answers.cluster.board import cluster_background
from stormpetrel.answers.cluster.capacity import capacity_background
from stormpetrel.answers.history.day_book import book_background
from stormpetrel.answers.history.profiles import profile_background
from stormpetrel.answers.history.settled import settled_background
from stormpetrel.answers.nodes.board import node_background
from stormpetrel.answers.site.health import inspection_background

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.cluster.board import ClusterBoard
    from stormpetrel.answers.cluster.capacity import CapacityBoard
    from stormpetrel.answers.history.day_book import DayBook
    from stormpetrel.answers.history.profiles import ProfileView
    from stormpetrel.answers.history.settled import Settled
    from stormpetrel.answers.nodes.board import NodeBoard
    from stormpetrel.answers.site.health import Inspection


class Boards:
    """The results of one site that are kept between requests, by topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Background[Any]] = {}

    @property
    def capacity(self) -> Background[CapacityBoard]:
        """Load by week."""
        return self._once("capacity", capacity_background)

    @property
    def cluster(self) -> Background[Snapshot[ClusterBoard]]:
        """Counts of events, and what was predicted or scored of them."""
        return self._once("cluster", cluster_background)

    @property
    def nodes(self) -> Background[Snapshot[NodeBoard]]:
        """Scored windows of CPU traces."""
        return self._once("nodes", node_background)

    @property
    def books(self) -> Background[DayBook]:
        """Ended jobs by day and group: trends and waste."""
        return self._once("books", book_background)

    @property
    def settled(self) -> Background[Settled]:
        """Predictions whose jobs have ended: quality and the cancel policy."""
        return self._once("settled", settled_background)

    @property
    def profiles(self) -> Background[ProfileView]:
        """Kinds of jobs, by `scope_of` a viewer."""
        return self._once("profiles", profile_background)

    @property
    def inspections(self) -> Background[Inspection]:
        """The slow part of health."""
        return self._once("inspections", inspection_background)

    def _once(self, topic: str, make: Callable[[], Background[Any]]) -> Background[Any]:
        with self._lock:
            if topic not in self._kept:
                self._kept[topic] = make()
            return self._kept[topic]
