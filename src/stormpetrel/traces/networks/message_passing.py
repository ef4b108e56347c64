"""Message passing: one step on the complete graph of a node's or a job's threads.

z (windows, embedding) + Graphs -> z' (windows, embedding), with z_i' = z_i + MLP(z_i, m_i) and m_i = mean over the other
threads j of alpha_ij z_j. The weight alpha_ij comes from an MLP on both embeddings, alpha_ij = w · relu(A z_i + B z_j + b) + c:
its first layer is linear in each of them, so A z_i + b and B z_j are computed once per thread, and what is held of the pairs of
a large graph is T × T numbers, never T × T × hidden. Means, not sums: plain sums over a large graph can fail to train. A thread
alone hears nothing (0). On a core of 80 GFLOP/s, forward and backward take 3 µs per thread at 8 threads per graph and 27 at 256,
beside some 450 for encoder and decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from stormpetrel.traces.networks.architecture import ATTENTION_HIDDEN

_UPDATE_HIDDEN: Final = 64
_PAIRS_AT_ONCE: Final = 128 * 128  # numbers per graph: more hidden units at a time for small graphs, where calls cost most


@dataclass(frozen=True, slots=True)
class GraphGroup:
    """Graphs of about the same size side by side; `member` is 0 where a graph has fewer threads than the widest."""

    rows: Tensor  # (graphs, threads) rows of the windows; one past the last where there is no thread
    member: Tensor  # (graphs, threads) 1 or 0


@dataclass(frozen=True, slots=True)
class Graphs:
    """Which windows belong together, grouped by size so that few places stay empty; threads alone are in no group."""

    groups: tuple[GraphGroup, ...]

    @classmethod
    def of_numbers(cls, numbers: npt.NDArray[np.int64], device: torch.device) -> Graphs:
        """Graphs from a number per window: equal numbers belong together."""
        order = np.argsort(numbers, kind="stable")
        _, first, size = np.unique(numbers[order], return_index=True, return_counts=True)
        # Sizes 2, 3-4, 5-8, ... : fewer than half of the places stay empty, and there are few groups.
        power = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)
        groups = []
        for exponent in np.unique(power[size > 1]):
            here = power == exponent
            place = np.arange(size[here].max())  # (threads,)
            member = place < size[here][:, None]  # (graphs, threads)
            rows = np.where(member, order[np.minimum(first[here][:, None] + place, order.size - 1)], numbers.size)
            groups.append(GraphGroup(torch.from_numpy(rows).to(device), torch.from_numpy(member.astype(np.float32)).to(device)))
        return cls(tuple(groups))


class MessagePassing(nn.Module):
    """One step of message passing, the same for all threads."""

    def __init__(self, embedding: int) -> None:
        super().__init__()
        self.receiver = nn.Linear(embedding, ATTENTION_HIDDEN)  # A z_i + b
        self.sender = nn.Linear(embedding, ATTENTION_HIDDEN, bias=False)  # B z_j
        self.weight = nn.Linear(ATTENTION_HIDDEN, 1)  # w · h + c
        self.hidden = nn.Linear(2 * embedding, _UPDATE_HIDDEN)
        self.update = nn.Linear(_UPDATE_HIDDEN, embedding)

    def forward(self, z: Tensor, graphs: Graphs) -> Tensor:
        """(windows, embedding) -> (windows, embedding)."""
        heard = torch.cat([z, self.messages(z, graphs)], dim=1)  # (windows, 2 × embedding)
        changed: Tensor = z + self.update(functional.relu(self.hidden(heard)))
        return changed

    def messages(self, z: Tensor, graphs: Graphs) -> Tensor:
        """What each thread hears of the others: (windows, embedding)."""
        one_more = z.new_zeros(1, z.shape[1])
        z_and_none = torch.cat([z, one_more])  # the row that empty places point to
        heard = torch.zeros_like(z_and_none)
        receivers = torch.cat([self.receiver(z), z.new_zeros(1, ATTENTION_HIDDEN)])  # (windows + 1, hidden)
        senders = torch.cat([self.sender(z), z.new_zeros(1, ATTENTION_HIDDEN)])
        for group in graphs.groups:
            alpha = _pairwise_weights(receivers[group.rows], senders[group.rows], self.weight.weight[0]) + self.weight.bias
            alpha = alpha * _others(group.member)  # (graphs, threads, threads), 0 for itself and for empty places
            neighbours = group.member.sum(1)[:, None, None] - 1
            message = torch.bmm(alpha, z_and_none[group.rows]) / neighbours  # (graphs, threads, embedding)
            heard = heard.index_copy(0, group.rows.flatten(), message.flatten(0, 1))
        return heard[:-1]


def _others(member: Tensor) -> Tensor:
    """1 where i hears j: both are there, and j is not i: (graphs, threads, threads)."""
    both = member[:, :, None] * member[:, None, :]
    return both * (1 - torch.eye(member.shape[1], device=member.device))


class _PairwiseWeights(torch.autograd.Function):
    """sum over k of w_k relu(a_ik + b_jk), a few hidden units at a time; the backward pass computes them again.

    Left to itself, torch would keep a T × T matrix per hidden unit for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        """(graphs, T, hidden) twice and (hidden,) -> (graphs, T, T)."""
        ctx.save_for_backward(a, b, w)
        alpha = a.new_zeros(a.shape[0], a.shape[1], b.shape[1])
        for some in _portions(a):
            alpha += _units(a, b, some) @ w[some]
        return alpha

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of a, b and w from that of alpha."""
        a, b, w = ctx.saved_tensors
        d_alpha = gradients[0].contiguous()
        d_a, d_b, d_w = torch.empty_like(a), torch.empty_like(b), torch.empty_like(w)
        for some in _portions(a):
            units = _units(a, b, some)  # (graphs, T, T, some)
            d_w[some] = d_alpha.flatten() @ units.flatten(0, 2)
            through = torch.where(units > 0, d_alpha[..., None], 0.0)  # (graphs, T, T, some)
            d_a[:, :, some] = through.sum(2) * w[some]
            d_b[:, :, some] = through.sum(1) * w[some]
        return d_a, d_b, d_w


def _portions(a: Tensor) -> Iterator[slice]:
    """Which hidden units are computed at once: all for small graphs, one for large ones."""
    threads, hidden = a.shape[1], a.shape[2]
    at_once = max(1, min(hidden, _PAIRS_AT_ONCE // (threads * threads)))
    return (slice(first, first + at_once) for first in range(0, hidden, at_once))


def _units(a: Tensor, b: Tensor, some: slice) -> Tensor:
    """Some hidden units of each pair of threads: (graphs, T, T, some)."""
    return (a[:, :, None, some] + b[:, None, :, some]).relu_()


def _pairwise_weights(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    weights: Tensor = _PairwiseWeights.apply(a, b, w)
    return weights
