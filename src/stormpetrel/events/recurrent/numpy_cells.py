"""The forward pass of the recurrent networks without torch: what a site needs to score a bucket.

weights (as torch names them) + columns (buckets, width) -> answers (buckets, outputs), each out of the last `sequence` rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Weights = Mapping[str, npt.NDArray[np.float32]]

_AT_ONCE: Final = 1024  # windows per pass: what they need stays in the cache


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a network: rows of `width` columns -> LSTM -> answer."""

    width: int
    hidden: int
    outputs: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by its name in torch."""
        return {
            "lstm.weight_ih_l0": (4 * self.hidden, self.width),
            "lstm.weight_hh_l0": (4 * self.hidden, self.hidden),
            "lstm.bias_ih_l0": (4 * self.hidden,),
            "lstm.bias_hh_l0": (4 * self.hidden,),
            "answer.weight": (self.outputs, self.hidden),
            "answer.bias": (self.outputs,),
        }


def check_weights(weights: Weights, sizes: Sizes) -> None:
    """ValueError where these are not the weights of a network of these sizes."""
    shapes = sizes.shapes()
    saved = {name: tuple(weight.shape) for name, weight in weights.items()}
    if saved != shapes:
        odd = sorted(name for name in saved.keys() | shapes.keys() if saved.get(name) != shapes.get(name))
        raise ValueError(f"the weights do not fit the settings: {', '.join(odd[:3])}")
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise ValueError("a weight is no number")


def answers(weights: Weights, columns: Matrix, ends: Rows, sequence: int) -> Matrix:
    """(windows, outputs) the network's outputs for the windows that end with these rows.

    Parameters
    ----------
    columns
        (buckets, width); rows before the first are zeros.
    ends
        (windows,) the last row of each window.
    """
    full = {name: weight.astype(np.float64) for name, weight in weights.items()}
    if not len(ends):
        return np.empty((0, full["answer.bias"].size))
    first = int(ends.min()) + 1 - sequence  # the first row that a window needs
    padded = np.concatenate([np.zeros((max(0, -first), columns.shape[1])), columns[max(0, first) : int(ends.max()) + 1]])
    # What a row adds to the gates does not depend on the window it lies in: one product serves all windows.
    bias = full["lstm.bias_ih_l0"] + full["lstm.bias_hh_l0"]
    rows = padded @ full["lstm.weight_ih_l0"].T + bias  # (rows, 4 × hidden)
    begins = ends + 1 - sequence - first  # (windows,) where each window begins in `rows`
    pieces = [slice(place, place + _AT_ONCE) for place in range(0, len(ends), _AT_ONCE)]
    return np.concatenate([_answered(full, rows, begins[piece], sequence) for piece in pieces])


def _answered(full: dict[str, Matrix], rows: Matrix, begins: Rows, sequence: int) -> Matrix:
    recurrent = np.ascontiguousarray(full["lstm.weight_hh_l0"].T)  # (hidden, 4 × hidden)
    hidden = recurrent.shape[0]
    state, cell = np.zeros((len(begins), hidden)), np.zeros((len(begins), hidden))
    for step in range(sequence):
        gates = rows[begins + step] + state @ recurrent  # (windows, 4 × hidden): in, forget, new, out, as torch orders them
        new = np.tanh(gates[:, 2 * hidden : 3 * hidden])
        cell = _sigmoid(gates[:, hidden : 2 * hidden]) * cell + _sigmoid(gates[:, :hidden]) * new
        state = _sigmoid(gates[:, 3 * hidden :]) * np.tanh(cell)
    answer: Matrix = state @ full["answer.weight"].T + full["answer.bias"]
    return answer


def _sigmoid(values: Matrix) -> Matrix:
    return 0.5 + 0.5 * np.tanh(0.5 * values)  # does not overflow
