"""The part of the page Cluster about one bucket: what was wrong, every kind against its forecast, and where it happened.

LiveSite + Viewer + BucketQuestion -> bucket_part. It is drawn in a request of its own when a point or a table row is chosen.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from dash import html

from stormpetrel.answers.cluster.bucket import cluster_bucket
from stormpetrel.answers.schemas.cluster import BucketQuestion, ClusterBucketDetail, ClusterKind
from stormpetrel.faces.dashboard.blocks import attributes, plot
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.pages.cluster_cards import at_of, findings, length, stretch
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table
from stormpetrel.figures.cluster.counts import where_figure
from stormpetrel.figures.time_spans import NAMES

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

PLACE_LABELS: Final = {"site": "Sites", "submit_host": "Submit hosts", "group": "Groups", "node": "Nodes"}
_BAR_PX: Final = 34


def bucket_part(live: LiveSite, viewer: Viewer, question: BucketQuestion) -> list[Component]:
    """Everything about the bucket that a moment lies in."""
    bucket = cluster_bucket(live, viewer, question, board=live.boards.cluster.latest(live).value)
    link = PageLink.of(live, "/cluster")
    return [
        html.Section(
            [
                _heading(live, bucket, link),
                *_what(bucket),
                html.Div([_kinds(live, bucket, link), _where(bucket)], className="cluster-pair"),
            ],
            className="card",
        )
    ]


def _heading(live: LiveSite, bucket: ClusterBucketDetail, link: PageLink) -> Component:
    steps = [
        html.A(text, href=link.to(at=at_of(live, moment), kind=bucket.kind), id=f"cluster-{name}", className="chip-link")
        for text, name, moment in (("◀ before", "earlier", bucket.earlier), ("after ▶", "later", bucket.later))
        if moment is not None
    ]
    return html.Div(
        [
            html.H2(stretch(live, bucket.start, bucket.end), className="card-title"),
            html.Nav(steps, className="cluster-steps", **attributes(aria_label="The bucket before and after")),
        ],
        className="cluster-heading",
    )


def _what(bucket: ClusterBucketDetail) -> list[Component]:
    """The findings of a bucket as text."""
    if bucket.gap is not None:
        why = f" {bucket.gap}" if bucket.gap else ""
        return [html.P([status_chip("○", "No data", "chip-wait"), f" The data of this time are incomplete.{why}"])]
    score, threshold = bucket.score, bucket.threshold
    if score is None and not bucket.alarm:
        verdict: list[Any] = [status_chip("○", "Not judged", "chip-wait")]
    else:
        numbers = "" if score is None or threshold is None else f" Score {score:.3g}, threshold {threshold:.3g}."
        verdict = [
            status_chip("▲", "Alarm", "chip-fail") if bucket.alarm else status_chip("●", "No alarm", "chip-complete"),
            numbers,
        ]
    parts: list[Component] = [html.P(verdict)]
    parts += [html.P(f"{NAMES[outage.kind]}: {outage.title}") for outage in bucket.outages]
    return [*parts, findings(bucket.findings)] if bucket.findings else parts


def _kinds(live: LiveSite, bucket: ClusterBucketDetail, link: PageLink) -> Component:
    """Every kind against its forecast; its name shows its places."""
    columns = (
        TableColumn("kind", "Kind", "link"),
        TableColumn("count", "Count", "number"),
        TableColumn("expected", "Expected", "number"),
        TableColumn("band", "99 % of calm"),
        TableColumn("outside", ""),
    )
    rows = [{**_kind_row(kind), "kind_link": link.to(at=at_of(live, bucket.start), kind=kind.kind)} for kind in bucket.kinds]
    table = text_table(columns, rows, caption="Every kind of event against its forecast")
    return html.Div([html.H3("What happened"), html.P("A name shows where it happened.", className="soft small"), table])


def _kind_row(row: ClusterKind) -> dict[str, Any]:
    known = row.low is not None and row.high is not None
    return {
        "kind": row.kind,
        "count": row.count,
        "expected": row.expected,
        "band": f"{row.low:,.0f} to {row.high:,.0f}" if known else "–",
        "outside": {"above": "▲ more", "below": "▼ fewer", None: ""}[row.outside],
    }


def _where(bucket: ClusterBucketDetail) -> Component:
    """The chosen kind at each site, host, group and node, next to what is usual there."""
    title = html.H3(f"Where: {bucket.kind}")
    if not bucket.where:
        return html.Div([title, html.P("The sources do not say where this happened.", className="soft")])
    text = "Against what is usual: the share that each had in the week before. The largest change comes first."
    parts: list[Any] = [title, html.P(text, className="soft small")]
    now = f"in this {length((bucket.end - bucket.start) // timedelta(seconds=1)).removeprefix('1 ')}"
    for place, bars in bucket.where.items():
        figure = where_figure(bars.names, bars.counts, bars.usual, now=now, before="usual")
        summary = f"{bucket.kind} by {PLACE_LABELS[place].lower()} next to what is usual there"
        height = 80 + _BAR_PX * len(bars.names)
        parts += [html.H4(PLACE_LABELS[place]), plot(f"cluster-where-{place}", figure, summary, height=height)]
    return html.Div(parts)
