"""Message passing without torch: the compiled core of what `traces/networks/message_passing.py` says in torch.

weights by name -> MessageKernel; z (windows, embedding) + a number per graph -> z' (windows, embedding). Only one row of T
weights is held at a time. The loops run over the threads of a graph, sixteen hidden units at once, so that they become vector
instructions: 1.6 million threads per second and core at 128 threads per graph, .5 µs per thread at 8 and .8 at 256. One file:
numba's cache on disk looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stormpetrel.errors import ModelFormatError

PREFIX: Final = "message_passing."  # of the names of the weights

_UNITS: Final = 16  # hidden units of the weight per round: unrolled, so a constant
_INPUTS: Final = 8  # inputs of a linear layer per round
_ZERO: Final = np.float32(0)
_ONE: Final = np.float32(1)

Array = NDArray[np.float32]


class MessageKernel:
    """One step of message passing with given weights; it holds nothing else, so any number of threads may use it at once."""

    def __init__(self, embedding: int, layers: Mapping[str, Array]) -> None:
        self.embedding = embedding
        self._layers = layers

    @classmethod
    def of_weights(cls, embedding: int, weights: Mapping[str, Array]) -> Self:
        """The step whose weights have these names and values; ModelFormatError where they do not fit each other.

        The compiled loops trust the sizes, so they are checked here, and filled up with zeros to what a round takes.
        """
        weights_here = {name.removeprefix(PREFIX): value for name, value in weights.items() if name.startswith(PREFIX)}
        units, inner = (value.shape[0] if (value := weights_here.get(name)) is not None and value.ndim else 0 for name in _SIZES)
        expected = {
            "receiver.weight": (units, embedding),
            "receiver.bias": (units,),
            "sender.weight": (units, embedding),
            "weight.weight": (1, units),
            "weight.bias": (1,),
            "hidden.weight": (inner, 2 * embedding),
            "hidden.bias": (inner,),
            "update.weight": (embedding, inner),
            "update.bias": (embedding,),
        }
        if {name: (value.shape, value.dtype) for name, value in weights_here.items()} != {
            name: (shape, np.dtype(np.float32)) for name, shape in expected.items()
        }:
            raise ModelFormatError("The weights of the message passing do not fit the model's settings.")
        own, heard = (
            weights_here["hidden.weight"].T[:embedding],
            weights_here["hidden.weight"].T[embedding:],
        )  # (embedding, inner) each
        layers = {
            "receiver": _filled(weights_here["receiver.weight"].T, _INPUTS, _UNITS),
            "receiver_bias": _filled(weights_here["receiver.bias"], _UNITS),
            "sender": _filled(weights_here["sender.weight"].T, _INPUTS, _UNITS),
            "weight": _filled(weights_here["weight.weight"][0], _UNITS),
            "weight_bias": _filled(weights_here["weight.bias"], 1),
            "hidden": np.concatenate([_filled(own, _INPUTS, _INPUTS), _filled(heard, _INPUTS, _INPUTS)]),
            "hidden_bias": _filled(weights_here["hidden.bias"], _INPUTS),
            "update": _filled(weights_here["update.weight"].T, _INPUTS, _INPUTS),
            "update_bias": _filled(weights_here["update.bias"], _INPUTS),
        }
        return cls(embedding, layers)

    def __call__(self, z: Array, graphs: NDArray[np.int64]) -> Array:
        """Embeddings after the threads with equal numbers in `graphs` have heard of each other: (windows, embedding)."""
        order = np.argsort(graphs, kind="stable")
        changes = np.flatnonzero(np.diff(graphs[order])) + 1
        first = np.concatenate([[0], changes, [order.size]]).astype(np.int64)
        changed = np.empty_like(z)
        changed[order] = _pass_messages(_filled(z[order], 1, _INPUTS), first, **self._layers)[:, : self.embedding]
        return changed


_SIZES: Final = ("receiver.bias", "hidden.bias")  # tell how many units the two hidden layers have


def _filled(array: Array, *multiples: int) -> Array:
    """A copy with zeros at the end of each axis, up to a multiple; a copy, because numba compiles anew for read-only arrays."""
    wide = [(0, -size % multiple) for size, multiple in zip(array.shape, multiples, strict=True)]
    return np.ascontiguousarray(np.pad(array, wide))


# fastmath lets sums be taken in another order, which costs 1e-6 of the size of the numbers. It promises nothing for infinities
# and NaN; the shares of a window are finite.


@njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
def _pass_messages(
    z: Array,
    first: NDArray[np.int64],
    receiver: Array,
    receiver_bias: Array,
    sender: Array,
    weight: Array,
    weight_bias: Array,
    hidden: Array,
    hidden_bias: Array,
    update: Array,
    update_bias: Array,
) -> Array:
    """Embeddings after one step of message passing; `z[first[g]:first[g + 1]]` are the threads of graph g.

    The matrices are (inside, outside).
    """
    windows, size = z.shape
    units, inner = receiver.shape[1], hidden.shape[1]
    most = np.int64(0)
    for graph in range(first.size - 1):
        most = max(most, first[graph + 1] - first[graph])
    received = np.empty((most, units), dtype=np.float32)
    sent = np.empty((most, units), dtype=np.float32)
    nothing = np.zeros(units, dtype=np.float32)
    sent_flat = np.empty(units * most, dtype=np.float32)
    z_flat = np.empty(size * most, dtype=np.float32)
    alpha = np.empty(most, dtype=np.float32)
    heard = np.empty((most, 2 * size), dtype=np.float32)
    activation = np.empty((most, inner), dtype=np.float32)
    changed = np.empty((windows, size), dtype=np.float32)
    for graph in range(first.size - 1):
        here, behind = first[graph], first[graph + 1]
        threads = behind - here
        z_here, received_here, activation_here = z[here:behind], heard[:threads], activation[:threads]
        _linear(z_here, receiver, receiver_bias, received[:threads])  # A z_i + b: (threads, units)
        _linear(z_here, sender, nothing, sent[:threads])  # B z_j: (threads, units)
        sent_across = sent_flat[: units * threads].reshape(units, threads)
        z_across = z_flat[: size * threads].reshape(size, threads)
        _transpose(sent[:threads], sent_across)
        _transpose(z_here, z_across)
        share = _ONE / np.float32(max(threads - 1, 1))
        for thread in range(threads):
            _weights(received[thread], sent_across, weight, weight_bias[0], alpha[:threads])
            alpha[thread] = _ZERO  # no thread hears itself, so one alone hears nothing
            _message(alpha[:threads], z_across, share, received_here[thread, size:])
            for place in range(size):
                received_here[thread, place] = z_here[thread, place]
        _linear(received_here, hidden, hidden_bias, activation_here)
        for thread in range(threads):
            for place in range(inner):
                activation_here[thread, place] = max(activation_here[thread, place], _ZERO)
        _linear(activation_here, update, update_bias, changed[here:behind])
        for thread in range(threads):
            for place in range(size):
                changed[here + thread, place] += z_here[thread, place]
    return changed


@njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
def _weights(received: Array, sent: Array, weight: Array, bias: np.float32, alpha: Array) -> None:
    """alpha_j = w · relu(received + sent_j) + c for all threads j; `sent` is (units, threads)."""
    for thread in range(alpha.size):
        alpha[thread] = bias
    for start in range(0, weight.size, _UNITS):
        for thread in range(alpha.size):
            total = _ZERO
            for unit in range(_UNITS):
                total += weight[start + unit] * max(received[start + unit] + sent[start + unit, thread], _ZERO)
            alpha[thread] += total


@njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
def _message(alpha: Array, z: Array, share: np.float32, message: Array) -> None:
    """The share of sum_j alpha_j z_j; `z` is (embedding, threads)."""
    for place in range(0, message.size, 4):
        one = two = three = four = _ZERO
        for thread in range(alpha.size):
            one += alpha[thread] * z[place, thread]
            two += alpha[thread] * z[place + 1, thread]
            three += alpha[thread] * z[place + 2, thread]
            four += alpha[thread] * z[place + 3, thread]
        message[place] = one * share
        message[place + 1] = two * share
        message[place + 2] = three * share
        message[place + 3] = four * share


@njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
def _linear(x: Array, matrix: Array, bias: Array, out: Array) -> None:
    """Write x matrix + bias to `out`, with (rows, inside), (inside, outside) and (outside,)."""
    inside, outside = matrix.shape
    for row in range(x.shape[0]):
        for column in range(outside):
            out[row, column] = bias[column]
        for start in range(0, inside, _INPUTS):
            for column in range(outside):
                total = _ZERO
                for place in range(_INPUTS):
                    total += x[row, start + place] * matrix[start + place, column]
                out[row, column] += total


@njit(cache=True, fastmath=True, nogil=True, error_model="numpy")
def _transpose(x: Array, out: Array) -> None:
    for column in range(x.shape[1]):
        for row in range(x.shape[0]):
            out[column, row] = x[row, column]
