"""Which machines a site knows: the nodes that ran its jobs, and the nodes and submit hosts of its events, of the last month.

Site + a name, as a list of downtimes has it -> KnownMachines.named -> the names that the site's records have for it.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

import polars as pl

from stormpetrel.records.nodes import expand_nodes
from stormpetrel.store.site import Site

_RECENT: Final = timedelta(days=30)
_KEEP_S: Final = 3600.0
_PLACES: Final = ("node", "submit_host")


class KnownMachines:
    """Reads the names when it is first asked, and again after an hour: only where a downtime names a resource."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._names: frozenset[str] = frozenset()
        self._read_s: float | None = None

    def named(self, resource: str) -> frozenset[str]:
        """Return the machines of this name, with or without a domain; none where the site knows none."""
        if self._read_s is None or time.monotonic() - self._read_s >= _KEEP_S:
            self._names, self._read_s = self._read(), time.monotonic()
        return frozenset(name for name in self._names if _is_same(name, resource))

    def _read(self) -> frozenset[str]:
        since = self._site.now() - _RECENT
        lists = self._site.jobs.table.between("submit_time", since).select(pl.col("node_list").drop_nulls().unique()).collect()
        nodes = {name for text in lists["node_list"] for name in expand_nodes(text)}
        places = self._site.event_counts.read(since=since, places=True).filter(pl.col("place").is_in(_PLACES))
        return frozenset(nodes | set(places.select(pl.col("value").unique()).collect()["value"]))


def _is_same(name: str, resource: str) -> bool:
    """Whether two names are of one machine: the same, or one is the other without its domain."""
    name, resource = name.casefold(), resource.casefold()
    if "." in name and "." in resource:
        return name == resource
    return name.partition(".")[0] == resource.partition(".")[0]
