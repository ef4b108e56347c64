"""The waterfall in a notebook: as a Plotly figure that fits the page's theme, and as plain HTML where nothing can draw one.

Verdict -> waterfall_of -> Figure; Verdict -> waterfall_html -> HTML without any script.
"""

from __future__ import annotations

from html import escape
from math import exp, log
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.faces.notebook.markup import words
from stormpetrel.figures.palette import COMPLETED_COLOUR, FAILED_COLOUR, GREY

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.jobs.predictor import Verdict

TOP: Final = 10
PLOTLY_MIME: Final = "application/vnd.plotly.v1+json"
# As far from white as from JupyterLab's black: 4.3 to 1 on both.
_ON_ANY_PAGE: Final = "#7a7a7a"
_LABEL_LETTERS: Final = 46
_LINES: Final = "rgba(128, 128, 128, 0.25)"


def waterfall_of(verdict: Verdict, *, top: int = TOP) -> Figure:
    """From the average job to this one, one reason at a time, strongest first."""
    from stormpetrel.figures.quality import waterfall_figure

    parts = [(reason.words, "", reason.contribution) for reason in verdict.reasons]
    figure = waterfall_figure(parts, verdict.base, _log_odds(verdict.risk), top=top)
    labels = list(figure.layout.yaxis.ticktext)
    shown = verdict.reasons[:top]
    labels[1 : 1 + len(shown)] = [_wrapped(reason.words) for reason in shown]  # whole: their values stand at their ends
    figure.update_yaxes(ticktext=labels, tickfont_size=11)
    return themed(figure.update_layout(height=120 + 34 * len(labels), autosize=True))


def themed(figure: Figure) -> Figure:
    """The figure without a background of its own, in colours that can be read on a light and on a dark page."""
    clear = "rgba(0, 0, 0, 0)"
    figure.update_layout(paper_bgcolor=clear, plot_bgcolor=clear, font_color=_ON_ANY_PAGE, legend_bgcolor=clear)
    figure.update_xaxes(gridcolor=_LINES, zerolinecolor=_LINES, linecolor=_LINES)
    return figure.update_yaxes(gridcolor=_LINES, zerolinecolor=_LINES, linecolor=_LINES)


def waterfall_html(verdict: Verdict, *, top: int = TOP) -> str:
    """The same as a table of bars: what a reader without scripts, a screen reader or a mail shows."""
    total = _log_odds(verdict.risk)
    shown, others = verdict.reasons[:top], len(verdict.reasons) - top
    parts = [(reason.words, reason.contribution) for reason in shown]
    if others > 0:
        parts.append((f"{others} other reasons", total - verdict.base - sum(part for _, part in parts)))
    levels = [verdict.base]
    for _, part in parts:
        levels.append(levels[-1] + part)
    low, high = min(levels), max(levels)
    span = max(high - low, 1e-6)
    rows = [_row(f"average job ({_percent(verdict.base)})", "", _bar(verdict.base, verdict.base, low, span, GREY))]
    for (text, part), start, end in zip(parts, levels[:-1], levels[1:], strict=True):
        mark, colour = ("▲", FAILED_COLOUR) if part > 0 else ("▽", COMPLETED_COLOUR)
        rows.append(_row(text, f"{mark} {part:+.2f}", _bar(min(start, end), max(start, end), low, span, colour)))
    rows.append(_row(f"this job ({_percent(total)})", "", _bar(total, total, low, span, GREY)))
    head = "<tr><th>what raises ▲ and lowers ▽ the risk</th><th>log-odds</th><th>from the average job to this one</th></tr>"
    body = "".join(rows)
    return f'<div class="sp-scroll"><table style="width:100%"><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def figure_bundle(figure: Figure, fallback: str, text: str) -> dict[str, Any]:
    """A figure for the front end to choose from: drawn where it can draw, else HTML, else text."""
    return {PLOTLY_MIME: figure.to_plotly_json(), "text/html": fallback, "text/plain": text}


def _wrapped(text: str) -> str:
    """A label in lines that leave room for the bars, its markup shown rather than obeyed."""
    return "<br>".join(escape(line, quote=False) for line in wrap(text, _LABEL_LETTERS))


def _row(text: str, part: str, bar: str) -> str:
    return (
        f'<tr><td class="sp-words">{words(text, longest=200)}</td><td class="sp-number">{part}</td>'
        f'<td class="sp-track" aria-hidden="true">{bar}</td></tr>'
    )


def _bar(start: float, end: float, low: float, span: float, colour: str) -> str:
    left, width = 98 * (start - low) / span, 98 * (end - start) / span
    return f'<div class="sp-bar" style="margin-left:{left:.1f}%;width:{width:.1f}%;background:{colour}"></div>'


def _log_odds(risk: float) -> float:
    risk = min(max(risk, 1e-9), 1 - 1e-9)
    return log(risk / (1 - risk))


def _percent(log_odds: float) -> str:
    return f"{1 / (1 + exp(-log_odds)):.0%}"
