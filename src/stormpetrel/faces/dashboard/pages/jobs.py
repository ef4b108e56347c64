"""The page of jobs: live figures, the table, and next to it everything about the job that is open.

What is shown is in the link: view, search, sort, filters and the open job. `assets/jobs.js` keeps grid and link in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import Dash, Input, Output, dcc, html, no_update
from dash_ag_grid import AgGrid

from stormpetrel.answers.jobs.one_job import PRIOR_SPEAKS
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes, notice, page_head, stat, stats
from stormpetrel.faces.dashboard.freshness import freshness
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.pages.job_panel import register_panel
from stormpetrel.faces.dashboard.pages.job_table import VIEWS, job_with_id, live_figures, table_rows

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_BLOCK: Final = 100  # rows per request


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page as it is before the browser has requested rows."""
    return html.Div(
        [
            page_head("Jobs", "", html.Div(_figures(live, viewer), id="jobs-figures", className="jobs-figures")),
            html.Div(_notices(live, viewer), id="jobs-notices"),
            html.P(id="jobs-heard", className="hidden", **attributes(aria_live="polite")),
            html.Div([_views(viewer), _search()], className="jobs-bar"),
            html.Div([_table(live), _panel()], id="jobs-split", className="jobs-split"),
            dcc.Store(id="jobs-request"),
            dcc.Store(id="jobs-rows"),
            dcc.Store(id="jobs-open"),
            dcc.Store(id="jobs-asked"),
            dcc.Store(id="jobs-found"),
            dcc.Store(id="panel-stamp"),
            dcc.Store(
                id="jobs-followed"
            ),  # nothing is kept in it: a callback without an output needs all of its inputs on every page
        ],
        className="jobs",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    in_browser(
        app, "jobs.follow", Output("jobs-followed", "data"), Input("jobs-grid", "id"), Input("shell-link", "search"),
        prevent_initial_call=False,
    )  # fmt: skip
    in_browser(app, "jobs.refresh", Output("jobs-followed", "data", allow_duplicate=True), Input("shell-version", "data"))
    in_browser(app, "jobs.take", Output("jobs-count", "children"), Output("jobs-clear", "hidden"), Input("jobs-rows", "data"))
    in_browser(app, "jobs.search", Input("jobs-search", "value"))
    in_browser(app, "jobs.clear", Input("jobs-clear", "n_clicks"))
    in_browser(app, "jobs.open", Input("jobs-found", "data"))

    in_browser(app, "jobs.submitted", Output("jobs-asked", "data"), Input("jobs-search", "n_submit"))

    @app.callback(Output("jobs-found", "data"), Input("jobs-asked", "data"), prevent_initial_call=True)
    def find(wanted: dict[str, Any] | None) -> Any:
        ref = job_with_id(live, current_viewer(), str(wanted["text"])) if wanted else None
        return {**wanted, "ref": ref} if wanted and ref else no_update

    @app.callback(Output("jobs-rows", "data"), Input("jobs-request", "data"), prevent_initial_call=True)
    def rows(request: dict[str, Any] | None) -> Any:
        if not request:
            return no_update
        try:
            return table_rows(live, current_viewer(), {**request, "time_zone": live.settings.site.time_zone})
        except StormpetrelError as error:
            return {"id": request.get("id"), "rows": [], "total": 0, "order": "", "problem": str(error)}

    @app.callback(
        Output("jobs-figures", "children"),
        Output("jobs-notices", "children"),
        Output("jobs-heard", "children"),
        Input("shell-version", "data"),
        Input("shell-freshness", "data-state"),
        prevent_initial_call=True,
    )
    def figures(*_: Any) -> Any:
        viewer = current_viewer()
        at_risk = live_figures(live, viewer).at_risk
        return _figures(live, viewer), _notices(live, viewer), f"{at_risk} {'job is' if at_risk == 1 else 'jobs are'} at risk."

    register_panel(app, live)


PAGE: Final = DashboardPage("/jobs", "Jobs", 0, layout, register, follows_link=True, heading="Jobs")


def _figures(live: LiveSite, viewer: Viewer) -> Component:
    now, data = live_figures(live, viewer), freshness(live, viewer)
    return stats(
        stat("Waiting", f"{now.waiting:,}"),
        *([stat("Cannot run", f"{now.stuck:,}", tone="bad")] if now.stuck else []),
        stat("Running", f"{now.running:,}"),
        stat("At risk now", f"{now.at_risk:,}", tone="bad" if now.at_risk else ""),
        stat("Failed today", f"{now.failed_today:,}"),
        stat("Age of the data", data.age, tone="bad" if data.state == "stopped" else ""),
    )


def _notices(live: LiveSite, viewer: Viewer) -> Component | None:
    """What a person should know before reading the table: there is nothing in it yet, or it does not move."""
    now, data = live_figures(live, viewer), freshness(live, viewer)
    if not now.jobs:
        return notice("There are no jobs yet.", "Ingest them: stormpetrel ingest jobs --live. Then start: stormpetrel watch")
    if not now.predicted:
        return notice("There are no predictions yet.", "Train a model: stormpetrel jobs train. Then start: stormpetrel watch")
    if data.state in ("stopped", "trouble"):
        return notice(f"{data.words}.", data.hint, kind="warning")
    return notice(PRIOR_SPEAKS, "A model of the site follows as soon as enough jobs have ended.") if live.is_prior else None


def _table(live: LiveSite) -> Component:
    clear = html.Button("Clear filters", id="jobs-clear", type="button", className="plain-button", hidden=True)
    count = html.P(id="jobs-count", className="soft small", role="status")
    return html.Section(
        [html.Div([count, clear], className="jobs-above"), _grid(live)],
        className="jobs-table",
        **attributes(aria_label="Table of jobs"),
    )


def _panel() -> Component:
    return html.Aside(id="job-panel", className="job-panel", hidden=True, tabIndex="-1", **attributes(aria_label="The open job"))


def _views(viewer: Viewer) -> Component:
    links = [
        html.Li(html.A(view.words, href=f"?view={view.name}", className="chip-link", **attributes(data_view=view.name)))
        for view in VIEWS
        if view.name != "mine" or viewer.user
    ]
    return html.Nav(html.Ul(links, className="chips"), **attributes(aria_label="Views of the table"))


def _search() -> Component:
    return html.Div(
        [
            html.Label("Search by job id, user, name or account", htmlFor="jobs-search", className="hidden"),
            dcc.Input(
                id="jobs-search",
                type="text",
                className="input",
                placeholder="Job id, user, name …",
                debounce=0.35,
                maxLength=200,
                autoComplete="off",
            ),
        ],
        className="jobs-search",
        role="search",
    )


def _grid(live: LiveSite) -> Any:
    return AgGrid(
        id="jobs-grid",
        className="grid jobs-grid",
        rowModelType="infinite",
        columnDefs=_columns(live.settings.site.time_zone),
        defaultColDef={
            "resizable": True,
            "sortable": True,
            "suppressHeaderMenuButton": True,
            "suppressMovable": True,
            "sortingOrder": ["desc", "asc", None],
            "minWidth": 80,
        },
        getRowId="params.data.ref",
        dashGridOptions={
            "theme": "themeQuartz",
            "suppressCsvExport": True,  # it would write formulas as they are
            "suppressExcelExport": True,
            "cacheBlockSize": _BLOCK,
            "maxBlocksInCache": 8,
            "maxConcurrentDatasourceRequests": 1,
            "infiniteInitialRowCount": 20,
            "blockLoadDebounceMillis": 40,
            "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": False},
            "suppressCellFocus": False,
            "enableCellTextSelection": True,
            "ensureDomOrder": True,
            "suppressColumnVirtualisation": True,
            "tooltipShowDelay": 600,
            "animateRows": False,
            "localeText": {"noRowsToShow": "No job fits"},
        },
        style={"height": None, "width": "100%"},
    )


