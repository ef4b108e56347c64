"""The first page: whether to act. Open incidents, jobs at risk, nodes, the cluster's hour, sources, what is new since last time.

NowAnswer -> one line, then cards; what a site does not have is left out. When this browser was here last is kept in the browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from dash import Dash, Input, Output, dcc, html

from stormpetrel.answers.overview.now import news_since, now_page
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, page_head, plot
from stormpetrel.faces.dashboard.filling import PARTIAL, Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.pages.incident_cards import format_time, incident_chips, linked
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table
from stormpetrel.figures.nodes import ROW_PX, columns_of, node_map
from stormpetrel.records.times import EARLIEST, LATEST
from stormpetrel.store.source_health import format_span

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.alarms import IncidentLine
    from stormpetrel.answers.schemas.health import HealthSource
    from stormpetrel.answers.schemas.now import NowAnswer, NowHour
    from stormpetrel.answers.viewer import Viewer

_LEVELS: Final = {
    "ok": ("✓", "OK", "chip-complete"), "warning": ("!", "Look", "chip-wait"), "problem": ("▲", "Act", "chip-fail"),
}  # fmt: skip
_MOST_KINDS: Final = 6
_MAP_PX: Final = (90, 420)  # the lowest and the highest


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    return html.Div([page_head("Now"), *fill(_filling(live), viewer, query), dcc.Store(id="now-since")], className="now-page")


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    in_browser(app, "now.visit", Output("now-since", "data"), Input("now-at", "data"), prevent_initial_call=False)

    @app.callback(Output("now-news", "children"), Input("now-since", "data"))
    def show_news(since: str | None) -> Any:
        """What is new, for a time that the browser has kept."""
        moment = time_of(since)
        try:
            return None if moment is None else _news(live, current_viewer(), moment)
        except StormpetrelError as error:
            return html.P(str(error), className="soft small")


PAGE: Final = DashboardPage("/", "Now", 0, layout, register)


def time_of(text: object) -> datetime | None:
    """A time that a browser has kept; None where it is none."""
    try:
        moment = datetime.fromisoformat(str(text)[:40])
        utc = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return utc if EARLIEST <= utc <= LATEST else None


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        """What changes with all that is shown: at least once a minute, since lags grow."""
        answer = now_page(live, viewer)
        parts = (answer.headline, *(line.model_dump_json() for line in answer.incidents), answer.hour, answer.at_risk_total)
        partial = PARTIAL if answer.pending else ""
        return f"{partial}{hash(str(parts))} {answer.pending} {len(answer.nodes)} {live.version} {datetime.now(UTC):%H:%M}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        del query
        return _body(live, now_page(live, viewer))

    return Filling("now", stamp, body, "The figures are", is_read=False)


def _body(live: LiveSite, answer: NowAnswer) -> list[Component]:
    left = [*_incidents(live, answer), *_at_risk(live, answer)]
    right = [*_nodes(answer), *_hour(live, answer), *_sources(answer.sources)]
    return [
        html.P(
            [status_chip(*_LEVELS[answer.level]), html.Span(answer.headline)],
            className=f"health-head health-{answer.level}",
            role="status",
            id="now-headline",
        ),
        html.Div(id="now-news"),
        html.Div([html.Div(side) for side in (left, right) if side], className="now-sides"),
        dcc.Store(id="now-at", data=answer.as_of.isoformat()),
        as_of(live, answer.as_of),
    ]


def _incidents(live: LiveSite, answer: NowAnswer) -> list[Component]:
    if not answer.incidents:
        return []
    zone = live.settings.site.time_zone
    more = answer.incidents_total - len(answer.incidents)
    rest = [html.P(linked(live, f"{more:,} more", "/alarms"))] if more else []
    items = [_incident(live, line, zone) for line in answer.incidents]
    return [card("Open incidents", html.Ul(items, className="now-lines"), *rest)]


def _incident(live: LiveSite, line: IncidentLine, zone: str) -> Component:
    title = linked(live, line.title, f"/alarms?incident={line.id}")
    since = html.Span(f"Incident {line.id}, since {format_time(line.since, zone)}", className="soft small")
    return html.Li([html.P([*incident_chips(line), since], className="incident-like"), html.P(title)])


def _at_risk(live: LiveSite, answer: NowAnswer) -> list[Component]:
    if not answer.at_risk:
        return []
    columns = (
        TableColumn("job", "Job"), TableColumn("user", "User"), TableColumn("name", "Name"), TableColumn("state", "State"),
        TableColumn("risk", "Risk", "percent"),
    )  # fmt: skip
    rows = [
        {
            "job": html.Span(linked(live, row.job, f"/jobs?{urlencode({'view': 'risk', 'job': row.ref})}")),
            "user": row.user,
            "name": row.job_name,
            "state": (row.state or "").replace("_", " ").lower(),
            "risk": None if row.risk is None else 100 * row.risk,
        }
        for row in answer.at_risk
    ]
    more = answer.at_risk_total - len(rows)
    rest = [html.P(linked(live, f"{more:,} more", "/jobs?view=risk"))] if more > 0 else []
    return [card("Jobs at risk", text_table(columns, rows, caption="Jobs at risk, the riskiest first"), *rest)]


def _nodes(answer: NowAnswer) -> list[Component]:
    if not answer.nodes:
        return [_waits("Nodes")] if "nodes" in answer.pending else []
    count = len(answer.nodes)
    bad = sum(bool(node.incidents) for node in answer.nodes)
    summary = f"{count:,} {'node' if count == 1 else 'nodes'}, {bad:,} with an open incident."
    rows = -(-count // columns_of(count))
    height = int(min(max(_MAP_PX[0], 40 + ROW_PX * rows), _MAP_PX[1]))
    text = "A cell is a node: its share of failed jobs in seven days or of unusual CPU windows; full if an incident is open."
    return [
        card(
            "Nodes",
            html.P(summary),
            plot("now-nodes", node_map(answer.nodes), f"{summary} {text}", height=height),
            _print(text),
        )
    ]


def _hour(live: LiveSite, answer: NowAnswer) -> list[Component]:
    hour, cluster = answer.hour, answer.grid
    if hour is None or cluster is None:
        return [_waits("The cluster")] if "hour" in answer.pending else []
    rows = [
        {
            "kind": kind.kind,
            "count": kind.count,
            "expected": kind.expected,
            "outside": "" if kind.outside is None else f"{kind.outside} the band",
        }
        for kind in hour.kinds[:_MOST_KINDS]
    ]
    columns = (
        TableColumn("kind", "Events"), TableColumn("count", "Count", "number"), TableColumn("expected", "Expected", "number"),
        TableColumn("outside", "Unusual"),
    )  # fmt: skip
    table = text_table(columns, rows, caption="Events of the newest hour against their forecast")
    link = html.P(linked(live, "More on the page Cluster", "/cluster"), className="small")
    return [card(f"The cluster from {_span(live, hour)}", html.P(cluster.headline), table, link)]


def _waits(name: str) -> Component:
    return card(name, html.P("Being computed: it appears here in a few seconds.", className="soft small"))


def _span(live: LiveSite, hour: NowHour) -> str:
    zone = ZoneInfo(live.settings.site.time_zone)
    start = hour.start.astimezone(zone)
    end = datetime.fromtimestamp(hour.start.timestamp() + hour.bucket_s, zone)
    return f"{start:%d %b, %H:%M} to {end:%H:%M}"


def _sources(sources: list[HealthSource]) -> list[Component]:
    if not sources:
        return []
    columns = (TableColumn("name", "Source"), TableColumn("lag", "Last read well"), TableColumn("problem", "Problem"))
    rows = [
        {
            "name": source.name,
            "lag": "never" if source.lag_s is None else f"{format_span(source.lag_s)} ago",
            "problem": source.problem,
        }
        for source in sources
    ]
    return [card("Sources", text_table(columns, rows, caption="Lag of each source"))]


def _news(live: LiveSite, viewer: Viewer, since: datetime) -> Component | None:
    answer, zone = news_since(live, viewer, since), live.settings.site.time_zone
    if not answer.news:
        return html.P(f"Nothing new since your last visit, {format_time(since, zone)}.", className="soft small now-quiet")
    items = [
        html.Li(
            [
                html.Time(format_time(line.time, zone), dateTime=line.time.isoformat()),
                html.Span([linked(live, f"Incident {line.incident}", f"/alarms?incident={line.incident}"), f" {line.words}"]),
            ]
        )
        for line in answer.news
    ]
    return card(f"New since {format_time(since, zone)}", html.Ol(items, className="incident-moments"))


def _print(text: str) -> Component:
    return html.P(text, className="soft small")
