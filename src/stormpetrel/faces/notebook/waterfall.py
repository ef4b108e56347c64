"""The waterfall in a notebook: as a Plotly figure that fits the page's theme, and as plain HTML where nothing can draw one.

Verdict -> waterfall_of -> Figure; Verdict -> waterfall_html -> HTML without any script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stormpetrel.faces.notebook.markup import escaped
from stormpetrel.figures.palette import COMPLETED_COLOUR, FAILED_COLOUR, GREY
from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.prediction_text import format_points, percent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.answers.schemas.predictions import Verdict

TOP: Final = 10
PLOTLY_MIME: Final = "application/vnd.plotly.v1+json"
# As far from white as from JupyterLab's black: 4.3 to 1 on both.
_ON_ANY_PAGE: Final = "#7a7a7a"
_LINES: Final = "rgba(128, 128, 128, 0.25)"


def waterfall_of(verdict: Verdict, *, top: int = TOP, log_odds: bool = False) -> Figure:
    """From the average job to this one, one reason at a time, strongest first; in points of risk, or in log-odds."""
    contributions = [(reason.words, reason.contribution) for reason in verdict.reasons]
    figure = waterfall_figure(contributions, verdict.base or 0.0, verdict.risk, top=top, log_odds=log_odds)
    figure.update_yaxes(tickfont_size=11)
    return themed(figure.update_layout(height=120 + 34 * len(figure.layout.yaxis.ticktext), autosize=True))


def themed(figure: Figure) -> Figure:
    """The figure without a background of its own, in colours that can be read on a light and on a dark page."""
    clear = "rgba(0, 0, 0, 0)"
    figure.update_layout(paper_bgcolor=clear, plot_bgcolor=clear, font_color=_ON_ANY_PAGE, legend_bgcolor=clear)
    figure.update_xaxes(gridcolor=_LINES, zerolinecolor=_LINES, linecolor=_LINES)
    return figure.update_yaxes(gridcolor=_LINES, zerolinecolor=_LINES, linecolor=_LINES)


def waterfall_html(verdict: Verdict, *, top: int = TOP) -> str:
    """The same as a table of bars, in points of risk: what a reader without scripts, a screen reader or a mail shows."""
    average, risk = 100 * (verdict.base_risk or 0.0), 100 * verdict.risk
    shown = verdict.reasons[:top]
    others = len(verdict.reasons) - len(shown) + verdict.more_reasons
    parts = [(reason.words, reason.points) for reason in shown]
    if others > 0:
        parts.append((f"{others} other reasons", risk - average - sum(part for _, part in parts)))
    levels = [average]
    for _, part in parts:
        levels.append(levels[-1] + part)
    low, high = min(levels), max(levels)
    span = max(high - low, 1e-6)
    rows = [_row(f"average job ({percent(verdict.base_risk)})", "", _bar(average, average, low, span, GREY))]
    for (text, part), start, end in zip(parts, levels[:-1], levels[1:], strict=True):
        symbol, colour = ("▲", FAILED_COLOUR) if part > 0 else ("▽", COMPLETED_COLOUR)
        rows.append(_row(text, f"{symbol} {format_points(part)}", _bar(min(start, end), max(start, end), low, span, colour)))
    rows.append(_row(f"this job ({percent(verdict.risk)})", "", _bar(risk, risk, low, span, GREY)))
    head = "<tr><th>what raises ▲ and lowers ▽ the risk</th><th>by</th><th>from the average job to this one</th></tr>"
    body = "".join(rows)
    return f'<div class="sp-scroll"><table style="width:100%"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def figure_bundle(figure: Figure, fallback: str, text: str) -> dict[str, Any]:
    """A figure for the front end to choose from: drawn where it can draw, else HTML, else text."""
    return {PLOTLY_MIME: figure.to_plotly_json(), "text/html": fallback, "text/plain": text}


def _row(text: str, part: str, bar: str) -> str:
    return (
        f'<tr><td class="sp-words">{escaped(text, longest=200)}</td><td class="sp-number">{part}</td>'
        f'<td class="sp-track" aria-hidden="true">{bar}</td></tr>'
    )


def _bar(start: float, end: float, low: float, span: float, colour: str) -> str:
    left, width = 98 * (start - low) / span, 98 * (end - start) / span
    return f'<div class="sp-bar" style="margin-left:{left:.1f}%;width:{width:.1f}%;background:{colour}"></div>'
