"""The sliding score: how abnormal the last window of every thread is, anew with each step.

rates of one step (threads, 4) -> SlidingScores.push -> error (threads,). It is the score of the whole window that ends with this
step, by the graph of `fast` that embeds, decodes and scores at once: exact, not an estimate. Of each thread the last window is
held and nothing else. To reuse the patches that a window shares with the one before would save a tenth at most, because nine
tenths of the work come behind them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import MODES
from stormpetrel.traces.networks.runtime import FAST_AT_ONCE, TraceScorer

Array = npt.NDArray[np.float32]

_NOT_SEEN: Final = np.float32(np.nan)


class SlidingScores:
    """The last window of some threads, and its score after each step.

    A thread has no score (NaN) before it was seen for a whole window, and for as long as a step that was missed lies within it.
    """

    def __init__(self, scorer: TraceScorer, threads: int) -> None:
        self._scorer, self.threads = scorer, threads
        self._steps = scorer.settings.steps
        self._ring: Array = np.full((threads, self._steps, len(MODES)), _NOT_SEEN, dtype=np.float32)
        self._next = 0  # where the next step goes: the oldest lies there
        self._seen = np.zeros(threads, dtype=np.int64)  # steps without a gap up to now

    @property
    def bytes_held(self) -> int:
        """Memory that the windows need."""
        return self._ring.nbytes + self._seen.nbytes

    def push(self, rates: Array) -> Array:
        """Take one step of every thread (threads, 4), NaN where it was not seen; return the error of each window that it ends."""
        if rates.shape != (self.threads, len(MODES)):
            raise ModelError(f"A step of {self.threads} threads has the shape {self.threads} × 4, not {rates.shape}.")
        self._ring[:, self._next] = rates
        self._next = (self._next + 1) % self._steps
        self._seen = np.where(np.isfinite(rates).all(axis=1), self._seen + 1, 0)
        return self._scores(self._seen >= self._steps)

    def windows(self) -> Array:
        """The last window of each thread, oldest step first: (threads, steps, 4)."""
        return np.roll(self._ring, -self._next, axis=1)

    def _scores(self, whole: npt.NDArray[np.bool_]) -> Array:
        """Portion by portion, so that a portion's windows, put in order, stay in the cache."""
        scores = np.full(self.threads, _NOT_SEEN, dtype=np.float32)
        behind = self._steps - self._next
        portion: Array = np.empty((FAST_AT_ONCE, self._steps, len(MODES)), dtype=np.float32)
        for first in range(0, self.threads, FAST_AT_ONCE):
            rows = slice(first, min(first + FAST_AT_ONCE, self.threads))
            if not whole[rows].any():
                continue
            ring, ordered = self._ring[rows], portion[: rows.stop - first]
            ordered[:, :behind], ordered[:, behind:] = ring[:, self._next :], ring[:, : self._next]
            _, error = self._scorer.embed_and_score_rates(ordered)
            scores[rows] = np.where(whole[rows], error, _NOT_SEEN)
        return scores
