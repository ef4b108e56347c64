"""Windows of another length or step, as an encoder of fixed size sees them.

Windows, a number of steps of a length -> fitted -> Windows of just these; what comes back of them -> unfitted -> the steps that
they had. Every step is a mean over time, so that the shares still sum to one: a coarser step is held, finer ones are averaged, a
shorter window is repeated from its beginning, and a longer one is averaged into as many steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks import runtime
from stormpetrel.traces.networks.architecture import AutoencoderSettings

if TYPE_CHECKING:
    from stormpetrel.traces.networks.device_scorer import DeviceScorer
    from stormpetrel.traces.networks.runtime import TraceScorer

_SAME_STEP: Final = 0.01  # steps that differ by less are the same


class FittingScorer:
    """A scorer for windows of any length and step: they are fitted to what the encoder sees, and its answers back to them."""

    def __init__(self, scorer: TraceScorer | DeviceScorer, step_s: float) -> None:
        self._scorer, self._step_s = scorer, step_s

    @property
    def settings(self) -> AutoencoderSettings:
        """Those of the encoder."""
        return self._scorer.settings

    def for_stream(self, *, steps: int, step_s: float) -> TraceScorer | None:
        """The scorer itself, for windows that come step by step; None where it is too slow for that, or sees other windows."""
        same = self.settings.steps == steps and is_same_step(self._step_s, step_s)
        scorer = self._scorer
        return scorer if same and isinstance(scorer, runtime.TraceScorer) and scorer.is_for_streams else None

    def embed(self, windows: Windows) -> npt.NDArray[np.float32]:
        """A place in the space of embeddings for each window: (windows, embedding)."""
        return self._scorer.embed(self._fitted(windows))

    def reconstruct(self, windows: Windows) -> npt.NDArray[np.float32]:
        """Each window as it comes back from its embedding, in its own steps: (windows, steps, 4), sums to one."""
        back = self._scorer.reconstruct(self._fitted(windows))
        return unfitted(back, windows, step_s=self._step_s)

    def score(self, windows: Windows) -> npt.NDArray[np.float64]:
        """The reconstruction error of the fitted windows; higher is more abnormal."""
        return self._scorer.score(self._fitted(windows))

    def embed_and_score(self, windows: Windows) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Both at once."""
        return self._scorer.embed_and_score(self._fitted(windows))

    def _fitted(self, windows: Windows) -> Windows:
        return fitted(windows, steps=self.settings.steps, step_s=self._step_s)


def is_same_step(step_s: float, other_s: float) -> bool:
    """Whether two lengths of a step are one."""
    return abs(step_s - other_s) < _SAME_STEP * other_s


def fitted(windows: Windows, *, steps: int, step_s: float) -> Windows:
    """The same windows in `steps` steps of `step_s`; those that have them already as they are."""
    if windows.steps == steps and is_same_step(windows.step_s, step_s):
        return windows
    weights = _weights(windows.steps, windows.step_s, steps, step_s)
    return replace(windows, rates=_mixed(weights, windows.rates), step_s=step_s)


def unfitted(rates: npt.NDArray[np.float32], windows: Windows, *, step_s: float) -> npt.NDArray[np.float32]:
    """Rates (windows, steps of the encoder, 4) in the steps of the windows that they were made of; sums to one."""
    if windows.steps == rates.shape[1] and is_same_step(windows.step_s, step_s):
        return rates
    back = _weights(windows.steps, windows.step_s, rates.shape[1], step_s).T
    return _mixed(back / back.sum(axis=1, keepdims=True), rates)


@lru_cache(maxsize=16)
def _weights(had: int, had_s: float, steps: int, step_s: float) -> npt.NDArray[np.float32]:
    """How much of each step that there was goes into each that is wanted: (steps, had), rows sum to one."""
    long_s = had * had_s
    step_s = max(step_s, long_s / steps)  # of a longer window, all of it is seen
    fine = max(1, round(64 * step_s / min(step_s, had_s)))  # moments that are looked at in each step
    moments = (np.arange(steps * fine) + 0.5) * (step_s / fine)
    source = np.minimum((moments % long_s / had_s).astype(np.intp), had - 1)  # a shorter window begins again
    weights = np.zeros((steps, had), dtype=np.float64)
    np.add.at(weights, (np.arange(steps * fine) // fine, source), 1 / fine)
    return weights.astype(np.float32)


def _mixed(weights: npt.NDArray[np.float32], rates: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """(out, in) × (windows, in, 4) -> (windows, out, 4)."""
    mixed: npt.NDArray[np.float32] = np.einsum("oi,wim->wom", weights, rates.astype(np.float32, copy=False), optimize=True)
    return mixed
