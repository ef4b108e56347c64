"""Turns: so many checks at once, in their order; who has hung up is passed over, and too many are sent away."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest
from starlette.requests import Request

from stormpetrel.errors import StoreBusyError
from stormpetrel.faces.api.turns import Turns

LIMIT_S = 20.0


class Client:
    """One end of a connection; `hang_up` closes it."""

    def __init__(self) -> None:
        self._gone = False

    def hang_up(self) -> None:
        self._gone = True

    async def receive(self) -> dict[str, Any]:
        if self._gone:
            return {"type": "http.disconnect"}
        await asyncio.sleep(LIMIT_S)  # nothing comes; whoever only looks does not wait
        raise AssertionError

    @property
    def request(self) -> Request:
        return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, self.receive)


class Work:
    """Work that takes until it is let go, and notes in which order it was done."""

    def __init__(self) -> None:
        self.let_go = Event()
        self.done: list[int] = []

    def __call__(self, number: int) -> int:
        assert self.let_go.wait(LIMIT_S)
        self.done.append(number)
        return 10 * number


async def wait_until(holds) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.001)


def test_who_has_hung_up_while_waiting_is_passed_over():
    turns, work, clients = Turns(at_once=1), Work(), [Client() for _ in range(4)]

    async def burst() -> list[int | None]:
        tasks = [asyncio.create_task(turns.take(client.request, work, number)) for number, client in enumerate(clients)]
        await wait_until(lambda: turns.waiting == 3)
        clients[1].hang_up()
        clients[2].hang_up()
        work.let_go.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(burst()) == [0, None, None, 30]
    assert work.done == [0, 3] and turns.passed_over == 2


def test_too_many_are_sent_away_and_a_failure_frees_the_place():
    turns, work = Turns(at_once=1, most_waiting=1), Work()

    def fails() -> None:
        raise ValueError("not well")

    async def ask() -> int | None:
        first = asyncio.create_task(turns.take(Client().request, work, 1))
        await asyncio.sleep(0)
        second = asyncio.create_task(turns.take(Client().request, work, 2))
        await wait_until(lambda: turns.waiting == 1)
        with pytest.raises(StoreBusyError, match="1 checks wait already"):
            await turns.take(Client().request, work, 3)
        work.let_go.set()
        assert await asyncio.gather(first, second) == [10, 20]
        with pytest.raises(ValueError, match="not well"):
            await turns.take(Client().request, fails)
        return await turns.take(Client().request, work, 4)

    assert asyncio.run(ask()) == 40


def test_a_new_server_in_the_same_process_begins_anew():
    turns, work = Turns(), Work()
    work.let_go.set()
    assert [asyncio.run(turns.take(Client().request, work, number)) for number in (1, 2)] == [10, 20]
