"""What the score of every second says of a site's nodes now, in sentences, how fresh it is, and why there is none.

Site + Viewer + TraceModel -> sliding_now -> SlidingNow. It names everybody's jobs: administrators only.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.answers.schemas.traces import SlidingNode, SlidingNow
from stormpetrel.answers.viewer import READ
from stormpetrel.lifecycle.live_sliding import span_steps, why_not_sliding
from stormpetrel.lifecycle.trace_models import shipped_promise
from stormpetrel.store.source_health import TRACES, format_span
from stormpetrel.store.watch_status import read_watch

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.store.site import Site

QUICK_SCORE: Final = "This is the quick score of single threads, second by second; incidents come from whole windows."
_BACK: Final = timedelta(hours=1)  # how far the beginning of what is above is looked for
_SPANS: Final = 3  # a newest span whose end is longer ago is not now
_POLLS_S: Final = 30.0  # real seconds that reading and committing may take beside
_MOST_NODES: Final = 500
_SAME_SPAN: Final = timedelta(milliseconds=100)  # the length of a span is a 32-bit number in the table


def sliding_now(site: Site, viewer: Viewer, model: TraceModel) -> SlidingNow:
    """The nodes that are above the threshold in the newest span that was scored, and whether that is now."""
    viewer.require(READ)
    viewer.require_admin()
    now = site.now()
    if model.is_shipped:  # its threshold is set while it is in use
        model = replace(model, promise=shipped_promise(site))
    rows = site.sliding_scores.read(since=now - _BACK, model=model.name, version=model.version)
    newest = rows.select(pl.col("window_start").max()).collect().item()
    if newest is None or model.promise.share is None:
        return _none(site, model, until=None, now=now)
    spans = rows.filter(pl.col("window_start") <= newest).collect()
    together = spans.filter(pl.col("window_start") == newest, pl.col("node") == "").row(0, named=True)
    until = newest + timedelta(seconds=together["window_s"])
    if now - until > _longest_age(site):
        return _none(site, model, until=until, now=now)
    nodes = [_node(row, site, model) for row in _above(spans, newest).iter_rows(named=True)]
    return SlidingNow(
        fresh=True,
        until=until,
        why_not="",
        threads=together["threads"],
        above_share=together["above"] / together["scored"],
        expected_share=model.promise.share,
        sentence=_summary(together, nodes, until, now, site, model),
        nodes=nodes[:_MOST_NODES],
    )


def _above(spans: pl.DataFrame, newest: datetime) -> pl.DataFrame:
    """The nodes and jobs above the threshold in the newest span, most scores first, with when that began."""
    key = ["cluster", "node", "job_id"]
    rows = spans.filter(pl.col("node") != "", pl.col("above") > 0).sort(*key, "window_start")
    length = pl.duration(microseconds=(pl.col("window_s") * 1e6).cast(pl.Int64)).shift()
    follows = ((pl.col("window_start").diff() - length).abs() <= _SAME_SPAN).fill_null(False)
    runs = rows.with_columns(follows=follows.over(key)).with_columns(run=(~pl.col("follows")).cum_sum().over(key))
    of_run = runs.with_columns(
        since=pl.col("above_since").min().over(*key, "run"), first=pl.col("window_start").min().over(*key, "run")
    )
    now = of_run.filter(pl.col("window_start") == newest).with_columns(earlier=pl.col("first") == spans["window_start"].min())
    return now.sort(pl.col("above") / pl.col("scored"), "peak", "node", descending=[True, True, False])


def _node(row: dict[str, Any], site: Site, model: TraceModel) -> SlidingNode:
    whose = f"job {row['job_id']}" if row["job_id"] is not None else "no known job"
    since = row["since"].astimezone(ZoneInfo(site.settings.site.time_zone))
    begin = f"since {since:%H:%M:%S}" + (" or earlier" if row["earlier"] else "")
    many = f"{row['threads_above']} of {row['threads']} threads"
    return SlidingNode(
        **{name: row[name] for name in ("node", "job_id", "threads", "threads_above", "since", "earlier", "peak", "cpu")},
        above_share=row["above"] / row["scored"],
        sentence=f"node {row['node']}: {many} above what {_rare(site, model)} reaches, {begin} ({whose})",
    )


def _rare(site: Site, model: TraceModel) -> str:
    """What the threshold is, in words."""
    unit = "second" if site.settings.prometheus.step_s == 1 else "score"
    return f"one calm {unit} in {1 / (model.promise.share or 1):,.0f}"


def _summary(
    together: dict[str, Any], nodes: list[SlidingNode], until: datetime, now: datetime, site: Site, model: TraceModel
) -> str:
    """All threads in one sentence, and what would be nothing special."""
    zone, several = ZoneInfo(site.settings.site.time_zone), len({node.node for node in nodes})
    begin = until - timedelta(seconds=together["window_s"])
    span = f"{begin.astimezone(zone):%H:%M:%S} to {until.astimezone(zone):%H:%M:%S %Z}, {_ago(now - until)} ago"
    who = "No node is above" if not several else "1 node is above" if several == 1 else f"{several:,} nodes are above"
    share = together["above"] / together["scored"]
    return (
        f"{who} the threshold ({span}): {share:.2%} of the scores of {together['threads']:,} threads;"
        f" of calm threads it may be {model.promise.share or 0:.2%}."
    )


def _none(site: Site, model: TraceModel, *, until: datetime | None, now: datetime) -> SlidingNow:
    why_not = _why_not(site, model, ran=until is not None)
    last = "" if until is None else f" The newest score is {_ago(now - until)} old."
    return SlidingNow(
        fresh=False,
        until=until,
        why_not=why_not,
        threads=0,
        above_share=None,
        expected_share=model.promise.share,
        sentence=f"Threads are not scored every second now. {why_not}{last}",
        nodes=[],
    )


def _why_not(site: Site, model: TraceModel, *, ran: bool) -> str:
    """Why there are no new scores, in sentences that say what to do; `ran`: there were some of this model."""
    settings, now = site.settings, datetime.now(UTC)
    if not settings.prometheus.url:
        return "No Prometheus with CPU counters is named (prometheus.url)."
    if not settings.traces.watch:
        return "The watch is told not to read CPU counters (traces.watch)."
    if find_spec("onnxruntime") is None:
        return "Nothing that scores is installed. Run: pip install 'stormpetrel[scoring]'"
    if by_model := why_not_sliding(model, settings):
        return by_model
    watch = read_watch(site.state)
    if watch.state(now) in ("never", "stopped", "silent"):
        return "The watch is not running. Start it: stormpetrel watch"
    sampled = site.trace_coverage.newest()
    if sampled is not None and sampled["next_every"] > 1:
        return f"The watch has no time for it: it judges each node in one of {sampled['next_every']} windows only."
    of_traces = [source for source in watch.sources if source.watcher == TRACES]
    troubles = watch.troubles(now, of=of_traces)
    if troubles:
        return troubles[0].what
    if not of_traces:
        return "The server has no CPU counters, or the watch has not asked for them yet."
    if ran:
        return "No new values come from the nodes: do their exporters run, and does Prometheus scrape them?"
    first_s = settings.traces.window_s + 2 * span_steps(settings) * settings.prometheus.step_s
    return (
        f"No whole window of any thread has been seen yet: the first scores come {format_span(first_s)} after the watch's start."
    )


def _longest_age(site: Site) -> timedelta:
    settings = site.settings
    span_s = span_steps(settings) * settings.prometheus.step_s
    return timedelta(seconds=_SPANS * span_s + settings.prometheus.settle_s + _POLLS_S * site.pace())


def _ago(age: timedelta) -> str:
    return format_span(age.total_seconds())
