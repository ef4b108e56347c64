"""The waterfall of one prediction: from the average job's risk to this one's, one reason at a time.

(words, contribution in log-odds), base, risk -> waterfall_figure -> Plotly figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import numpy as np
import plotly.graph_objects as go

from stormpetrel.figures.palette import COMPLETED_COLOUR, FAILED_COLOUR, GREY
from stormpetrel.jobs.prediction_text import format_points, percent
from stormpetrel.jobs.reasons import log_odds_of, points_of_risk, risk_at

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ADDS_UP: Final = 1e-3  # log-odds; a risk is stored with seven digits
_LABEL_LETTERS: Final = 46


@dataclass(frozen=True, slots=True)
class _Steps:
    """The way from the average job to this one, in log-odds: where it begins, each step with its label, and where it ends."""

    base: float
    names: list[str]
    parts: list[float]
    total: float
    risk: float

    @property
    def points(self) -> list[float]:
        """The steps in points of risk."""
        return [float(points) for points in points_of_risk(self.parts, self.base, self.risk)]


def waterfall_figure(
    reasons: Sequence[tuple[str, float]], base: float, risk: float, *, top: int = 10, log_odds: bool = False
) -> Figure:
    """From the average job's risk to this one's, one reason at a time: (words, contribution in log-odds).

    Bars are points of risk (`jobs.reasons.points_of_risk`), or log-odds where these are requested. The greatest come first; the
    others, and whatever is left between them and the risk, are one bar.
    """
    steps = _steps(reasons, base, risk, top)
    figure = _in_log_odds(steps) if log_odds else _in_points(steps)
    labels = [f"average job ({percent(risk_at(base))})", *steps.names, f"this job ({percent(risk)})"]
    figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels, autorange="reversed", automargin=True)
    return figure.update_layout(template="plotly_white", title="Why this forecast", margin={"t": 60, "r": 20}, showlegend=False)


def _steps(reasons: Sequence[tuple[str, float]], base: float, risk: float, top: int) -> _Steps:
    ranked = sorted(reasons, key=lambda reason: -abs(reason[1]))
    shown, others = ranked[:top], max(0, len(ranked) - top)
    names, parts = [_label(text) for text, _ in shown], [part for _, part in shown]
    total = log_odds_of(risk)
    rest = total - base - sum(parts)
    if others or abs(rest) > _ADDS_UP:
        names.append(f"{others} other reasons" if others else "other reasons")
        parts.append(rest)
    return _Steps(base, names, parts, total, risk)


def _in_points(steps: _Steps) -> Figure:
    average, points = 100 * risk_at(steps.base), steps.points
    texts = [percent(average / 100), *(format_points(value).partition(" ")[0] for value in points), percent(steps.risk)]
    figure = _bars([average, *points, 100 * steps.risk], texts, steps)
    # Reasons that speak against each other may lead beyond what a risk can be: there are no numbers there.
    return figure.update_xaxes(tickvals=list(range(0, 101, 10)), title_text="risk of failing in %, effects in points")


def _in_log_odds(steps: _Steps) -> Figure:
    levels = [steps.base, *steps.parts, steps.total]
    figure = _bars(levels, [f"{level:+.2f}" for level in levels], steps)
    return figure.update_xaxes(title_text="log-odds of failure (right: more likely to fail)")


def _bars(levels: list[float], texts: list[str], steps: _Steps) -> Figure:
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=list(range(len(levels))),
            x=levels,
            measure=["absolute", *("relative" for _ in steps.parts), "total"],
            text=texts,
            textposition="outside",
            customdata=[steps.base, *steps.parts, steps.total],
            increasing={"marker": {"color": FAILED_COLOUR}},
            decreasing={"marker": {"color": COMPLETED_COLOUR}},
            totals={"marker": {"color": GREY}},
            hovertemplate="%{text} (log-odds: %{customdata:+.2f})<extra></extra>",
        )
    )
    reach = np.cumsum(levels[:-1])
    low, high = min(0.0, float(reach.min())), max(0.0, float(reach.max()))
    margin = 0.12 * max(high - low, 0.1)  # room for the numbers next to the bars
    return figure.update_xaxes(range=[low - margin, high + margin])


def _label(text: str) -> str:
    """A label in lines that leave room for the bars, its markup shown rather than obeyed."""
    return "<br>".join(escape(line, quote=False) for line in wrap(text, _LABEL_LETTERS))
