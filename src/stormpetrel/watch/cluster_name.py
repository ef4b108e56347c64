"""What a site's cluster is called: as its job records call it, so that findings of all families are about the same cluster."""

from __future__ import annotations

import time
from typing import Final

import polars as pl

from stormpetrel.store.site import Site

_KEEP_S: Final = 600.0


class ClusterName:
    """The name of the cluster of one site; the setting where records name none, or several."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._name = ""
        self._read_s = -_KEEP_S

    def name(self) -> str:
        """Return the name, read again now and then."""
        if not self._name or time.monotonic() - self._read_s >= _KEEP_S:
            names = self._site.jobs.table.scan().select(pl.col("cluster").unique()).collect()["cluster"].drop_nulls()
            self._name = str(names[0]) if names.len() == 1 else self._site.settings.site.cluster or "cluster"
            self._read_s = time.monotonic()
        return self._name
