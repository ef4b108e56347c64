"""The parts of the page Generator: the generator in use, its scorecard, real against synthetic jobs.

WorkloadAnswer -> state_card, scorecard; WorkloadBoard -> figures -> distributions, order_and_rhythm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import html

from stormpetrel.answers.viewer import MANAGE
from stormpetrel.answers.workload.scores import COLUMN_LABELS, NEAR
from stormpetrel.faces.dashboard.blocks import attributes, card, notice, plot, stat, stats
from stormpetrel.faces.dashboard.choices import choice
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table
from stormpetrel.figures import workload as drawing
from stormpetrel.figures.workload_curves import columns_of

if TYPE_CHECKING:
    from dash.development.base_component import Component
    from plotly.graph_objects import Figure

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadFitting, WorkloadGenerator, WorkloadScore
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.answers.workload.workload import WorkloadBoard
    from stormpetrel.faces.dashboard.choices import PageLink
    from stormpetrel.synth.workload import Workload

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
