"""Message passing: equal to the formula written out, thread by thread, for graphs of every size."""

from __future__ import annotations

from tests.parts import need

need("torch")

import numpy as np
import pytest
import torch

from stormpetrel.traces.networks.message_passing import Graphs, MessagePassing, _PairwiseWeights
from tests.traces.small import one_torch_thread

CPU = torch.device("cpu")
EMBEDDING = 4


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def passing():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MessagePassing(EMBEDDING)


def embeddings(windows: int) -> torch.Tensor:
    return torch.randn(windows, EMBEDDING, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def written_out(passing: MessagePassing, z: torch.Tensor, numbers: np.ndarray) -> torch.Tensor:
    """z_i + MLP(z_i, mean over the others j of alpha_ij z_j), with alpha_ij from an MLP on the pair."""
    first = torch.cat([passing.receiver.weight, passing.sender.weight], dim=1)  # (hidden, 2 × embedding)
    heard = torch.zeros_like(z)
    for i in range(len(z)):
        others = [j for j in range(len(z)) if numbers[j] == numbers[i] and j != i]
        for j in others:
            unit = torch.relu(first @ torch.cat([z[i], z[j]]) + passing.receiver.bias)
            heard[i] += (passing.weight.weight[0] @ unit + passing.weight.bias[0]) * z[j] / len(others)
    return z + passing.update(torch.relu(passing.hidden(torch.cat([z, heard], dim=1))))


@pytest.mark.parametrize(
    "numbers",
    [[0, 0], [0, 0, 0, 0, 0], [5, 1, 5, 5, 1, 9], [0] * 7 + [1] * 2 + [2] + [3] * 5 + [4] * 6, [3, 2, 1]],
    ids=["a pair", "five", "mixed up", "many sizes", "each alone"],
)
def test_it_is_the_formula(passing, numbers):
    numbers = np.array(numbers)
    z = embeddings(len(numbers))
    assert torch.allclose(passing(z, Graphs.of_numbers(numbers, CPU)), written_out(passing, z, numbers), atol=1e-5)


def test_a_thread_alone_hears_nothing(passing):
    assert torch.equal(passing.messages(embeddings(3), Graphs.of_numbers(np.arange(3), CPU)), torch.zeros(3, EMBEDDING))


def test_no_windows_have_no_messages(passing):
    assert passing(embeddings(0), Graphs.of_numbers(np.zeros(0, dtype=np.int64), CPU)).shape == (0, EMBEDDING)


def test_what_a_graph_hears_does_not_depend_on_its_neighbours_in_the_batch(passing):
    z, numbers = embeddings(20), np.array([0] * 3 + [1] * 16 + [2])
    alone = passing(z[:3], Graphs.of_numbers(numbers[:3], CPU))
    assert torch.allclose(passing(z, Graphs.of_numbers(numbers, CPU))[:3], alone, atol=1e-6)


def test_messages_do_not_grow_with_the_graph(passing):
    """The mean of equal neighbours is what one of them would say."""
    z = embeddings(1)
    few, many = (passing.messages(z.expand(n, -1), Graphs.of_numbers(np.zeros(n), CPU))[0] for n in (2, 200))
    assert torch.allclose(few, many, atol=1e-5)


def test_the_gradients_are_right():
    a, b, w = (
        torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
        for shape in ((2, 3, 5), (2, 3, 5), (5,))
    )
    assert torch.autograd.gradcheck(_PairwiseWeights.apply, (a, b, w))


def test_no_tensor_of_pairs_times_hidden_units_is_kept(passing):
    """What the backward pass keeps grows with T x T, not with T x T x hidden."""
    threads, kept = 64, []
    z = embeddings(threads).requires_grad_()
    graphs = Graphs.of_numbers(np.zeros(threads), CPU)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor):
        passing(z, graphs)
    assert kept and max(kept) <= threads * threads
    assert sum(kept) < 8 * threads * threads


def test_groups_leave_fewer_than_half_of_the_places_empty():
    sizes = np.random.default_rng(0).integers(1, 70, 60)
    numbers = np.repeat(np.arange(60), sizes)
    graphs = Graphs.of_numbers(numbers, CPU)
    members = sum(float(group.member.sum()) for group in graphs.groups)
    places = sum(group.member.numel() for group in graphs.groups)
    assert members == sizes[sizes > 1].sum() and places < 2 * members
