"""What is odd on a site's nodes now, in sentences: out of the detector, and out of the one score of each node and of the cluster.

LiveSite + Viewer -> node_findings -> NodeFindings; Site + TraceModel -> whole_nodes -> WholeNode. All of it names
everybody's nodes: administrators only.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.nodes.board import NodeBoard
from stormpetrel.answers.nodes.regions import region_suspects, with_region
from stormpetrel.answers.nodes.sliding import sliding_now
from stormpetrel.answers.nodes.traces import odd_nodes
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.nodes import NodeFindings
from stormpetrel.answers.schemas.traces import RegionSuspect, SlidingNow, WholeNode
from stormpetrel.answers.viewer import READ
from stormpetrel.records.window_frames import METRIC_NAMES, NODE_LEVEL

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.store.site import Site

NOTHING_UNUSUAL: Final = (
    "On no node are threads unusual compared with normal nodes of this site. Threads of jobs that are labelled as trouble are not"
    " looked at."
)
_MOST_NODES: Final = 500
_COUNTABLE: Final = 4
_INSIDE: Final = ("node", "cpu", "window_start", "job_id", "job_type", "region", "embedding")
_DAY: Final = timedelta(days=1)  # before the newest window, in which known troubles are looked for
_RECENT: Final = timedelta(hours=1)  # before the newest moment: nodes that were seen later than that are there


def node_findings(live: LiveSite, viewer: Viewer) -> NodeFindings:
    """What is odd on the nodes of a site at the newest windows that it keeps."""
    viewer.require(READ)
    viewer.require_admin()
    board = live.boards.nodes.latest(live).value
    whole_windows = board.answer(("what is odd",), lambda: _findings(live, viewer, board))
    return whole_windows.model_copy(update={"as_of": live.now(), "sliding": sliding_score(live, viewer)})


def sliding_score(live: LiveSite, viewer: Viewer) -> SlidingNow:
    """Who is above the threshold in the newest seconds, read anew each time."""
    viewer.require(READ)
    viewer.require_admin()
    model = live.boards.nodes.latest(live).value.value.network.load(live.site)
    return again(lambda: sliding_now(live.site, viewer, model))


def whole_nodes(site: Site, viewer: Viewer, model: TraceModel) -> list[WholeNode]:
    """The newest score of each node, and of the cluster (its name is empty), the most unusual first."""
    viewer.require(READ)
    viewer.require_admin()
    newest = site.node_scores.read(model=model.name, version=model.version).select(pl.col("window_start").max()).collect().item()
    if newest is None:
        return []
    rows = site.node_scores.read(since=newest - _RECENT, model=model.name, version=model.version)
    last = rows.sort("window_start").group_by("cluster", "level", "node").last().sort("score", "node", descending=[True, False])
    shown = last.select("level", "node", "window_start", "score", "unusual", "now", "usual").head(_MOST_NODES + 1).collect()
    return [WholeNode(**row, sentence=_sentence(row)) for row in shown.iter_rows(named=True)]


def known_troubles(site: Site, viewer: Viewer, model: TraceModel, newest: datetime) -> list[RegionSuspect]:
    """Who lay in a region that people have named, in the day before the newest window."""
    viewer.require(READ)
    viewer.require_admin()
    if not len(model.regions):
        return []
    rows = site.trace_scores.read(since=newest - _DAY, model=model.name, version=model.version).select(_INSIDE)
    return region_suspects(with_region(rows.collect(), model))


def rarity(score: float) -> str:
    """A score in words; beyond one in ten thousand no site has seen enough calm windows to say how rare.

    >>> rarity(3.0)
    'one in 1,000'
    """
    return f"one in {10**score:,.0f}" if score <= _COUNTABLE else f"fewer than one in {10**_COUNTABLE:,}"


def _findings(live: LiveSite, viewer: Viewer, board: Snapshot[NodeBoard]) -> NodeFindings:
    model = board.value.network.load(live.site)
    odd, whole = odd_nodes(live.site, viewer, model), whole_nodes(live.site, viewer, model)
    nodes = [row for row in whole if row.level == NODE_LEVEL]
    cluster = next((row for row in whole if row.level != NODE_LEVEL), None)
    newest = board.value.windows["window_start"].max()
    inside = known_troubles(live.site, viewer, model, newest) if isinstance(newest, datetime) else []
    ends = pl.col("window_start") + pl.duration(milliseconds=(1000 * pl.col("window_s")).cast(pl.Int64))
    return NodeFindings(
        as_of=board.at,
        windows_until=board.value.windows.select(ends.max()).item(),
        model=model.name,
        model_version=model.version,
        shipped=model.is_shipped,
        judged=odd is not None,
        share=live.site.settings.traces.alarm_share,
        findings=odd or [],
        nodes=nodes,
        cluster=cluster,
        inside=inside,
    )


def _sentence(row: dict[str, Any]) -> str:
    """What a node as a whole is like, in words."""
    who = f"node {row['node']}" if row["level"] == NODE_LEVEL else "all nodes together"
    rare = f"{rarity(row['score'])} calm moments is as unusual" if row["score"] >= 1 else "as usual"
    if row["unusual"] is None:
        together = ", all of its jobs taken together" if row["level"] == NODE_LEVEL and row["score"] >= 1 else ""
        return f"{who}{together}: {rare}"
    return f"{who}: {METRIC_NAMES[row['unusual']]} {row['now']:.0%}, usually {row['usual']:.0%}; {rare}"
