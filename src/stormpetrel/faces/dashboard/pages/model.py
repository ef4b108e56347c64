"""The page of the model: how good its forecasts have been, and which trainings there are.

link: at, version, every -> QualityFrames -> figures, quality over time, curves, importance; next to them the trainings.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import Dash, Input, Output, dcc, html

from stormpetrel.answers.history.model_quality import (
    MOMENT_LABELS,
    MOST_DRAWN,
    PERIODS,
    QualityFrames,
    quality_frames,
    usual_moment,
)
from stormpetrel.answers.schemas.quality import QualityQuestion
from stormpetrel.answers.viewer import READ, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages.model_trainings import dialog, register_trainings, training_card
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, text_table
from stormpetrel.figures import quality as figures
from stormpetrel.jobs.reasons import feature_text
from stormpetrel.records.predictions import version_text

if TYPE_CHECKING:
    from dash.development.base_component import Component
    from plotly.graph_objects import Figure

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

MOMENTS: Final = {"submit": "Submission", "start": "Start", "2min": "Two minutes in"}
EVERY: Final = {"1d": "Day", "1w": "Week"}
_TOP: Final = 12
_PLAIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}
_NUMBERS: Final = "The numbers of this figure"
_FIGURES: Final = (
    TableColumn("when", "Forecast"), TableColumn("version", "Version"), TableColumn("n", "Settled", "number"),
    TableColumn("failed_share", "Failed", "percent"),
    TableColumn("pr_auc", "PR area", "number", hint="At best 1, by chance the share that failed"),
    TableColumn("last_pr_auc", "PR, as the last job", "number", hint="By the rule: as this user's last ended job"),
    TableColumn("roc_auc", "ROC area", "number"), TableColumn("precision", "Flags that were right", "percent"),
    TableColumn("recall", "Failures flagged", "percent"), TableColumn("brier", "Brier", "number", hint="Lower is better"),
    TableColumn("ece", "ECE", "number", hint="Calibration error; lower is better"), TableColumn("late_share", "Late", "percent"),
)  # fmt: skip
_SHARES: Final = ("failed_share", "precision", "recall", "late_share")
_DIGITS: Final = ("pr_auc", "last_pr_auc", "roc_auc", "brier", "ece")


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    question = _question(live, query)
    link = PageLink.of(live, "/model", query)
    return html.Div(
        [
            page_head("Model", "How good the forecasts have been: of jobs that were judged while they lived, and have ended."),
            controls(
                choice("Forecasts at", MOMENTS, question.moment or "", link, "at", version=None),
                choice("Over time, per", EVERY, question.every, link, "every"),
            ),
            *fill(_filling(live), viewer, query),
            html.Div(id="model-message"),
            html.Div(training_card(live, viewer), id="model-trainings"),
            dialog(),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    register_trainings(app, live)

    @app.callback(Output("model-curves", "children"), Input("model-asked-for", "data"))
    def draw(query: dict[str, str] | None) -> Any:
        """The curves, in a request of their own: all at once would take too long."""
        try:
            settled, question = live.boards.settled.latest(live), _question(live, query or {})
            frames = quality_frames(live, current_viewer(), settled, question)
            return settled.answer(("model curves", question.moment, question.version), lambda: _curves(frames))
        except StormpetrelError as error:
            return notice(error.what, error.hint, kind="error")


PAGE: Final = DashboardPage("/model", "Model", 4, layout, register, heading="Jobs")


def _question(live: LiveSite, query: Mapping[str, str]) -> QualityQuestion:
    version = query.get("version", "")
    number = int(version) if version.removeprefix("-").isdecimal() and len(version) < 9 else None
    moment, every = chosen(query, "at", MOMENTS, usual_moment(live)), chosen(query, "every", EVERY, "1d")
    return QualityQuestion.model_validate({"moment": moment, "version": number, "every": every})


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        settled = live.boards.settled.peek(live)
        return None if settled is None else str(settled.version)

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        settled, question = live.boards.settled.latest(live), _question(live, query)
        frames = quality_frames(live, viewer, settled, question)
        version = {"version": str(question.version)} if question.version else {}
        link = PageLink.of(live, "/model", {"at": frames.answer.moment, "every": question.every, **version})
        return settled.answer(("model page", question), lambda: _body(live, frames, link))  # of everybody's jobs: it names none

    return Filling("model", stamp, body, "The figures are")


def _body(live: LiveSite, frames: QualityFrames, link: PageLink) -> list[Component]:
    answer = frames.answer
    early = [] if answer.optimistic is None else [notice(answer.optimistic.why, kind="warning")]
    if not answer.settled:
        waits = f"{answer.waiting:,} wait for the end of their jobs." if answer.waiting else "Start the watch: stormpetrel watch"
        return [notice("No predictions have been settled yet; they are as soon as their jobs have ended.", waits), *early]
    never = f"{answer.never_started:,} are of jobs that never started. " if answer.never_started else ""
    counts = (
        f"{answer.settled:,} predictions since {answer.since:%d %b %Y} are settled, {answer.waiting:,} wait for their jobs' end. "
        f"{never}A prediction counts only if the job had not ended yet. Curves are of the latest {MOST_DRAWN:,} of each moment."
    )
    if frames.chosen is None:
        empty = notice(
            f"No prediction {MOMENT_LABELS[frames.answer.moment]} has been settled yet.", "Choose another moment or version."
        )
        return [empty, *early, _table(frames), as_of(live, answer.as_of, counts)]
    return [
        *_versions(frames, link),
        *early,
        _headline(frames.chosen),
        html.Div([_over_time(frames), _reliability(frames)], className="cards"),
        *_working_points(frames),
        html.Div(id="model-curves", className="model-curves"),
        dcc.Store(id="model-asked-for", data=dict(link.query)),
        _table(frames),
        as_of(live, answer.as_of, counts),
    ]


def _working_points(frames: QualityFrames) -> list[Component]:
    points = frames.answer.working_points
    if not points:
        return []
    columns = [
        TableColumn("moment", "Moment"),
        TableColumn("threshold", "Flagged from (risk)"),
        TableColumn("corrected", "Comes true lately"),
        TableColumn("by_cost", "By cost"),
        TableColumn("by_budget", "By flags a day"),
        TableColumn("ece", "Calibration error, and after correction"),
        TableColumn("settled", "Settled", "number"),
    ]
    rows = [
        {
            "moment": MOMENT_LABELS[point.moment],
            "threshold": _percent(point.threshold),
            "corrected": _percent(point.corrected),
            "by_cost": _percent(point.by_cost),
            "by_budget": "no limit"
            if point.by_budget is None
            else f"{_percent(point.by_budget)} ({point.flags_last_day} of {point.flags_per_day:g} in the last day)",
            "ece": f"{point.ece:.3f} → {point.ece_corrected:.3f}",
            "settled": point.settled,
        }
        for point in points
    ]
    return [
        card(
            "Where flags begin",
            html.P(
                "Corrected every hour by predictions that have settled. By cost: jobs.missed_cost, or the best expected F1; "
                "by flags a day: jobs.flags_per_day.",
                className="soft small",
            ),
            text_table(columns, rows, caption="Working points of each moment"),
        )
    ]


def _curves(frames: QualityFrames) -> list[Component]:
    moment_label = MOMENT_LABELS[frames.answer.moment]
    if moment_label not in frames.forecasts:
        return []
    truth, risk = frames.forecasts[moment_label]
    return [
        html.Div([_roc(frames), _precision_recall(frames)], className="cards"),
        html.Div(
            [
                _drawn(
                    "How sure it was",
                    "model-confidence",
                    figures.confidence_figure(truth, risk),
                    f"Probability that the forecast {moment_label} gave to what really came, for failed and for completed jobs.",
                ),
                _drawn(
                    "What each threshold gives",
                    "model-threshold",
                    figures.threshold_figure(truth, risk, chosen=frames.threshold),
                    f"Flags that are right (precision), failures found (recall) and jobs flagged, {moment_label}, by threshold.",
                ),
            ],
            className="cards",
        ),
        _importance(frames),
    ]


def _versions(frames: QualityFrames, link: PageLink) -> list[Component]:
    if len(frames.versions) < 2:
        return []
    options = {"": "All versions", **{str(version): f"Version {version_text(version)}" for version in frames.versions}}
    value = "" if frames.question.version is None else str(frames.question.version)
    return [controls(choice("Version", options, value, link, "version"))]


def _headline(line: dict[str, Any]) -> Component:
    lift = "" if not line["pr_auc"] else f"{line['pr_auc'] / line['failed_share']:.1f} times chance ({line['failed_share']:.2f})"
    return stats(
        stat("PR area", _digits(line["pr_auc"]), lift),
        stat("Failures flagged", _percent(line["recall"]), f"of {line['failed']:,} that failed"),
        stat("Flags that were right", _percent(line["precision"]), f"{100 * line['flagged_share']:.0f} % of jobs were flagged"),
        stat("Calibration error", _digits(line["ece"]), f"Brier {_digits(line['brier'])}"),
        stat("Settled", f"{line['n']:,}", f"{100 * line['failed_share']:.1f} % failed"),
    )


def _over_time(frames: QualityFrames) -> Component:
    period = PERIODS[frames.question.every]
    title = f"{period.capitalize()} by {period}"
    if frames.over_time.is_empty():
        return card(title, notice(f"No {period} has enough settled predictions yet.", "Come back tomorrow, or choose days."))
    shown = frames.over_time.select("time", "pr_auc", "precision", "recall", "ece")
    columns = (
        TableColumn("time", period.capitalize()), TableColumn("n", "Settled", "number"),
        TableColumn("failed_share", "Failed", "percent"), TableColumn("pr_auc", "PR area", "number"),
        TableColumn("ece", "ECE", "number"),
        TableColumn("precision", "Precision", "percent"), TableColumn("recall", "Recall", "percent"),
    )  # fmt: skip
    rows = [_in_percent({**row, "time": str(row["time"])}) for row in frames.over_time.iter_rows(named=True)]
    figures_table = numbers(_NUMBERS, text_table(columns, rows, caption=f"Quality by {period}"))
    summary = f"Quality of the forecasts {MOMENT_LABELS[frames.answer.moment]}, by the {period} in which they were due."
    figure = figures.quality_over_time_figure(shown)
    figure.update_xaxes(title_text=None)
    return _drawn(title, "model-time", figure, summary, figures_table)


def _reliability(frames: QualityFrames) -> Component:
    summary = "On the diagonal forecasts hold literally: of jobs with a risk of 30 % three in ten fail."
    return _drawn("Calibration", "model-reliability", figures.reliability_figure(frames.forecasts), summary)


def _roc(frames: QualityFrames) -> Component:
    summary = "Failures found against false alarms; the area is the chance that a failed job stands above one that did not."
    return _drawn("ROC", "model-roc", figures.roc_figure(frames.forecasts), summary, height=420)


def _precision_recall(frames: QualityFrames) -> Component:
    summary = "How many of the flags are right against how many of the failures are flagged, at each threshold."
    figure = figures.precision_recall_figure(frames.forecasts)
    return _drawn("Precision and recall", "model-pr", figure, summary, height=420)


def _importance(frames: QualityFrames) -> Component:
    title = "What moves the forecast"
    table = frames.importance.head(_TOP)
    if table.is_empty():
        return card(title, notice("No reasons were stored with these forecasts."))
    phrases = pl.Series("feature", [_phrase(name) for name in table["feature"]], dtype=pl.String)
    figure = figures.importance_figure(table.with_columns(phrases), top=_TOP)
    figure.update_yaxes(tickfont_size=11)
    when = MOMENT_LABELS[frames.answer.moment]
    summary = (
        f"Mean size of a feature's contribution to {table['said'].item(0):,} settled forecasts {when}, "
        "out of the eight strongest reasons that were stored with each."
    )
    sizes = zip(table["feature"], table["mean_abs_shap"], strict=True)
    rows = [{"feature": _phrase(name, 500), "size": f"{size:.3f}"} for name, size in sizes]
    columns = (TableColumn("feature", "Feature"), TableColumn("size", "Mean size (log-odds)", "number"))
    figures_table = numbers(_NUMBERS, text_table(columns, rows, caption=title))
    return _drawn(title, "model-importance", figure, summary, figures_table, height=80 + 40 * table.height)


def _table(frames: QualityFrames) -> Component:
    rows = [
        _in_percent(
            {
                **row,
                "when": MOMENT_LABELS[row["moment"]],
                "version": "all" if row["model_version"] is None else version_text(row["model_version"]),
            }
        )
        for row in _without_repeats(frames.table).iter_rows(named=True)
    ]
    return card("By moment and version", text_table(_FIGURES, rows, caption="Quality of forecasts by moment and model version"))


def _without_repeats(table: pl.DataFrame) -> pl.DataFrame:
    """The lines without those of a version that is the only one of its moment: they would say the same twice."""
    several = pl.col("model_version").n_unique().over("moment") > 2
    return table.filter(pl.col("model_version").is_null() | several)


def _in_percent(row: dict[str, Any]) -> dict[str, Any]:
    """A row of figures as it is written: shares in per cent, areas and errors with three digits."""
    shares = {name: None if row.get(name) is None else 100 * row[name] for name in _SHARES}
    return {**row, **shares, **{name: _digits(row.get(name)) for name in _DIGITS}}


def _drawn(title: str, id: str, figure: Figure, summary: str, *more: Component, height: int = 380) -> Component:  # noqa: A002
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.2})
    return card(title, html.P(summary, className="soft small"), plot(id, figure, summary, height=height), *more)


def _phrase(feature: str, width: int = 32) -> str:
    """A feature in words, without a value, on short lines."""
    return "<br>".join(wrap(feature_text(feature, float("nan")).rpartition(": ")[0], width))


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
