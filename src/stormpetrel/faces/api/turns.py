"""Turns: checks are worked on one after the other, and whoever has hung up while waiting is passed over.

request + work -> Turns.take -> its result, or None where nobody waits for it any more. sbatch waits for 150 ms only: without this
a burst of submissions would be worked off for minutes after the last of them has gone on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from stormpetrel.errors import StoreBusyError

Wanted = ParamSpec("Wanted")
Result = TypeVar("Result")
AT_ONCE: Final = 2  # Python works on one; the other may wait for a file or a scheduler
MOST_WAITING: Final = 512


class Turns:
    """A place for so many pieces of work at once, in the order in which they came."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._at_once, self._most_waiting = at_once, most_waiting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = asyncio.Semaphore(at_once)
        self.waiting = 0
        self.passed_over = 0  # so far

    async def take(
        self, request: Request, work: Callable[Wanted, Result], *arguments: Wanted.args, **named: Wanted.kwargs
    ) -> Result | None:
        """Do the work in a thread when its turn comes; StoreBusyError where too many wait already."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new server in the same process: nobody of the old one waits any more
            self._loop, self._places, self.waiting = loop, asyncio.Semaphore(self._at_once), 0
        if self.waiting >= self._most_waiting:
            raise StoreBusyError(f"{self.waiting} checks wait already.", hint="Try again in a few seconds.")
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        try:
            if await request.is_disconnected():
                self.passed_over += 1
                return None
            return await run_in_threadpool(work, *arguments, **named)
        finally:
            self._places.release()
