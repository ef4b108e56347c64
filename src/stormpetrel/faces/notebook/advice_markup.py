"""Advice as a notebook shows it: the sentence, the line to write, the risk before and after, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from stormpetrel.answers.schemas.predictions import Advice
from stormpetrel.faces.notebook import markup
from stormpetrel.jobs.prediction_words import percent

NO_ADVICE = "Advice: none. Past jobs support no change of this request."


def advice_html(advice: Sequence[Advice], following: Advice | None) -> str:
    """Advice as HTML, the next request of an ended job first; a sentence where there is none."""
    if not advice and following is None:
        return markup.heading("Advice") + markup.sentence(NO_ADVICE)
    parts = [markup.heading("Advice")]
    for title, piece in _numbered(advice, following):
        more = [f"Write: {piece.line}"] if piece.line else []
        parts.append(markup.said(f"{title}: {piece.sentence}", *more, *_risk(piece)) + markup.bullets(piece.evidence))
    return "".join(parts)


def advice_lines(advice: Sequence[Advice], following: Advice | None) -> list[str]:
    """The same as plain text."""
    if not advice and following is None:
        return [NO_ADVICE]
    told: list[str] = []
    for title, piece in _numbered(advice, following):
        told += [f"{title}: {piece.sentence}", *([f"  write: {piece.line}"] if piece.line else [])]
        told += [f"  {text}" for text in (*_risk(piece), *piece.evidence)]
    return told


def _numbered(advice: Sequence[Advice], following: Advice | None) -> list[tuple[str, Advice]]:
    first = [("Next time", following)] if following is not None else []
    return [*first, *((f"Advice {number}", piece) for number, piece in enumerate(advice, 1))]


def _risk(piece: Advice) -> list[str]:
    if piece.risk_before is None or piece.risk_after is None:
        return []
    change = f"{percent(piece.risk_before)} → {percent(piece.risk_after)}"
    falls = piece.risk_after < piece.risk_before - 0.005
    return [f"Risk if submitted now: {change}" if falls else f"The model sees no difference ({change}); past jobs do."]
