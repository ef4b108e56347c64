"""What is unusual on the nodes now: sentences with their evidence, the score of every second, and each node as a whole.

NodeFindings -> findings; SlidingNow -> every_second. The newest windows count, whatever the page has chosen.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from dash import html

from stormpetrel.answers.nodes.findings import NOTHING_UNUSUAL, rarity
from stormpetrel.answers.nodes.sliding import QUICK_SCORE
from stormpetrel.answers.schemas.nodes import NodeFindings
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table
from stormpetrel.records.window_frames import METRIC_NAMES
from stormpetrel.store.source_health import format_span

if TYPE_CHECKING:
    from typing import Any

    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.traces import OddNode, RegionSuspect, SlidingNow, WholeNode

_MOST: Final = 8  # sentences
_LISTED_THREADS: Final = 16
_ALIKE: Final = 0.25  # a window before that is odd in another direction is not like this one
_OLD: Final = timedelta(minutes=10)  # what was measured longer ago is not how it is now


def findings(live: LiveSite, answer: NodeFindings) -> list[Component]:
    """The sentences about whole windows, oddest first, and the table of nodes as a whole."""
    zone = ZoneInfo(live.settings.site.time_zone)
    link = PageLink.of(live, "/nodes", {})
    parts: list[Component] = [html.H3("In whole windows"), *_age(answer, zone)]
    if not answer.judged:
        text = "Nodes as a whole are not judged yet: the site needs its own model: stormpetrel traces train"
        parts.append(html.P(text, className="soft"))
    elif not answer.findings:
        parts.append(html.P(NOTHING_UNUSUAL))
    parts += [_finding(finding, zone, link) for finding in answer.findings[:_MOST]]
    if len(answer.findings) > _MOST:
        parts.append(html.P(f"And {len(answer.findings) - _MOST:,} more: stormpetrel traces diagnose", className="soft small"))
    parts += _known_troubles(answer.inside, zone, link)
    if answer.cluster is not None or answer.nodes:
        parts.append(html.H3("Each node, all of its jobs taken together"))
    if answer.cluster is not None:
        parts.append(html.P(f"{_capital(answer.cluster.sentence)}.", className="soft small"))
    if answer.nodes:
        parts.append(_whole(answer.nodes, zone, link))
    return parts


def every_second(live: LiveSite, answer: SlidingNow) -> list[Component]:
    """The nodes with threads above the threshold in the newest seconds, or why nobody knows."""
    link = PageLink.of(live, "/nodes", {})
    parts: list[Component] = [
        html.H3("In the newest seconds"),
        html.P(answer.sentence, className="" if answer.fresh else "soft small"),
    ]
    lines = [html.Li(html.A(node.sentence, href=link.to(node=node.node))) for node in answer.nodes[:_MOST]]
    if lines:
        parts.append(html.Ul(lines, className="node-seconds"))
    if len(answer.nodes) > _MOST:
        parts.append(html.P(f"And {len(answer.nodes) - _MOST:,} more: stormpetrel traces diagnose", className="soft small"))
    if answer.fresh:
        parts.append(html.P(QUICK_SCORE, className="soft small"))
    return parts


def _age(answer: NodeFindings, zone: ZoneInfo) -> list[Component]:
    """When the newest windows ended, and that this is not now where it is long ago."""
    if answer.windows_until is None:
        return []
    age = answer.as_of - answer.windows_until
    ended = f"The newest windows ended {answer.windows_until.astimezone(zone):%d %b %Y, %H:%M:%S}"
    if age <= _OLD:
        return [html.P(f"{ended}.", className="soft small")]
    return [html.P([html.B(f"{ended}, {format_span(age.total_seconds())} ago."), " This is how it was then, not now."])]


def _finding(finding: OddNode, zone: ZoneInfo, link: PageLink) -> Component:
    cpus = ", ".join(str(cpu) for cpu in finding.threads[:_LISTED_THREADS])
    more = ", …" if len(finding.threads) > _LISTED_THREADS else ""
    which = "threads" if len(finding.threads) > 1 else "thread"
    rows: list[Any] = [
        html.Li(f"{finding.mode}: {finding.before:.0%} before, {finding.now:.0%} since {_clock(finding.since, zone)}"),
        html.Li(f"{which} {cpus}{more} ({len(finding.threads)} of {finding.of_threads})"),
        html.Li(f"{rarity(finding.score)} calm node windows is as odd"),
    ]
    similar = [window for window in finding.similar if window.likeness >= _ALIKE]
    if similar:
        alike = "; ".join(
            f"{window.node} at {_clock(window.window_start, zone)} ({window.likeness:.0%} alike)" for window in similar
        )
        rows.append(html.Li(f"windows like it before: {alike}"))
    return html.Details(
        [
            html.Summary([html.A(finding.sentence, href=link.to(node=finding.node))]),
            html.Ul(rows, className="small", style={"paddingLeft": "2.2rem"}),
        ],
        className="node-finding",
        open=True,
    )


def _known_troubles(inside: list[RegionSuspect], zone: ZoneInfo, link: PageLink) -> list[Component]:
    """Who lay in a region that people have named, most windows first."""
    if not inside:
        return []
    lines = []
    for suspect in inside[:_MOST]:
        whose = f"job {suspect.job_id}" if suspect.job_id is not None else "no known job"
        when = f"{_clock(suspect.since, zone)} to {_clock(suspect.until, zone)}"
        windows = f"{suspect.inside:,} of {suspect.windows:,} windows on {len(suspect.cpus)} CPUs"
        text = f"{suspect.region}: node {suspect.node}, {whose}: {windows}, {when}"
        lines.append(html.Li(html.A(text, href=link.to(node=suspect.node))))
    parts: list[Component] = [html.H3("Like a trouble that was named before"), html.Ul(lines, className="node-seconds")]
    if len(inside) > _MOST:
        parts.append(html.P(f"And {len(inside) - _MOST:,} more: stormpetrel traces diagnose", className="soft small"))
    return parts


def _whole(nodes: list[WholeNode], zone: ZoneInfo, link: PageLink) -> Component:
    measured = any(row.unusual for row in nodes)
    metrics = (
        TableColumn("metric", "Unusual", width=150, hint="The metric that is farthest from what is usual"),
        TableColumn("now", "Now", "percent", 90),
        TableColumn("usual", "Usually", "percent", 100),
    )
    columns = (
        TableColumn("node", "Node", "link", 120),
        TableColumn("rare", "Calm moments as unusual", width=220),
        TableColumn("score", "Score", "decimal", 100, "One in 10 to the power of this is as unusual: 3 is a thousandth"),
        *(metrics if measured else ()),
        TableColumn("when", "Window", width=140),
    )
    rows = [
        {
            "node": row.node,
            "node_link": link.to(node=row.node),
            "rare": rarity(row.score) if row.score >= 1 else "as usual",
            "score": round(row.score, 1),
            "metric": METRIC_NAMES[row.unusual] if row.unusual else "",
            "now": None if row.now is None else 100 * row.now,
            "usual": None if row.usual is None else 100 * row.usual,
            "when": _clock(row.window_start, zone),
        }
        for row in nodes
    ]
    return sortable_table("nodes-whole", columns, rows, label="Each node as a whole, the most unusual first", most_px=300)


def _clock(moment: datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%d %b, %H:%M}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
