"""Batching: predictions that are requested at the same time are made together.

one item -> ask -> its answer; whatever waits when the last batch is done is the next one, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from stormpetrel.errors import StoreBusyError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
MOST_IN_BATCH: Final = 256
MOST_WAITING: Final = 4096
LINGER_S: Final = 0.005


class Batcher(Generic[Item, Answer]):
    """Answers single questions in batches; a frame of a hundred rows costs twice as much as a frame of one.

    Parameters
    ----------
    answer_all
        Items in, answers out, in the same order; runs in a thread of its own, one batch at a time.
    most
        Items in a batch.
    linger_s
        Under load, how long to wait for more after a batch: fewer, larger batches cost less. Who comes alone is answered at once.
    """

    def __init__(
        self, answer_all: Callable[[Sequence[Item]], Sequence[Answer]], *, most: int = MOST_IN_BATCH, linger_s: float = LINGER_S
    ) -> None:
        self._answer_all = answer_all
        self._most = most
        self._linger_s = linger_s
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self.batches = 0  # so far

    async def submit(self, item: Item) -> Answer:
        """The answer to one item; StoreBusyError where too many wait already."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new server in the same process: nobody of the old one waits any more
            self._loop, self._worker = loop, None
            self._waiting.clear()
        if len(self._waiting) >= MOST_WAITING:
            raise StoreBusyError(f"{MOST_WAITING} predictions wait already.", hint="Try again in a few seconds.")
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((item, future))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work(loop))
        return await future

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # requests that have just been read join this batch
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
            wanted = [(item, future) for item, future in batch if not future.done()]  # others have hung up
            if wanted:
                self.batches += 1
                await self._answer(loop, wanted)
            if len(wanted) > 1 and len(self._waiting) < self._most:
                await asyncio.sleep(self._linger_s)

    async def _answer(self, loop: asyncio.AbstractEventLoop, wanted: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await loop.run_in_executor(self._thread, self._answer_all, [item for item, _ in wanted])
        except Exception as error:  # everybody in the batch is told
            for _, future in wanted:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(wanted, answers, strict=True):
            if not future.done():
                future.set_result(answer)
