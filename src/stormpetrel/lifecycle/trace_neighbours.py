"""Past windows that were like a window: an index over the embeddings that the store keeps.

Site, TraceModel -> PastWindows -> like(window) -> the nearest windows of other jobs that had ended when it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.lifecycle.trace_models import TraceModel
from stormpetrel.records.window_frames import WINDOW_KEY
from stormpetrel.store.site import Site
from stormpetrel.traces.vector_index import VectorIndex, build_index

MOST_WINDOWS: Final = 1_000_000  # in the index, the newest
_ABOUT: Final = (*WINDOW_KEY, "window_s", "job_id", "job_type", "score", "flagged", "embedding")
_DRAWN: Final = 64  # neighbours that are looked at for each one that is wanted: those of the same job are passed over


class PastWindows:
    """The windows of a site that one version of a model has scored, by where they lie in its embedding."""

    def __init__(self, site: Site, model: TraceModel) -> None:
        size = model.scorer.settings.embedding
        rows = site.trace_scores.read(model=model.name, version=model.version).filter(pl.col("embedding").list.len() == size)
        newest = rows.select(_ABOUT).sort("window_start", descending=True).head(MOST_WINDOWS).collect()
        vectors = newest["embedding"].explode().to_numpy().reshape(-1, size).astype(np.float32)
        self.rows = newest.drop("embedding")
        self.index: VectorIndex = build_index(vectors)
        self._vectors, self._regions = vectors, model.regions

    def like(self, embedding: npt.NDArray[np.float32], window: Mapping[str, Any], k: int) -> list[dict[str, Any]]:
        """The k nearest windows of other jobs (of other nodes, without a job) that had ended when this one began, nearest first.

        One for each job and node: windows of one job are all alike. `window` has window_start, node and job_id; the answer has
        the columns of the past window, its `distance`, and the known `region` that it lies in.
        """
        near = self.index.search(embedding[None], min(k * _DRAWN, max(1, len(self.index))))
        matches: dict[tuple[Any, Any], dict[str, Any]] = {}
        for row, distance in zip(near.row[0].tolist(), near.distance[0].tolist(), strict=True):
            if row < 0:
                break
            past = self.rows.row(row, named=True)
            owner = (past["job_id"], past["node"])
            if owner not in matches and _is_past(past, window) and not _is_same_work(past, window):
                region = str(self._regions.names_of(self._vectors[[row]]).name[0]) or None
                matches[owner] = {**past, "distance": distance, "region": region}
            if len(matches) == k:
                break
        return list(matches.values())


def _is_past(past: Mapping[str, Any], window: Mapping[str, Any]) -> bool:
    ended: datetime = past["window_start"] + timedelta(seconds=past["window_s"])
    return bool(ended <= window["window_start"])


def _is_same_work(past: Mapping[str, Any], window: Mapping[str, Any]) -> bool:
    if window["job_id"] is None:
        return past["job_id"] is None and past["node"] == window["node"]
    return bool(past["job_id"] == window["job_id"])
