"""Similar texts: groups of job names and of scripts, so that new ones begin with what is known of the nearest earlier ones.

texts in the order of their coming -> SimilarTexts.group -> the first text of each one's group. A text belongs to the group whose
first text was most like it when it came, or begins one of its own; it never changes groups, and later texts move nobody. So a
sweep over a log and a live site that sees the same texts in the same order form the same groups.

What texts have in common counts by how rare it is among the texts so far: a prefix that all of them share says little. In names
the first word that not all of them share counts most, each further one less: `align-reads-qx` is an `align` whatever follows. A
word that no other name has (a sample, a hash) counts no more than one that few have, or such names would never be alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Part = Mapping[str, float]  # tokens, each with how much of its part it is
Tokens = Callable[[str], Sequence[Part]]  # the parts of a text, in their order
LEAST_OF_NAMES: Final = 0.42  # of what two names consist of, by weight, they must share
LEAST_OF_SCRIPTS: Final = 1 / 3  # half of the values of two signatures agree: half of what the scripts consist of is the same
_PIECE: Final = 3  # letters
_SHORTEST_WORD: Final = 3
_FADING: Final = 0.4  # what a part matters beside the part before it
_COMMON: Final = 2.0  # one in so many texts has what they have in common, which does not make the next part matter less
_SHORT_WORD: Final = 0.1  # what a word of one or two letters matters beside a longer one
_MOST_RARE: Final = 10.0  # a token that one in more than so many texts has is as rare as one that none has
_SMOOTHING: Final = 5.0  # names that are imagined before the first: weights of a young site are nearly alike
_RAREST: Final = 6  # tokens of a text through which candidates are looked for
_MOST_CANDIDATES: Final = 400  # the latest groups of each such token: what joining a group costs has a bound


class SimilarTexts:
    """Groups of texts by what they consist of.

    Parameters
    ----------
    tokens
        What a text consists of.
    least
        The share, from 0 to 1, of two texts' tokens, by weight, that they have in common if they are similar.
    """

    def __init__(self, tokens: Tokens, least: float) -> None:
        self._tokens, self._least = tokens, least
        self._group: dict[str, str] = {}  # of each text the first text of its group, in the order of their coming
        self._seen: dict[str, int] = defaultdict(int)  # in how many texts a token was
        self._with: dict[str, list[str]] = defaultdict(list)  # first texts of groups by token

    def group(self, texts: pl.Series, *, take_in: bool) -> pl.Series:
        """The first text of each one's group (null for null); a text that was not `take_in` belongs to the nearest, if to any."""
        distinct = texts.unique(maintain_order=True).drop_nulls()
        groups = [self._of(text, take_in=take_in) for text in distinct]
        table = pl.DataFrame(
            {"text": distinct, "group": pl.Series(groups, dtype=pl.String)}, schema_overrides={"text": pl.String}
        )
        joined = pl.DataFrame({"text": texts.cast(pl.String)}).join(table, on="text", how="left", maintain_order="left")
        return joined["group"]

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The texts and their groups as plain arrays."""
        place = {text: number for number, text in enumerate(self._group)}
        encoded = [text.encode() for text in self._group]
        return {
            f"{prefix}.text": np.frombuffer(b"".join(encoded), np.uint8),
            f"{prefix}.length": np.array([len(text) for text in encoded], np.int64),
            f"{prefix}.group": np.array([place[first] for first in self._group.values()], np.int64),
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Know the texts that `to_arrays` has written; KeyError or ValueError where they are not whole."""
        lengths, groups = arrays[f"{prefix}.length"], arrays[f"{prefix}.group"]
        bounds = [0, *np.cumsum(lengths).tolist()]
        content = arrays[f"{prefix}.text"].tobytes()
        if (
            len(groups) != len(lengths)
            or bounds[-1] != len(content)
            or (groups > np.arange(len(groups))).any()
            or (groups < 0).any()
        ):
            raise ValueError("its texts are not those of its groups")
        texts = [content[begin:end].decode() for begin, end in pairwise(bounds)]
        self._group, self._seen, self._with = {}, defaultdict(int), defaultdict(list)
        for text, group in zip(texts, groups.tolist(), strict=True):
            self._remember(text, texts[group], self._tokens(text))

    def _of(self, text: str, *, take_in: bool) -> str:
        if text in self._group:
            return self._group[text]
        parts = self._tokens(text)
        first = self._nearest(parts) or text
        if take_in:
            self._remember(text, first, parts)
        return first

    def _nearest(self, parts: Sequence[Part]) -> str | None:
        """The first text of the most similar group; the earliest of equals, None where none is similar enough."""
        weights = self._weights(parts)
        known = (token for token in weights if token in self._with)
        rarest = sorted(known, key=lambda token: (-weights[token], token))[:_RAREST]
        candidates = dict.fromkeys(first for token in rarest for first in self._with[token][-_MOST_CANDIDATES:])
        whole, nearest, most = sum(weights.values()), None, self._least
        for first in candidates:
            shared, both = 0.0, whole
            for token, others in self._weights(self._tokens(first)).items():
                mine = weights.get(token, 0.0)
                shared += min(mine, others)
                both += max(0.0, others - mine)
            if shared > most * both:
                nearest, most = first, shared / both
        return nearest

    def _weights(self, parts: Sequence[Part]) -> dict[str, float]:
        """What each token of a text weighs: by how rare it is, and by its part."""
        weights: dict[str, float] = {}
        matters = 1.0
        for part in parts:
            rarest = 0.0
            for token, share in part.items():
                rarity = self._rarity(token)
                rarest = max(rarest, rarity)
                weights[token] = max(matters * share * math.log(rarity), weights.get(token, 0.0))
            matters *= _FADING if rarest > _COMMON else 1.0
        return weights

    def _rarity(self, token: str) -> float:
        """One in so many texts has the token; above 1."""
        return min(_MOST_RARE, (len(self._group) + _SMOOTHING) / (self._seen.get(token, 0) + 1.0))

    def _remember(self, text: str, first: str, parts: Sequence[Part]) -> None:
        self._group[text] = first
        for token in dict.fromkeys(token for part in parts for token in part):
            self._seen[token] += 1
            if text == first:
                self._with[token].append(first)


def name_tokens(name: str) -> list[Part]:
    """The words of an application's name (`keys.stem`: without counters, dates and hashes), and their pieces of three letters.

    Half of what a word matters is the word as a whole, half are its pieces.
    """
    return [_word_tokens(word) for word in name.split("-")]


def _word_tokens(word: str) -> Part:
    half = 0.5 if len(word) >= _SHORTEST_WORD else _SHORT_WORD / 2
    ended = f"^{word}$"
    pieces = [ended[at : at + _PIECE] for at in range(max(1, len(ended) - _PIECE + 1))]
    return {f"{word} ": half, **dict.fromkeys(pieces, half / len(pieces))}


def signature_tokens(signature: str) -> list[Part]:
    """The values of a script's signature, each with its place: as many agree as the scripts have in common (MinHash)."""
    return [{f"{place}:{value}": 1.0 for place, value in enumerate(signature.split("-"))}]


def similar_names() -> SimilarTexts:
    """Groups of the names of applications."""
    return SimilarTexts(name_tokens, LEAST_OF_NAMES)


def similar_scripts() -> SimilarTexts:
    """Groups of the signatures of scripts."""
    return SimilarTexts(signature_tokens, LEAST_OF_SCRIPTS)
