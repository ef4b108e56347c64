"""Questions that come together are answered together, each with its own answer."""

from __future__ import annotations

import asyncio
import threading

from stormpetrel.errors import ModelError, StoreBusyError
from stormpetrel.faces.api import batching
from stormpetrel.faces.api.batching import MOST_IN_BATCH, Batcher


class Doubler:
    """Doubles numbers, and remembers how many came at once; waits where it is told to."""

    def __init__(self):
        self.sizes = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, numbers):
        assert self.go.wait(10)
        self.sizes.append(len(numbers))
        if any(number < 0 for number in numbers):
            raise ModelError("There is no model.")
        return [2 * number for number in numbers]


async def held(batcher, doubler, ask):
    """Ask while a first batch is under way, so that everything else waits for it; what the others get."""
    doubler.go.clear()
    first = asyncio.ensure_future(batcher.submit(0))
    while not batcher.batches:
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(question) for question in ask]
    await asyncio.sleep(0)
    return first, others


def test_what_waits_while_a_batch_is_made_is_the_next_batch():
    doubler = Doubler()
    batcher = Batcher(doubler)

    async def ask_all():
        first, others = await held(batcher, doubler, [batcher.submit(number) for number in range(1, 40)])
        doubler.go.set()
        return [await first, *await asyncio.gather(*others)]

    assert asyncio.run(ask_all()) == [2 * number for number in range(40)]
    assert doubler.sizes == [1, 39]


def test_a_batch_has_a_limit():
    doubler = Doubler()
    batcher = Batcher(doubler)
    count = 2 * MOST_IN_BATCH + 10

    async def ask_all():
        first, others = await held(batcher, doubler, [batcher.submit(number) for number in range(count)])
        doubler.go.set()
        return await first, await asyncio.gather(*others)

    assert asyncio.run(ask_all())[1] == [2 * number for number in range(count)]
    assert doubler.sizes == [1, MOST_IN_BATCH, MOST_IN_BATCH, 10]


def test_what_goes_wrong_is_told_to_everybody_in_the_batch_and_to_nobody_else():
    doubler = Doubler()
    batcher = Batcher(doubler)

    async def ask_all():
        first, others = await held(batcher, doubler, [batcher.submit(-1), batcher.submit(1)])
        doubler.go.set()
        told = await asyncio.gather(first, *others, return_exceptions=True)
        return told, await batcher.submit(3)

    (first, *others), later = asyncio.run(ask_all())
    assert first == 0 and later == 6
    assert all(isinstance(error, ModelError) for error in others)


def test_who_has_hung_up_is_not_answered():
    doubler = Doubler()
    batcher = Batcher(doubler)

    async def ask_all():
        first, others = await held(batcher, doubler, [batcher.submit(number) for number in range(1, 4)])
        others[1].cancel()
        await asyncio.sleep(0)
        doubler.go.set()
        return [await first, await others[0], await others[2]]

    assert asyncio.run(ask_all()) == [0, 2, 6]
    assert doubler.sizes == [1, 2]


def test_too_many_are_sent_away(monkeypatch):
    monkeypatch.setattr(batching, "MOST_WAITING", 3)
    doubler = Doubler()
    batcher = Batcher(doubler)

    async def ask_all():
        first, others = await held(batcher, doubler, [batcher.submit(number) for number in range(5)])
        doubler.go.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    told = asyncio.run(ask_all())
    assert told[:4] == [0, 0, 2, 4]
    assert all(isinstance(error, StoreBusyError) and error.retry_helps for error in told[4:])


def test_a_new_server_in_the_same_process_begins_anew():
    batcher = Batcher(Doubler())
    assert [asyncio.run(batcher.submit(number)) for number in range(3)] == [0, 2, 4]


def test_a_server_that_stopped_half_way_leaves_nothing_behind():
    doubler = Doubler()
    batcher = Batcher(doubler)

    async def stopped():
        await held(batcher, doubler, [batcher.submit(1)])

    asyncio.run(stopped())  # those who still wait are cancelled
    doubler.go.set()
    assert asyncio.run(batcher.submit(5)) == 10
