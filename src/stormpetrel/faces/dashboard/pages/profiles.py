"""The page of profiles: the kinds of jobs that the site runs, what each is like and who runs them.

ProfileView -> each in words, why so many, how jobs end, what they use, who runs them, what goes with failing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import Dash, html

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history.profiles import ProfileView
from stormpetrel.answers.viewer import READ
from stormpetrel.faces.dashboard.blocks import card, controls, page_head, plot
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages.job_table import STATE_LABELS
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, sortable_table, text_table
from stormpetrel.figures import profiles as figures
from stormpetrel.figures.palette import BLUE, VERMILION
from stormpetrel.figures.quality import correlation_heatmap
from stormpetrel.jobs.preparation import LABELS, NEVER_STARTED_LABEL
from stormpetrel.records.units import GB, format_memory

if TYPE_CHECKING:
    from dash.development.base_component import Component
    from plotly.graph_objects import Figure

    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_ALL: Final = "all"
_PLAIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}
_NUMBERS: Final = "The numbers of this figure"
_HOUR_S: Final = 3600
_MEANS: Final = (
    ("cpu", "CPUs"), ("mem_gb", "Memory"), ("run_time_s", "Run time (s)"), ("wait_time_s", "Wait time (s)"),
)  # fmt: skip


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    return html.Div([page_head("Profiles", _lead(viewer)), *fill(_filling(live), viewer, query)])


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))


PAGE: Final = DashboardPage("/profiles", "Profiles", 3, layout, register, heading="Jobs")


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        view = live.boards.profiles.peek(live, scope_of(viewer))
        return None if view is None else str(view.version)

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        viewer.require(READ)
        latest = live.boards.profiles.latest(live, scope_of(viewer))
        profile = chosen(query, "profile", _names(latest.value), _ALL)
        return latest.answer(("profiles page", profile), lambda: _body(live, latest, profile))

    return Filling("profiles", stamp, body, "The profiles are")


def _body(live: LiveSite, latest: Snapshot[ProfileView], profile: str) -> list[Component]:
    view = latest.value
    return [
        _descriptions(view),
        html.Div([_labels(view), _elbow(view)], className="cards"),
        _resources(view),
        html.Div(_compositions(view), className="cards"),
        html.Div([*_heat(view), _users(live, view, profile)], className="cards"),
        as_of(
            live,
            latest.at,
            f"{view.jobs:,} jobs.",
            "These are your own jobs, in the profiles of the whole site." if view.own_only else "",
        ),
    ]


def _names(view: ProfileView) -> dict[str, str]:
    return {_ALL: "All", **{str(profile): f"Profile {profile}" for profile in range(view.k)}}


def _descriptions(view: ProfileView) -> Component:
    jobs = dict(view.tables.resources.select("profile", "jobs").iter_rows())
    total = max(1, sum(jobs.values()))
    items = []
    for profile, text in enumerate(view.words):
        share = 100 * jobs.get(profile, 0) / total
        bar: Any = {"aria-hidden": "true"}
        items.append(
            html.Li(
                [
                    html.H3(f"Profile {profile}"),
                    html.P(f"{text[:1].upper()}{text[1:]}."),
                    html.Div(html.Span(style={"width": f"{share:.1f}%"}), className="share-bar", **bar),
                    html.P(f"{jobs.get(profile, 0):,} jobs, {share:.0f} % of those shown", className="soft small"),
                ],
                className="profile-card",
            )
        )
    learnt = "as the model in use knows them" if view.version is not None else "found for this page, since there is no model yet"
    return card(
        "One kind of job" if view.k == 1 else f"{view.k} kinds of jobs",
        html.P(f"By the request of a job, known at submission; {learnt}.", className="soft small"),
        html.Ul(items, className="profile-cards"),
    )


def _labels(view: ProfileView) -> Component:
    label = pl.col("state").replace_strict(STATE_LABELS, default=pl.col("state"))
    figure = figures.label_distribution_figure(view.labels.with_columns(label))
    figure.update_xaxes(title_text=None)
    counted = dict(view.labels.group_by("label").agg(pl.col("count").sum()).iter_rows())
    never = counted.pop(NEVER_STARTED_LABEL, 0)
    ran = max(1, sum(counted.values()))
    shares = [f"{100 * counted[name] / ran:.0f} % {name.lower()}" for name in LABELS if name in counted]
    apart = f" {never:,} more never started." if never else ""
    figure.update_yaxes(range=[0, 112 * max([0.01, *view.labels["share"]])])  # room for the numbers above the bars
    return _drawn(
        "How jobs ended", "profiles-labels", figure, f"Of all jobs that ran and ended: {', '.join(shares)}.{apart}", height=360
    )


def _elbow(view: ProfileView) -> Component:
    figure = figures.elbow_figure(view.elbow, view.k)
    columns = (TableColumn("k", "Profiles", "number"), TableColumn("distortion", "Distortion", "number"))
    table = text_table(columns, view.elbow.iter_rows(named=True), caption="Distortion by number of profiles")
    return _drawn("Why so many", "profiles-elbow", figure, view.why, numbers(_NUMBERS, table), height=360)


def _resources(view: ProfileView) -> Component:
    figure = figures.profile_resources_figure(view.tables.resources)
    figure.update_yaxes(dtick="D2")
    columns = [TableColumn("profile", "Profile"), TableColumn("jobs", "Jobs", "number")]
    columns += [TableColumn(name, title, "number") for name, title in _MEANS]
    rows = [
        {"profile": f"Profile {row['profile']}", "jobs": row["jobs"], **{name: _mean(row, name) for name, _ in _MEANS}}
        for row in view.tables.resources.iter_rows(named=True)
    ]
    table = text_table(columns, rows, caption="Resources of each profile, mean and standard deviation")
    summary = "Mean of what jobs of each profile used and how long they took; the bar is one standard deviation."
    return _drawn("What they use", "profiles-resources", figure, summary, numbers(_NUMBERS, table), height=520)


def _compositions(view: ProfileView) -> list[Component]:
    limits, tables = view.limits, view.tables
    hours = (limits.short_below_s / _HOUR_S, limits.long_above_s / _HOUR_S)
    parts = (
        ("How long they run", "duration", tables.duration, "jobs", f"Short is below {hours[0]:g} h, long above {hours[1]:g} h."),
        ("How they end", "status", tables.status, "jobs", "Other: cancelled, not counted, or not ended."),
        (
            "What they need most", "type", tables.types, "jobs",
            f"Memory (compute): more than {limits.mem_factor:g} times the median memory per CPU (less than one such part).",
        ),
        (
            "How active their users are", "activity", tables.activity, "users",
            f"New: fewer than {limits.new_below_jobs:,} jobs; frequent: {limits.frequent_from_jobs:,} or more.",
        ),
    )  # fmt: skip
    return [_composition(*part) for part in parts if _has_values(part[2])]


def _composition(title: str, name: str, table: pl.DataFrame, unit: str, summary: str) -> Component:
    figure = figures.profile_composition_figure(table, "", unit=unit)
    figure.update_xaxes(title_text=None)
    columns = [
        TableColumn("profile", "Profile"),
        *(TableColumn(column, column, "number") for column in table.columns if column != "profile"),
    ]
    rows = [{**row, "profile": f"Profile {row['profile']}"} for row in table.iter_rows(named=True)]
    figures_table = numbers(_NUMBERS, text_table(columns, rows, caption=f"{title}: {unit} by profile"))
    return _drawn(title, f"profiles-{name}", figure, summary, figures_table, height=340)


def _heat(view: ProfileView) -> list[Component]:
    if len(view.heat_names) < 2:
        return []
    names = [name.removesuffix("_s").replace("_", " ") for name in view.heat_names]
    figure = correlation_heatmap(names, view.heat)
    clear = [[0.0, BLUE], [0.5, "rgba(128,128,128,0.06)"], [1.0, VERMILION]]  # no white in the middle of a dark page
    bar = {"thickness": 12, "title": {"text": "r"}, "outlinewidth": 0}
    figure.update_traces(colorscale=clear, texttemplate=None, colorbar=bar)
    strongest = f"{names[1]} (r = {view.heat[0, 1]:+.2f})"
    summary = f"Correlation of columns with failure, strongest first {strongest}, and with each other."
    columns = (TableColumn("name", "Column"), TableColumn("r", "r with having failed", "number"))
    rows = [{"name": name, "r": f"{value:+.2f}"} for name, value in zip(names[1:], view.heat[0, 1:], strict=True)]
    figures_table = numbers(_NUMBERS, text_table(columns, rows, caption="Correlation with having failed"))
    return [_drawn("What goes with failing", "profiles-heat", figure, summary, figures_table, height=520)]


def _users(live: LiveSite, view: ProfileView, profile: str) -> Component:
    users = view.users if profile == _ALL else view.users.filter(pl.col("profile") == int(profile))
    columns = (
        TableColumn("user", "User", "link"),
        TableColumn("profile", "Profile", "number", 110),
        TableColumn("jobs", "Jobs", "number", 100),
        TableColumn("failed_share", "Failed", "percent", 110),
    )
    link = PageLink.of(live, "/jobs")
    rows = users.with_columns(failed_share=100 * pl.col("failed_share")).to_dicts()
    for row in rows:
        row["user_link"] = link.to(view="all", user=f"equals:{row['user']}")
    return card(
        "Who runs them",
        controls(choice("Users of", _names(view), profile, PageLink.of(live, "/profiles"), "profile")),
        sortable_table("profiles-users", columns, rows, label="Users by profile", most_px=520),
    )


def _drawn(title: str, id: str, figure: Figure, summary: str, *more: Component, height: int) -> Component:  # noqa: A002
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.16, "title": {"text": ""}})
    return card(title, html.P(summary, className="soft small"), plot(id, figure, summary, height=height), *more)


def _has_values(table: pl.DataFrame) -> bool:
    """Whether the log records anything of this at all."""
    return bool(table.select(pl.sum_horizontal(pl.exclude("profile", "Unknown"))).to_series().sum())


def _mean(row: dict[str, Any], name: str) -> str:
    mean, spread = row[f"{name}_mean"], row[f"{name}_std"]
    if mean is None:
        return "–"
    if name == "mem_gb":
        return format_memory(GB * mean) + ("" if spread is None else f" ± {format_memory(GB * spread)}")
    digits = 1 if mean < 100 else 0
    return f"{mean:,.{digits}f}" + ("" if spread is None else f" ± {spread:,.{digits}f}")


def _lead(viewer: Viewer) -> str:
    return "The kinds of jobs that this site runs" + (", and how they end." if viewer.is_admin else ", and how yours divide.")
