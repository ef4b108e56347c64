"""How useful people find each sort of advice: what they reject is shown less.

opinions -> AdviceUsefulness.chosen(pieces) -> the pieces to show, the rest counted. Opinions are kept as sentences; those that
differ in their figures and names of partitions only are one sort. Each person has one voice per sort, the mean of his opinions:
nobody hides advice from others by clicking. Shares are drawn towards 0.75, as if four people had spoken: three useful, one not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from stormpetrel.jobs.advice.advice import Advice

PRIOR_SHARE: Final = 0.75
PRIOR_VOICES: Final = 4.0
LAST_BELOW: Final = 0.5  # a sort that fewer find useful comes after the others
HIDDEN_BELOW: Final = 0.35  # and below this is not shown, unless somebody ran out of something
_FIGURE: Final = re.compile(r"\d[\d.,:-]*\s?(?:[KMGT]i?B|min|h|s|d|days?|hours?|cores?|CPUs?)?\b(?:\s\d+\s?(?:min|h|s))?")
_PLACE: Final = re.compile(r"\b(partition|queue|QOS|qos)\s+\S+|\binstead of \S+?(?=[:;.]|$)")


class AdviceUsefulness:
    """What people said of advice so far; without opinions everything is shown as before."""

    def __init__(self, opinions: Iterable[tuple[str, str, bool]] = ()) -> None:
        voices: dict[str, dict[str, list[bool]]] = {}
        for user, sentence, useful in opinions:
            voices.setdefault(sort_of(sentence), {}).setdefault(user, []).append(useful)
        self._shares = {sort: _share([sum(one) / len(one) for one in of.values()]) for sort, of in voices.items()}

    def share(self, sentence: str) -> float:
        """Return which share of people find advice of this sort useful, drawn towards PRIOR_SHARE."""
        return self._shares.get(sort_of(sentence), PRIOR_SHARE)

    def chosen(self, pieces: Sequence[Advice]) -> tuple[tuple[Advice, ...], int]:
        """Return the pieces to show, those that people reject last, and how many are left out.

        A piece that rests on jobs that ran out of memory or time is a fact, and is shown whatever people think of its sort.
        """
        shown = [piece for piece in pieces if self.share(piece.sentence) >= HIDDEN_BELOW or not _may_be_hidden(piece)]
        ordered = sorted(shown, key=lambda piece: self.share(piece.sentence) < LAST_BELOW)
        return tuple(ordered), len(pieces) - len(shown)


def sort_of(sentence: str) -> str:
    """Return what is left of a sentence without its figures and names."""
    return _FIGURE.sub("#", _PLACE.sub("@", sentence)).strip()


def _share(voices: Sequence[float]) -> float:
    return (sum(voices) + PRIOR_SHARE * PRIOR_VOICES) / (len(voices) + PRIOR_VOICES)


def _may_be_hidden(piece: Advice) -> bool:
    """Whether a piece is a proposal: it saves something, or moves the job elsewhere."""
    return piece.saves or piece.column in ("partition", "qos") or piece.column is None