def _columns(zone: str) -> list[dict[str, Any]]:
    text = {"filter": "agTextColumnFilter", "filterParams": {"maxNumConditions": 1, "buttons": ["reset"], "debounceMs": 350}}
    number = {**text, "filter": "agNumberColumnFilter"}
    day = {**text, "filter": "agDateColumnFilter"}
    return [
        {"field": "job", "headerName": "Job", "width": 98, **text},
        {"field": "user", "headerName": "User", "width": 106, "tooltipField": "user", **text},
        {"field": "job_name", "headerName": "Name", "flex": 1, "minWidth": 120, "tooltipField": "job_name", **text},
        {"field": "state", "headerName": "State", "width": 138, "cellRenderer": "JobState", **text},
        {
            "field": "waiting_words",
            "headerName": "Waits for",
            "headerTooltip": "The scheduler's reason for a job that has not started",
            "width": 200,
            "tooltipField": "waiting_words",
            "cellRenderer": "JobWaiting",
            **text,
        },
        {"field": "submit_time", "headerName": "Submitted", "headerTooltip": f"Time zone: {zone}", "width": 130, **day},
        {"field": "start_time", "headerName": "Start", "headerTooltip": f"Time zone: {zone}", "width": 130, **day},
        {
            "field": "risk",
            "headerName": "Failure risk",
            "headerTooltip": "How likely it is that the job fails, in percent",
            "width": 146,
            "cellRenderer": "JobRisk",
            **number,
        },
        {
            "field": "prediction",
            "headerName": "Flagged",
            "headerTooltip": "Whether the risk reaches the site's threshold",
            "width": 118,
            "cellRenderer": "JobPrediction",
            **text,
        },
        {
            "field": "likeliest",
            "headerName": "If it fails",
            "headerTooltip": "What a failure would most likely be",
            "width": 152,
            "cellRenderer": "JobOutcome",
            **text,
        },
        {"field": "moment", "headerName": "Moment", "headerTooltip": "When this was predicted", "width": 125, **text},
        {"field": "account", "headerName": "Account", "width": 110, "tooltipField": "account", **text},
        {"field": "partition", "headerName": "Partition", "width": 110, "tooltipField": "partition", **text},
    ]
