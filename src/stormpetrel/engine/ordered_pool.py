"""Workers, what they have in hand, and what is done and waits for its turn.

items -> OrderedPool(crew).results -> results in the order of the items. A crew says how workers are hired, asked and dismissed:
LocalWorkers are processes of this machine, RayWorkers actors of a Ray cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol

from stormpetrel.engine.work import Finished, Item, OverallProgress, Result, named
from stormpetrel.errors import EngineError

# Items handed out per worker whose results nobody has taken yet: a slow one does not stop the others, and of very many only a few
# lie in memory.
AHEAD: Final = 4


class Kind(Enum):
    """What a worker has to say."""

    PROGRESS = "progress"  # share, text
    DONE = "done"  # result, CPU seconds
    FAILED = "failed"  # the error
    DIED = "died"  # how, in words


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that a worker said."""

    kind: Kind
    content: Any


class Crew(Protocol):
    """Workers of one place, by number."""

    tries: int  # how often an item is handed out whose workers die

    def size(self) -> int:
        """How many workers there can be now."""

    def begin(self, worker: int, item: object) -> None:
        """Hand an item to this worker, which is hired if it is not there."""

    def messages(self, workers: Sequence[int]) -> Iterable[tuple[int, Message]]:
        """Wait for what these workers have to say; it may be nothing."""

    def stop(self, busy: Sequence[int]) -> None:
        """End the work, whatever these workers do."""


@dataclass(slots=True)
class _Task(Generic[Item]):
    number: int
    label: str
    item: Item
    tries: int = 0


class OrderedPool(Generic[Item, Result]):
    """Hands out, gives back in order, tries again what a worker took with it when it died."""

    def __init__(
        self, crew: Crew, name: Callable[[Item], str], overall: OverallProgress, finished: Finished[Item, Result]
    ) -> None:
        self._crew = crew
        self._name = name
        self._overall = overall
        self._finished = finished
        self._busy: dict[int, _Task[Item]] = {}
        self._again: deque[_Task[Item]] = deque()
        self._ready: dict[int, Result] = {}
        self._yielded = 0

    def results(self, items: Iterable[Item]) -> Iterator[Result]:
        """Hand out → give back in order → wait, until there is nothing left."""
        waiting = enumerate(items)
        try:
            self._overall.begin(f"{min(self._crew.size(), self._overall.total or self._crew.size())} at a time")
            self._hand_out(waiting)
            while True:
                while self._yielded in self._ready:
                    self._yielded += 1
                    yield self._ready.pop(self._yielded - 1)
                    self._hand_out(waiting)
                if not self._busy:
                    return
                for worker, message in self._crew.messages(list(self._busy)):
                    self._receive(worker, message)
                self._hand_out(waiting)
        finally:
            self._crew.stop(list(self._busy))

    def _hand_out(self, waiting: Iterator[tuple[int, Item]]) -> None:
        most = self._crew.size()
        while len(self._busy) < most:
            if self._again:
                task = self._again.popleft()
            elif len(self._busy) + len(self._ready) < AHEAD * most and (upcoming := next(waiting, None)) is not None:
                task = _Task(upcoming[0], self._name(upcoming[1]), upcoming[1])
            else:
                return
            worker = next(number for number in range(most) if number not in self._busy)
            task.tries += 1
            self._busy[worker] = task
            self._crew.begin(worker, task.item)

    def _receive(self, worker: int, message: Message) -> None:
        task = self._busy[worker]
        match message.kind:
            case Kind.PROGRESS:
                share, text = message.content
                self._overall.step(task.number, share, f"{task.label}: {text}")
            case Kind.FAILED:
                del self._busy[worker]
                raise named(message.content, task.label, self._overall)
            case Kind.DIED:
                del self._busy[worker]
                self._try_again(task, message.content)
            case Kind.DONE:
                del self._busy[worker]
                result, cpu_s = message.content
                self._finished(task.item, result)
                self._ready[task.number] = result
                self._overall.end(task.number, task.label, cpu_s)

    def _try_again(self, task: _Task[Item], how: str) -> None:
        if task.tries >= self._crew.tries:
            times = "" if task.tries == 1 else f" {task.tries} times"
            raise EngineError(
                f"The process that worked on {task.label!r} died{times}, most likely for want of memory{how}.",
                hint="Use fewer workers, or ask for less at a time.",
            )
        self._overall.again(task.number, f"{task.label}: its worker died{how}; try {task.tries + 1} of {self._crew.tries}")
        self._again.append(task)
