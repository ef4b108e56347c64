"""Rarity of embeddings: how far a window's place in the encoder's space lies from calm windows of the same kind of work.

embeddings (windows, embedding), job types -> EmbeddingRarity.fit -> log_distance -> (windows,): the logarithm of the distance to
the fifth nearest of some calm windows, in units of the calm spread. A window that lies among its like has a low value, one in an
empty region a high one; what is usual of either is learnt like every other statistic, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Embeddings = npt.NDArray[np.floating[Any]]
Types = npt.NDArray[np.str_]
Numbers = npt.NDArray[np.intp]

NEIGHBOURS: Final = 5
_REFERENCES: Final = 512  # calm windows of each kind of work
_FEWEST_OF_TYPE: Final = 64  # calm windows of a job type before it has references of its own
_SMALL: Final = 1e-3  # of the calm spread: idle windows lie on the same point
_LEAST_SPREAD: Final = 1e-6
_DIGITS: Final = 4  # of the logarithm: an encoder's last digits differ with the number of rows
_AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingRarity:
    """Embeddings of calm windows, drawn for each kind of work; the last kind is everything."""

    mean: Floats  # (embedding,)
    spread: Floats  # (embedding,)
    types: tuple[str, ...]
    references: Floats  # (references, embedding) in units of the spread
    kind: Numbers  # (references,) which type, len(types) for everything
    row: Numbers  # (references,) which of the windows that it was learnt from

    @classmethod
    def fit(cls, embeddings: Embeddings, job_type: Types, learn: npt.NDArray[np.bool_], seed: int) -> Self:
        """Draw references from the calm windows that `learn` names."""
        rng = np.random.default_rng([seed, 21])
        calm = embeddings[learn].astype(np.float64)
        mean, spread = calm.mean(axis=0), np.maximum(calm.std(axis=0), _LEAST_SPREAD)
        types, counts = np.unique(job_type[learn], return_counts=True)
        known = tuple(str(name) for name in types[counts >= _FEWEST_OF_TYPE])
        drawn = [_drawn(rng, np.flatnonzero(learn & (job_type == name))) for name in known]
        drawn.append(_drawn(rng, np.flatnonzero(learn)))
        row = np.concatenate(drawn)
        kind = np.repeat(np.arange(len(drawn)), [len(rows) for rows in drawn])
        references = ((embeddings[row].astype(np.float64) - mean) / spread).astype(np.float32)  # as they are saved
        return cls(mean, spread, known, references.astype(np.float64), kind, row)

    def log_distance(self, embeddings: Embeddings, job_type: Types) -> Floats:
        """The logarithm of the distance of each window to its neighbours, (windows,)."""
        return self._log_distance(embeddings, job_type, None)

    def log_distance_across(self, embeddings: Embeddings, job_type: Types, block: Numbers, rows: Numbers | None = None) -> Floats:
        """The same for the windows that it was learnt from, beside references of other blocks of time only.

        A calm window would find itself, its job and its hour among the references, and the next campaign's will not. `block`
        is of all windows that it was learnt from; the embeddings are those of some of them, where `rows` says which.
        """
        own = block if rows is None else block[rows]
        return self._log_distance(embeddings, job_type, (own, block[self.row]))

    def _log_distance(self, embeddings: Embeddings, job_type: Types, blocks: tuple[Numbers, Numbers] | None) -> Floats:
        distance = np.full(len(embeddings), np.inf)
        everything = len(self.types)
        for number in range(everything + 1):
            rows = np.flatnonzero(job_type == self.types[number]) if number < everything else np.flatnonzero(np.isinf(distance))
            near = self.kind == number
            for at in range(0, len(rows), _AT_ONCE):
                some = rows[at : at + _AT_ONCE]
                squares = _squares((embeddings[some].astype(np.float64) - self.mean) / self.spread, self.references[near])
                if blocks is not None:
                    squares[blocks[0][some][:, None] == blocks[1][near][None, :]] = np.inf
                distance[some] = np.sqrt(_nearest(squares))
        usual = distance[np.isfinite(distance)]
        filled = np.where(np.isfinite(distance), distance, np.median(usual) if usual.size else 1.0)
        return np.asarray(np.round(np.log(filled + _SMALL), _DIGITS), dtype=np.float64)

    def arrays(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """As they are saved; which windows the references were is not."""
        return {
            f"{prefix}.mean": self.mean,
            f"{prefix}.spread": self.spread,
            f"{prefix}.references": self.references.astype(np.float32),
            f"{prefix}.kind": self.kind.astype(np.int64),
        }

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, npt.NDArray[Any]], types: Any) -> Self:
        """As they were saved."""
        kind = arrays[f"{prefix}.kind"].astype(np.intp)
        references = arrays[f"{prefix}.references"].astype(np.float64)
        if references.ndim != 2 or len(references) != len(kind) or not len(kind):
            raise ValueError("its references of embeddings do not fit together")
        names = tuple(str(name) for name in types)
        return cls(arrays[f"{prefix}.mean"], arrays[f"{prefix}.spread"], names, references, kind, np.full(len(kind), -1))


def _drawn(rng: np.random.Generator, rows: Numbers) -> Numbers:
    return rows if rows.size <= _REFERENCES else np.sort(rng.choice(rows, _REFERENCES, replace=False))


def _squares(rows: Floats, references: Floats) -> Floats:
    """Squared distances, (rows, references)."""
    both = (rows**2).sum(axis=1)[:, None] + (references**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(both - 2 * rows @ references.T, 0.0))


def _nearest(squares: Floats) -> Floats:
    """The squared distance to the last of the nearest references, of the farthest where there are fewer."""
    if not squares.shape[1]:
        return np.full(len(squares), np.inf)
    place = min(NEIGHBOURS, squares.shape[1]) - 1
    return np.asarray(np.partition(squares, place, axis=1)[:, place])
