"""Markup: what a notebook shows, as HTML in which everything that came from a log is text.

values, frames, errors -> HTML that looks right on a light and on a dark page, with no script in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Final

import polars as pl

from stormpetrel.answers.schemas.predictions import Advice
from stormpetrel.errors import StormpetrelError
from stormpetrel.figures.palette import COMPLETED_COLOUR, FAILED_COLOUR, GREEN, GREY
from stormpetrel.jobs.advice.text import no_gain_text
from stormpetrel.jobs.prediction_text import percent

NOTHING: Final = "–"
_LONGEST: Final = 60  # letters of a cell; a job name may have thousands
# Colours are those of the page (JupyterLab and VS Code, light or dark); only lines and marks are ours. Doubled, the class
# outweighs JupyterLab's own rules for tables.
STYLE: Final = f"""<style>
.sp-nb {{ color: inherit; font-family: inherit; line-height: 1.45; }}
.sp-nb.sp-nb table {{ border-collapse: collapse; margin: 6px 0; font-size: 13px; width: auto; max-width: 100%; }}
.sp-nb .sp-scroll {{ overflow-x: auto; }}
.sp-nb.sp-nb th, .sp-nb.sp-nb td {{ padding: 3px 12px 3px 0; text-align: left; vertical-align: top; white-space: nowrap;
  border: 0; border-bottom: 1px solid rgba(128, 128, 128, .3); background: none; color: inherit; max-width: none; }}
.sp-nb.sp-nb th {{ font-weight: 600; border-bottom: 2px solid rgba(128, 128, 128, .5); }}
.sp-nb.sp-nb .sp-number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.sp-nb.sp-nb .sp-words {{ white-space: normal; min-width: 16em; }}
.sp-nb .sp-fail::before {{ content: "▲ "; color: {FAILED_COLOUR}; }}
.sp-nb .sp-complete::before {{ content: "● "; color: {COMPLETED_COLOUR}; }}
.sp-nb .sp-fail {{ font-weight: 600; }}
.sp-nb .sp-note {{ border-left: 3px solid {GREY}; padding: 1px 0 1px 8px; margin: 4px 0; }}
.sp-nb .sp-done {{ border-left-color: {GREEN}; }}
.sp-nb .sp-wrong {{ border-left-color: {FAILED_COLOUR}; }}
.sp-nb .sp-quiet {{ opacity: .75; font-size: 12px; }}
.sp-nb h4 {{ font-size: 14px; font-weight: 600; margin: 12px 0 2px; }}
.sp-nb ul {{ margin: 2px 0 2px 1.2em; padding: 0; }}
.sp-nb.sp-nb .sp-track {{ width: 45%; min-width: 12em; padding: 3px 0; }}
.sp-nb .sp-bar {{ height: 14px; border-radius: 2px; min-width: 2px; }}
</style>"""


def escaped(value: object, *, longest: int = _LONGEST) -> str:
    """A value as HTML: escaped, without control characters, cut where it is very long; a dash where there is none."""
    if value is None or (isinstance(value, float) and value != value):
        return NOTHING
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))
    return escape(shown if len(shown) <= longest else shown[: longest - 1] + "…")


def page(*parts: str) -> str:
    """Parts of HTML as one piece that brings its own style."""
    inside = "".join(parts)
    return f'{STYLE}<div class="sp-nb">{inside}</div>'


def table(frame: pl.DataFrame, *, caption: str = "") -> str:
    """A frame as a table; the columns `Flagged` and `Prediction` get marks, so that colour alone tells nothing."""
    numbers = {name for name, dtype in frame.schema.items() if dtype.is_numeric()}
    head = "".join(f'<th scope="col"{_number(name in numbers)}>{escaped(name)}</th>' for name in frame.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(name, value, name in numbers) for name, value in zip(frame.columns, row, strict=True))}</tr>"
        for row in frame.iter_rows()
    )
    heading = f'<div class="sp-quiet">{escaped(caption, longest=400)}</div>' if caption else ""
    return f'<div class="sp-scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{heading}'


def heading(text: str) -> str:
    """The heading of a part."""
    return f"<h4>{escaped(text, longest=200)}</h4>"


def sentence(text: str, *, quiet: bool = False) -> str:
    """A sentence of its own."""
    kind = ' class="sp-quiet"' if quiet else ""
    return f"<div{kind}>{escaped(text, longest=1000)}</div>"


def bullets(texts: Iterable[str]) -> str:
    """Sentences below each other; nothing where there are none."""
    items = "".join(f"<li>{escaped(text, longest=1000)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def done(text: str, *more: str) -> str:
    """A message: something went well."""
    return _note("sp-done", text, more)


def message(text: str, *more: str) -> str:
    """A message that is neither good nor bad."""
    return _note("", text, more)


def wrong(error: Exception) -> str:
    """An error as its sentence and what to do next, never a trace."""
    if isinstance(error, StormpetrelError):
        return _note("sp-wrong", error.what, (error.hint,) if error.hint else ())
    what = f"Something went wrong that should not: {type(error).__name__}: {error}"
    return _note("sp-wrong", what, ("This is a fault of Stormpetrel: please report it with what you did before.",))


def _note(kind: str, text: str, more: Sequence[str]) -> str:
    lines = "".join(sentence(line) for line in (text, *more))
    return f'<div class="sp-note {kind}" role="status">{lines}</div>'


def _cell(name: str, value: object, is_number: bool) -> str:
    if name == "Flagged" and isinstance(value, bool):
        return f'<td><span class="sp-{"fail" if value else "complete"}">{"flagged" if value else "not flagged"}</span></td>'
    if name == "Prediction" and value in ("Fail", "Complete"):
        return f'<td><span class="sp-{str(value).lower()}">{escaped(value)}</span></td>'
    return f"<td{_number(is_number)}>{escaped(value)}</td>"


def _number(is_number: bool) -> str:
    return ' class="sp-number"' if is_number else ""


NO_ADVICE = "Advice: none. Past jobs support no change of this request."


def advice_html(advice: Sequence[Advice], following: Advice | None) -> str:
    """Advice as HTML, the next request of an ended job first; a sentence where there is none."""
    if not advice and following is None:
        return heading("Advice") + sentence(NO_ADVICE)
    parts = [heading("Advice")]
    for title, piece in _numbered(advice, following):
        more = [f"Write: {piece.line}"] if piece.line else []
        parts.append(message(f"{title}: {piece.sentence}", *more, *_risk(piece)) + bullets(piece.evidence))
    return "".join(parts)


def advice_lines(advice: Sequence[Advice], following: Advice | None) -> list[str]:
    """The same as plain text."""
    if not advice and following is None:
        return [NO_ADVICE]
    lines: list[str] = []
    for title, piece in _numbered(advice, following):
        lines += [f"{title}: {piece.sentence}", *([f"  write: {piece.line}"] if piece.line else [])]
        lines += [f"  {text}" for text in (*_risk(piece), *piece.evidence)]
    return lines


def _numbered(advice: Sequence[Advice], following: Advice | None) -> list[tuple[str, Advice]]:
    first = [("Next time", following)] if following is not None else []
    return [*first, *((f"Advice {number}", piece) for number, piece in enumerate(advice, 1))]


def _risk(piece: Advice) -> list[str]:
    if piece.risk_before is None or piece.risk_after is None:
        return []
    change = f"{percent(piece.risk_before)} → {percent(piece.risk_after)}"
    no_gain = no_gain_text(piece.risk_before, piece.risk_after)
    return [f"The model sees {no_gain} ({change}); past jobs do." if no_gain else f"Risk if submitted now: {change}"]
