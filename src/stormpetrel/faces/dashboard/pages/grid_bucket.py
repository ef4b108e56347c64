"""The part of the page of the grid about one bucket: what was wrong, every kind against its forecast, and where it happened.

LiveSite + Viewer + moment + kind -> bucket_part. It is drawn in a request of its own when a point or a table row is chosen.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from dash import html

from stormpetrel.answers.grid_board import GRID_BOARDS
from stormpetrel.answers.grid_hour import BucketView, KindLine, bucket_view
from stormpetrel.faces.dashboard.blocks import attributes, plot
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.pages.grid_cards import at_of, findings, length, stretch
from stormpetrel.faces.dashboard.tables import TableColumn, marked, text_table
from stormpetrel.figures.grid import where_figure
from stormpetrel.figures.time_spans import NAMES

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

PLACE_WORDS: Final = {"site": "Sites", "submit_host": "Submit hosts", "group": "Groups", "node": "Nodes"}
_BAR_PX: Final = 34


def bucket_part(live: LiveSite, viewer: Viewer, moment: datetime, kind: str) -> list[Component]:
    """Everything about the bucket that a moment lies in."""
    made = GRID_BOARDS.latest(live).value
    view = bucket_view(live, made, viewer, moment, kind)
    link = PageLink.of(live, "/grid")
    return [
        html.Section(
            [
                _heading(live, view, link, last=len(made.value.series) - 1),
                *_what(view),
                html.Div([_kinds(live, view, link), _where(view, made.value.bucket)], className="grid-pair"),
            ],
            className="card",
        )
    ]


def _heading(live: LiveSite, view: BucketView, link: PageLink, *, last: int) -> Component:
    step = view.end - view.start
    beside = [
        html.A(words, href=link.to(at=at_of(live, moment), kind=view.kind), id=f"grid-{name}", className="chip-link")
        for words, name, moment, there in (
            ("◀ before", "earlier", view.start - step, view.place > 0),
            ("after ▶", "later", view.end, view.place < last),
        )
        if there
    ]
    return html.Div(
        [
            html.H2(stretch(live, view.start, view.end), className="card-title"),
            html.Nav(beside, className="grid-steps", **attributes(aria_label="The bucket before and after")),
        ],
        className="grid-heading",
    )


def _what(view: BucketView) -> list[Component]:
    """What is to be said about the bucket in words."""
    if view.gap is not None:
        why = f" {view.gap}" if view.gap else ""
        return [html.P([marked("○", "No data", "chip-wait"), f" This time was not seen whole.{why}"])]
    if view.score is None and not view.alarm:
        said: list[Any] = [marked("○", "Not judged", "chip-wait")]
    else:
        of = "" if view.score is None or view.threshold is None else f" Score {view.score:.3g}, threshold {view.threshold:.3g}."
        said = [marked("▲", "Alarm", "chip-fail") if view.alarm else marked("●", "Calm", "chip-complete"), of]
    parts: list[Component] = [html.P(said)]
    parts += [html.P(f"{NAMES[one.kind.value]}: {one.title}") for one in view.outages]
    return [*parts, findings(view.findings)] if view.findings else parts


def _kinds(live: LiveSite, view: BucketView, link: PageLink) -> Component:
    """Every kind against its forecast; its name shows its places."""
    columns = (
        TableColumn("kind", "Kind", "link"),
        TableColumn("count", "Count", "number"),
        TableColumn("expected", "Expected", "number"),
        TableColumn("band", "99 % of calm"),
        TableColumn("told", ""),
    )
    rows = [{**_kind_row(line), "kind_link": link.to(at=at_of(live, view.start), kind=line.kind)} for line in view.lines]
    table = text_table(columns, rows, caption="Every kind of event against its forecast")
    return html.Div([html.H3("What happened"), html.P("A name shows where it happened.", className="soft small"), table])


def _kind_row(line: KindLine) -> dict[str, Any]:
    known = line.low is not None and line.high is not None
    above = known and line.count is not None and line.count > (line.high or 0.0)
    return {
        "kind": line.kind,
        "count": line.count,
        "expected": line.expected,
        "band": f"{line.low:,.0f} to {line.high:,.0f}" if known else "–",
        "told": ("▲ more" if above else "▼ fewer") if line.is_outside else "",
    }


def _where(view: BucketView, bucket: Any) -> Component:
    """The chosen kind at each site, host, group and node, beside what is usual there."""
    title = html.H3(f"Where: {view.kind}")
    if not view.where:
        return html.Div([title, html.P("The sources do not tell where this happened.", className="soft")])
    words = "Against what is usual: the share that each had in the week before. The largest change comes first."
    parts: list[Any] = [title, html.P(words, className="soft small")]
    for place, bars in view.where.items():
        now = f"in this {length(bucket).removeprefix('1 ')}"
        figure = where_figure(bars.names, bars.counts, bars.usual, now=now, before="usual")
        summary = f"{view.kind} by {PLACE_WORDS[place].lower()} beside what is usual there"
        height = 80 + _BAR_PX * len(bars.names)
        parts += [html.H4(PLACE_WORDS[place]), plot(f"grid-where-{place}", figure, summary, height=height)]
    return html.Div(parts)
