"""Batches: windows in portions, with the threads of a graph always in the same one.

Windows + architecture -> graph numbers -> Batch (rows, graphs) by Batch, in a given or in a shuffled order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from stormpetrel.traces.networks.message_passing import Graphs


@dataclass(frozen=True, slots=True)
class Batch:
    """Some windows: their rows, and which of them belong together (None where every thread is alone)."""

    rows: torch.Tensor  # (batch,)
    graphs: Graphs | None


class BatchPlan:
    """How so many windows are cut into batches of about `batch_windows`: whole graphs only, so up to one graph more."""

    def __init__(self, windows: int, numbers: npt.NDArray[np.int64] | None, *, batch_windows: int, device: torch.device) -> None:
        self._alone = numbers is None
        self._numbers = np.arange(windows, dtype=np.int64) if numbers is None else numbers
        self._batch_windows = batch_windows
        self._device = device
        self._rows = np.argsort(self._numbers, kind="stable")  # graph after graph
        _, self._first, self._size = np.unique(self._numbers[self._rows], return_index=True, return_counts=True)

    def in_order(self) -> Iterator[Batch]:
        """All windows, graph after graph."""
        return self._batches(np.arange(self._size.size))

    def shuffled(self, generator: torch.Generator) -> Iterator[Batch]:
        """All windows, the graphs in an order that the generator draws."""
        return self._batches(torch.randperm(self._size.size, generator=generator).numpy())

    def _batches(self, graphs: npt.NDArray[np.intp]) -> Iterator[Batch]:
        size = self._size[graphs]
        before = np.cumsum(size) - size  # windows in front of each graph
        rows = self._rows[np.repeat(self._first[graphs] - before, size) + np.arange(size.sum())]
        number = before // self._batch_windows  # of the batch of each graph
        bounds = [*before[np.flatnonzero(np.diff(number, prepend=-1))], rows.size]
        on_device = torch.from_numpy(rows).to(self._device)
        for first, last in pairwise(bounds):
            together = None if self._alone else Graphs.of_numbers(self._numbers[rows[first:last]], self._device)
            yield Batch(on_device[first:last], together)
