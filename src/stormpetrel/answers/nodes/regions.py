"""Known regions: name a trouble by its windows, list and remove regions, who lies inside, and what was like it before.

Site + Viewer + name, scope -> label_windows -> RegionReceipt; remove_region; list_regions -> KnownRegions; ScoredWindows ->
region_suspects, like_before. They name everybody's jobs: administrators only.

Past windows that were like a window: an index over the embeddings that the store keeps.

Site, TraceModel -> PastWindows -> like(window) -> the nearest windows of other jobs that had ended when it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.answers.schemas.traces import (
    FittedRegion,
    KnownRegions,
    LikeBefore,
    PastWindow,
    RegionLine,
    RegionReceipt,
    RegionSuspect,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.trace_models import TraceModel, load_trace_model
from stormpetrel.lifecycle.trace_regions import add_region, remove_region
from stormpetrel.records.window_frames import WINDOW_KEY
from stormpetrel.store.site import Site
from stormpetrel.traces.vector_index import VectorIndex, build_index

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.regions import KnownRegion, RegionScope

WINDOWS_TO_COMPARE: Final = 5  # whose past is looked up
PAST_WINDOWS: Final = 3  # of each
_OWNER: Final = ("region", "node", "job_id", "job_type")
MOST_WINDOWS: Final = 1_000_000  # in the index, the newest
_ABOUT: Final = (*WINDOW_KEY, "window_s", "job_id", "job_type", "score", "flagged", "embedding")
_DRAWN: Final = 64  # neighbours that are looked at for each one that is wanted: those of the same job are passed over


def label_windows(site: Site, viewer: Viewer, name: str, scope: RegionScope) -> RegionReceipt:
    """Name a trouble by its windows: those that look like it raise the name from now on, and none is learnt as normal."""
    user = _manager(site, viewer)
    region = add_region(site, name, scope, user=user)
    site.audit.record(user, "region named", {"region": region.name, "examples": region.examples})
    return RegionReceipt(regions=[region_line(region)])


def remove_regions(site: Site, viewer: Viewer, name: str) -> RegionReceipt:
    """Take back what was named so; NotThereError where nothing is."""
    user = _manager(site, viewer)
    removed = remove_region(site, name)
    site.audit.record(user, "region removed", {"region": name})
    return RegionReceipt(regions=[region_line(region) for region in removed], removed=True)


def list_regions(site: Site, viewer: Viewer) -> KnownRegions:
    """Return what was named, the oldest first, and how the model in use sees it."""
    viewer.require(READ)
    viewer.require_admin()
    regions = site.trace_regions.list()
    fitted = fitted_regions(load_trace_model(site)) if regions else []
    return KnownRegions(regions=[region_line(region) for region in regions], fitted=fitted)


def fitted_regions(model: TraceModel) -> list[FittedRegion]:
    """The regions that a model knows, in the order in which they were named first."""
    answers = []
    for region in model.regions.all:
        x, y = (float(value) for value in np.asarray(model.map.transform(region.examples)).mean(axis=0))
        answers.append(
            FittedRegion(
                name=region.name,
                examples=len(region.examples),
                radius=region.radius,
                coverage=region.coverage,
                calm_inside=region.calm_inside,
                x=x,
                y=y,
            )
        )
    return answers


def with_region(points: pl.DataFrame, model: TraceModel) -> pl.DataFrame:
    """Scored windows with the region that each lies in now and its distance; one named after they were scored counts, too.

    Windows of which only the score was kept have what was said of them then.
    """
    size = model.scorer.settings.embedding
    placed = points.with_row_index("_row").filter(pl.col("embedding").list.len() == size)
    if not len(model.regions) or not placed.height:
        stays = pl.col("region") if len(model.regions) else pl.lit(None, dtype=pl.String).alias("region")
        return points.with_columns(stays, region_distance=pl.lit(None, dtype=pl.Float64))
    inside = model.regions.names_of(placed["embedding"].explode().to_numpy().reshape(-1, size))
    now = placed.select("_row").with_columns(
        _region=pl.Series(inside.name.tolist(), dtype=pl.String).replace("", None),
        region_distance=pl.Series(inside.distance).fill_nan(None),
        _placed=pl.lit(True),
    )
    joined = points.with_row_index("_row").join(now, on="_row", how="left", maintain_order="left")
    region = pl.when(pl.col("_placed")).then("_region").otherwise("region").alias("region")
    return joined.with_columns(region).drop("_row", "_region", "_placed")


def region_suspects(points: pl.DataFrame) -> list[RegionSuspect]:
    """Who lies in which region, most windows first; `points` as `with_region` returns them."""
    owners = points.group_by("node", "job_id", "job_type").agg(windows=pl.len())
    inside = (
        points.drop_nulls("region")
        .group_by(_OWNER)
        .agg(
            cpus=pl.col("cpu").unique().sort(),
            inside=pl.len(),
            nearest=pl.col("region_distance").min().fill_null(float("nan")),
            since=pl.col("window_start").min(),
            until=pl.col("window_start").max(),
        )
        .join(owners, on=["node", "job_id", "job_type"], nulls_equal=True)
        .sort("inside", "nearest", "node", "region", descending=[True, False, False, False])
    )
    return [RegionSuspect.model_validate(row) for row in inside.iter_rows(named=True)]


def like_before(site: Site, model: TraceModel, points: pl.DataFrame) -> list[LikeBefore]:
    """For the newest windows that lie in a region or were flagged, one of each node and job: which past windows were like it."""
    size = model.scorer.settings.embedding
    suspicious = points.filter((pl.col("region").is_not_null() | pl.col("flagged")) & (pl.col("embedding").list.len() == size))
    newest = suspicious.sort(pl.col("region").is_not_null(), "window_start", "score", descending=True)
    chosen = newest.unique(["node", "job_id"], keep="first", maintain_order=True).head(WINDOWS_TO_COMPARE)
    if not chosen.height:
        return []
    past = PastWindows(site, model)
    return [_like_before(past, row) for row in chosen.iter_rows(named=True)]


def _like_before(past: PastWindows, row: dict[str, Any]) -> LikeBefore:
    matches = past.like(np.asarray(row["embedding"], dtype=np.float32), row, PAST_WINDOWS)
    return LikeBefore(
        node=row["node"],
        cpu=row["cpu"],
        window_start=row["window_start"],
        job_id=row["job_id"],
        region=row["region"],
        past=[PastWindow.model_validate(match) for match in matches],
    )


def region_line(region: KnownRegion) -> RegionLine:
    """One region as it is listed."""
    scope = region.scope
    return RegionLine(
        name=region.name,
        added=region.added,
        added_by=region.added_by,
        incident=region.incident,
        job_type=scope.job_type,
        job_id=scope.job_id,
        node=scope.node,
        since=scope.since,
        until=scope.until,
        examples=region.examples,
    )


def _manager(site: Site, viewer: Viewer) -> str:
    viewer.require(MANAGE)
    viewer.require_admin()
    return viewer.user or site.user_in_tables(operator())


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
