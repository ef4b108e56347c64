"""Similar texts: groups of job names and of scripts, so that new ones begin with what is known of the nearest earlier ones.

texts in the order of their coming -> SimilarTexts.group -> the first text of each one's group. A text belongs to the group whose
first text was most like it when it came, or begins one of its own; it never changes groups, and later texts move nobody. So a
sweep over a log and a live site that sees the same texts in the same order form the same groups.

What names have in common counts by how rare it is among the names so far: a prefix that all of them share says little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Tokens = Callable[[str], frozenset[str]]
LEAST_OF_NAMES: Final = 0.4  # of what two names consist of, by weight, they must share
LEAST_OF_SCRIPTS: Final = 1 / 3  # half of the values of two signatures agree: half of what the scripts consist of is the same
_PIECE: Final = 3  # letters
_SHORTEST_WORD: Final = 3
_SMOOTHING: Final = 10.0  # names that are imagined before the first: weights of a young site are nearly alike
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
        tokens = self._tokens(text)
        first = self._nearest(tokens) or text
        if take_in:
            self._remember(text, first, tokens)
        return first

    def _nearest(self, tokens: frozenset[str]) -> str | None:
        """The first text of the most similar group; the earliest of equals, None where none is similar enough."""
        weights = {token: self._weight(token) for token in tokens}
        rarest = sorted((token for token in tokens if token in self._with), key=lambda token: (-weights[token], token))[:_RAREST]
        candidates = dict.fromkeys(first for token in rarest for first in self._with[token][-_MOST_CANDIDATES:])
        whole, nearest, most = sum(weights.values()), None, self._least
        for first in candidates:
            theirs = self._tokens(first)
            shared = sum(weights[token] for token in sorted(tokens & theirs))
            both = whole + sum(self._weight(token) for token in sorted(theirs - tokens))
            if shared > most * both:
                nearest, most = first, shared / both
        return nearest

    def _weight(self, token: str) -> float:
        return math.log(1.0 + (len(self._group) + _SMOOTHING) / (self._seen.get(token, 0) + 1.0))

    def _remember(self, text: str, first: str, tokens: frozenset[str]) -> None:
        self._group[text] = first
        for token in tokens:
            self._seen[token] += 1
            if text == first:
                self._with[token].append(first)


def name_tokens(name: str) -> frozenset[str]:
    """The words of an application's name (`keys.stem`: without counters, dates and hashes), and its pieces of three letters."""
    ended = f"^{name}$"
    pieces = (ended[at : at + _PIECE] for at in range(len(ended) - _PIECE + 1))
    return frozenset(pieces) | {f"{word} " for word in name.split("-") if len(word) >= _SHORTEST_WORD}


def signature_tokens(signature: str) -> frozenset[str]:
    """The values of a script's signature, each with its place: as many agree as the scripts have in common (MinHash)."""
    return frozenset(f"{place}:{value}" for place, value in enumerate(signature.split("-")))


def similar_names() -> SimilarTexts:
    """Groups of the names of applications."""
    return SimilarTexts(name_tokens, LEAST_OF_NAMES)


def similar_scripts() -> SimilarTexts:
    """Groups of the signatures of scripts."""
    return SimilarTexts(signature_tokens, LEAST_OF_SCRIPTS)
