"""The page Generator: a generator of jobs like those of the site, how good it is, and new jobs out of it.

link: column -> workload_answer, workload_board -> state, form, scorecard, real against synthetic. For administrators.

The form that asks for new jobs: how many, what should be different, and as which file; `assets/generator.js` sends it.

WorkloadGenerator -> sample_form -> POST /api/v1/workload/sample -> a download.

The parts of the page Generator: the generator in use, its scorecard, real against synthetic jobs.

WorkloadAnswer -> state_card, scorecard; WorkloadBoard -> figures -> distributions, order_and_rhythm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.schemas.workload import MOST_JOBS
from stormpetrel.answers.viewer import MANAGE, current_viewer
from stormpetrel.answers.workload.fit import start_fit
from stormpetrel.answers.workload.workload import COLUMN_LABELS, NEAR, current_board, workload_answer, workload_board
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes, card, field, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import SOON_MS, Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table
from stormpetrel.figures import workload as drawing
from stormpetrel.figures.workload_curves import columns_of

if TYPE_CHECKING:
    from dash.development.base_component import Component
    from plotly.graph_objects import Figure

    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadFitting, WorkloadGenerator, WorkloadScore
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.answers.workload.workload import WorkloadBoard
    from stormpetrel.synth.workload import Workload

_LEAD: Final = (
    "Synthetic jobs like those of this site: to test a scheduler, to size a machine, to share with others. "
    "A generator learns how users here work, and generates any number of new jobs."
)
_NOT_YOURS: Final = "A generator learns from all users' jobs, so this page is for administrators."
_BEAT_MS: Final = 1_500
_FORMATS: Final = {"swf": "SWF", "sacct": "sacct text", "csv": "CSV", "parquet": "Parquet"}
_UNITS: Final = {"jobs": "jobs", "days": "days"}
_WAITS: Final = {"": "left out", "yes": "by a simulated scheduler"}
_ADDRESS: Final = "/api/v1/workload/sample"
_MARGIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}
_LEGEND: Final = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
_REAL, _SYNTHETIC = "real", "synthetic"
_VERDICTS: Final = {"near": "● near", "off": "▲ off", "open": "○ no floor"}
_SCORES: Final = (
    TableColumn("measure", "Figure", "text", 220),
    TableColumn("value", "Synthetic", "decimal", 110),
    TableColumn("ideal", "Ideal", "decimal", 100),
    TableColumn("floor", "Floor", "decimal", 100, "The same figure of real odd weeks against real even weeks"),
    TableColumn("times", "× floor", "decimal", 100, "How many times as far from the ideal as the floor is"),
    TableColumn(
        "verdict",
        "Verdict",
        "text",
        110,
        f"Near: at most {NEAR:g} times as far off as real weeks are; lag 1: within .08; told apart: at most .65",
    ),
    TableColumn("meaning", "What it says", "text", 400),
)


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    if not viewer.is_admin:
        return html.Div(
            [page_head("Generator", _LEAD), notice(_NOT_YOURS, "Administrators are listed in site.toml: serve.admins.")]
        )
    answer = workload_answer(live, viewer)
    return html.Div(
        [
            page_head("Generator", _LEAD),
            html.Div(state_card(live, viewer, answer), id="generator-state"),
            dcc.Interval(id="generator-beat", interval=_BEAT_MS, disabled=not answer.fitting.running),
            dcc.Store(id="generator-known", data=_known(answer)),
            *fill(_filling(live), viewer, query),
        ],
        className="generator-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))

    @app.callback(
        Output("generator-state", "children"),
        Output("generator-beat", "disabled"),
        Output("generator-known", "data"),
        Output("generator-stamp", "data", allow_duplicate=True),
        Output("generator-tick", "interval", allow_duplicate=True),
        Input("generator-fit", "n_clicks"),
        Input("generator-beat", "n_intervals"),
        State("generator-known", "data"),
        prevent_initial_call=True,
    )
    def follow(clicks: int | None, _: int | None, known: str | None) -> Any:
        """Begin to fit where the button was pressed; show how far it is, and once it is done what came of it."""
        viewer = current_viewer()
        problem = ""
        if ctx.triggered_id == "generator-fit":
            if not clicks:
                return (no_update,) * 5
            try:
                start_fit(live, viewer)
            except StormpetrelError as error:
                problem = str(error)
        answer = workload_answer(live, viewer)
        card = state_card(live, viewer, answer, problem=problem)
        same = _known(answer) == known
        return card, not answer.fitting.running, _known(answer), no_update if same else None, no_update if same else SOON_MS


PAGE: Final = DashboardPage("/generator", "Generator", 1, layout, register, heading="Plan", earlier_paths=("/workload",))


def _known(answer: WorkloadAnswer) -> str:
    return "" if answer.generator is None else answer.generator.training


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        board = current_board(live, viewer)
        return None if board is None else f"of {board.training}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        return _body(live, workload_answer(live, viewer), workload_board(live, viewer), query, viewer)

    return Filling("generator", stamp, body, "Jobs to compare are")


def _body(
    live: LiveSite, answer: WorkloadAnswer, latest: Snapshot[WorkloadBoard], query: Mapping[str, str], viewer: Viewer
) -> list[Component]:
    board, generator = latest.value, answer.generator
    if generator is None or board.real is None or board.synthetic is None:
        return []
    columns = columns_shown(board)
    column = chosen(query, "column", columns, next(iter(columns)))
    link = PageLink.of(live, "/generator", query)
    # No graph is put into the answers that are kept with the board: Dash fills in what it is given.
    drawn = latest.answer(("generator figures", column), lambda: figures(board, column))
    return [
        sample_form(live, viewer, generator),
        scorecard(generator),
        distributions(columns, column, link, drawn),
        order_and_rhythm(drawn),
        as_of(live, latest.at, comparison_text(board)),
    ]


def sample_form(live: LiveSite, viewer: Viewer, generator: WorkloadGenerator) -> Component:
    """What to ask of the generator, and the button that makes the file."""
    if MANAGE not in viewer.scopes:
        return card("New jobs", notice("This needs the scope 'manage'.", "Ask for a token that has it."))
    prefix = live.settings.serve.prefix.rstrip("/")
    how_many = [field("How many", _number("amount", str(min(generator.jobs, 10_000)))), field("Of", _select("unit", _UNITS))]
    return card(
        "New jobs",
        html.P(
            f"Users, groups and projects get new names. At most {MOST_JOBS:,} jobs here; any number: stormpetrel synth sample",
            className="soft small",
        ),
        html.Div([*how_many, *_conditions(generator)], className="generator-form"),
        html.Div(
            [
                html.Button(
                    "Generate and download",
                    id="generator-make",
                    type="button",
                    className="button button-main",
                    **attributes(data_address=f"{prefix}{_ADDRESS}"),
                ),
                html.P("", id="generator-message", role="status", className="generator-message"),
            ],
            className="generator-send",
        ),
        id="generator-sample",
    )


def _conditions(generator: WorkloadGenerator) -> list[Component]:
    fields = [
        field("First day", _input("start", "", placeholder="as in the log"), hint="such as 2027-01-01"),
        field("Times as many users", _number("users", "1")),
    ]
    if "gpus" in generator.columns:
        fields.append(field("Times as many GPU jobs", _number("gpu_jobs", "1")))
    if generator.groups:
        groups = {"": "everybody", **{group.name: f"{group.name}: {group.words}"[:80] for group in generator.groups}}
        fields.append(field("Only the group", _select("group", groups)))
    return [
        *fields,
        field("Years later", _number("later_years", "0"), hint="at the log's own growth"),
        field("Starts and waits", _select("waits", _WAITS)),
        field("Cores of its machine", _input("cores", "", placeholder="70 % busy", inputMode="numeric")),
        field("Seed", _number("seed", "0"), hint="the same seed, the same jobs"),
        field("Format", _select("format", _FORMATS)),
    ]


def _number(name: str, value: str) -> Any:
    return _input(name, value, inputMode="decimal")


def _input(name: str, value: str, **options: Any) -> Any:
    return dcc.Input(
        id=f"generator-{name}", type="text", value=value, maxLength=40, autoComplete="off", className="input", **options
    )


def _select(name: str, options: Mapping[str, str]) -> Any:
    """A native choice: it is read where the form is sent, and nobody else listens to it."""
    return html.Select(
        [html.Option(text, value=value) for value, text in options.items()], id=f"generator-{name}", className="input"
    )


@dataclass(frozen=True, slots=True, eq=False)
class DrawnFigures:
    """What is drawn of a board, for one column."""

    cdf: Figure
    acf: Figure
    rhythm: Figure


def state_card(live: LiveSite, viewer: Viewer, answer: WorkloadAnswer, *, problem: str = "") -> list[Component]:
    """Which generator is in use, and the button that fits another one."""
    parts: list[Any] = [] if answer.generator is None else [_about(live, answer.generator)]
    if answer.generator is None and not answer.fitting.running:
        parts.append(
            notice("No generator has been fitted on this site's jobs yet.", "It takes a minute or two; the watch continues.")
        )
    parts.append(_progress(answer.fitting) if answer.fitting.running else _outcome(answer.fitting, problem))
    if viewer.is_admin and MANAGE in viewer.scopes:
        parts.append(_button(answer))
    return [html.Div([part for part in parts if part is not None], className="generator-state")]


def _about(live: LiveSite, generator: WorkloadGenerator) -> Component:
    zone = ZoneInfo(live.settings.site.time_zone)
    seen = "" if generator.since is None else f"submitted {_day(generator.since, zone)} to {_day(generator.until, zone)}"
    table = "not noted" if generator.table_version is None else f"{generator.table_version:,}"
    return stats(
        stat("Generator", generator.generator, f"{generator.training} in use"),
        stat("Fitted", _day(generator.fitted_at, zone), f"at {generator.fitted_at.astimezone(zone):%H:%M}"),
        stat("Learnt from", f"{generator.jobs:,}", f"jobs, {seen}" if seen else "jobs"),
        stat("Job table", table, "the version that it has seen"),
    )


def _progress(fitting: WorkloadFitting) -> Component:
    done = f"{100 * fitting.share:.0f} %"
    bar = html.Div(html.Span(style={"width": done}), className="share-bar", **attributes(aria_hidden="true"))
    return html.Div(
        [html.P(f"Fitting a generator: {fitting.words} ({done})", role="status"), bar], className="generator-progress"
    )


def _outcome(fitting: WorkloadFitting, problem: str) -> Component | None:
    reason = problem or fitting.problem
    if reason:
        return notice("The fit failed; the generator in use has not changed.", reason, kind="error")
    return html.P(f"{fitting.done} is fitted and in use.", className="soft", role="status") if fitting.done else None


def _button(answer: WorkloadAnswer) -> Component:
    text = "Fit a generator" if answer.generator is None else "Fit it again on the current jobs"
    main = "button-main" if answer.generator is None else ""
    return html.Button(
        text, id="generator-fit", type="button", className=f"button {main}".strip(), disabled=answer.fitting.running
    )


def scorecard(generator: WorkloadGenerator) -> Component:
    """How good the generator is, figure by figure."""
    if generator.scorecard is None:
        return card("Scorecard", notice("There is no scorecard of this generator.", generator.not_scored or "Fit it again."))
    of = "" if generator.scored_jobs is None else f" Measured on {generator.scored_jobs:,} jobs of this site."
    text = (
        "Fitted on the odd weeks, compared with the even ones. The floor is what real odd weeks reach against real even weeks: "
        f"nothing can be expected to come nearer.{of}"
    )
    rows = [_score_row(score) for score in generator.scores]
    return card(
        "Scorecard",
        html.P(text, className="soft small ledger-sum"),
        sortable_table("generator-scores", _SCORES, rows, label="Scorecard of the generator", most_px=1_300),
    )


def _score_row(score: WorkloadScore) -> dict[str, Any]:
    return {
        "measure": score.measure, "value": score.value, "ideal": score.ideal, "floor": score.floor,
        "times": None if score.times_floor is None else round(score.times_floor, 1),
        "verdict": _VERDICTS[score.verdict], "meaning": score.meaning,
    }  # fmt: skip


def columns_shown(board: WorkloadBoard) -> dict[str, str]:
    """The columns that real and synthetic jobs both have -> what they are called."""
    both = _workloads(board)
    synthetic = both[_SYNTHETIC].jobs.columns
    return {name: COLUMN_LABELS.get(name, name[:40]) for name in columns_of(both) if name == "interval_s" or name in synthetic}


def figures(board: WorkloadBoard, column: str) -> DrawnFigures:
    """Real against synthetic jobs: the distribution of one column, the memory of the intervals, the rhythm of the week."""
    both = _workloads(board)
    return DrawnFigures(
        _plain(drawing.cdf_figure(column, both)),
        _plain(drawing.acf_figure(both)),
        _plain(drawing.hour_of_week_figure(both)),
    )


def distributions(columns: Mapping[str, str], column: str, link: PageLink, drawn: DrawnFigures) -> Component:
    """The distribution of the chosen column."""
    summary = f"How {columns[column].lower()} is distributed in real jobs (the thick line) and in synthetic ones."
    if column in ("user", "group", "account"):
        summary = "Share of the jobs that the most active ones make up. Names are new in every synthetic log."
    return card(
        "Real against synthetic",
        choice("Column", columns, column, link, "column"),
        html.P(summary, className="soft small generator-summary"),
        plot("generator-cdf", drawn.cdf, summary, height=380),
    )


def order_and_rhythm(drawn: DrawnFigures) -> Component:
    """What a generator of single rows cannot get right: the order of jobs, and when they come."""
    memory = "Autocorrelation of the times between jobs. Independent jobs would be at zero."
    rhythm = "When in the week jobs are submitted, hour by hour, in UTC."
    return html.Div(
        [
            card("Memory of the intervals", html.P(memory, className="soft small"), plot("generator-acf", drawn.acf, memory)),
            card("Rhythm of the week", html.P(rhythm, className="soft small"), plot("generator-hours", drawn.rhythm, rhythm)),
        ],
        className="cards",
    )


def comparison_text(board: WorkloadBoard) -> str:
    """What the figures are drawn of."""
    assert board.real is not None
    return f"Figures are of {board.real.height:,} jobs that were learnt from, and of as many new ones."


def _workloads(board: WorkloadBoard) -> dict[str, Workload]:
    assert board.real is not None and board.synthetic is not None
    return {_REAL: board.real, _SYNTHETIC: board.synthetic}


def _plain(figure: Figure) -> Figure:
    figure.update_layout(title=None, margin=_MARGIN, legend=_LEGEND)
    return figure


def _day(moment: datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%d %b %Y}"
