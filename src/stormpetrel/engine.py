"""Where heavy work runs: in this process, or in several processes on this machine.

Engine(workers).map(function, items) -> results, in the order of the items. An item carries its seed, so that its result does not
depend on where, or next to what, it was worked out. Nothing else in Stormpetrel starts processes to compute in.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from operator import length_hint
from typing import Any, Final, Generic, TypeVar

from stormpetrel.errors import EngineError, StormpetrelError, UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[float, str], None]  # share done, in words
Work = Callable[[Item, Progress], Result]  # has to be importable, or made of what is, where there are several workers

# Items handed out per worker whose results nobody has taken yet: a slow one does not stop the others, and of very many only a few
# lie in memory.
_AHEAD: Final = 4
_SINGLE: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
_INSIDE: Final = "STORMPETREL_ENGINE_WORKER"  # in the environment of a worker
_PROGRESS, _DONE, _FAILED = "progress", "done", "failed"


def no_progress(_share: float, _text: str) -> None:
    """Tell nobody."""


def cores() -> int:
    """How many cores this process may use: one inside a worker, whose neighbours have the others."""
    return 1 if os.environ.get(_INSIDE) else max(1, len(os.sched_getaffinity(0)))


def cpu_seconds() -> float:
    """CPU time so far of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs a function over many items: seeds, models, logs.

    Parameters
    ----------
    workers
        How many items are worked on at a time. With 1 it happens in this process, with all its cores; with more, in as many
        processes of one thread each. 0 is one worker for each core.
    """

    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise UsageError(f"{self.workers} workers cannot work.", hint="Ask for 1 or more, or for 0: one for each core.")

    def map(
        self,
        function: Work[Item, Result],
        items: Iterable[Item],
        *,
        name: Callable[[Item], str] = str,
        progress: Progress = no_progress,
    ) -> Iterator[Result]:
        """The result of each item in the order of the items, each as soon as those before it are there.

        `function(item, progress)` may tell its own progress, from 0 to 1. The first error ends everything: what waits is not
        begun, what runs is stopped, and the error bears the item's name. So does a caller who takes no more results.
        """
        at_once = min(self.workers or cores(), length_hint(items, 1_000_000))
        if at_once <= 1 or os.environ.get(_INSIDE):  # a worker has one core, and no workers of its own
            return _here(function, items, name, _OverallProgress(progress, length_hint(items)))
        return _Pool(function, at_once, name, _OverallProgress(progress, length_hint(items))).results(items)


ONE_PROCESS: Final = Engine()


class _OverallProgress:
    """The progress of all items as one share."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total  # 0 where nobody knows
        self._shares: dict[int, float] = {}  # of the items in work
        self._done = 0

    @property
    def is_single(self) -> bool:
        """Whether there is one item only, which needs no name."""
        return self._total == 1

    def begin(self, text: str) -> None:
        """Work goes on with this."""
        self._progress(self._share(), text)

    def step(self, number: int, share: float, text: str) -> None:
        """An item is so far."""
        self._shares[number] = min(1.0, max(0.0, share))
        self._progress(self._share(), text)

    def end(self, number: int, text: str) -> None:
        """An item is done."""
        self._shares.pop(number, None)
        self._done += 1
        self._progress(self._share(), text)

    def _share(self) -> float:
        return min(1.0, (self._done + sum(self._shares.values())) / self._total) if self._total else 0.0


def _here(
    function: Work[Item, Result], items: Iterable[Item], name: Callable[[Item], str], overall: _OverallProgress
) -> Iterator[Result]:
    for number, item in enumerate(items):
        label = name(item)
        overall.begin(label)

        def step(share: float, text: str, number: int = number, label: str = label) -> None:
            overall.step(number, share, f"{label}: {text}")

        try:
            result = function(item, step)
        except Exception as error:
            raise _named(error, label, overall) from error.__cause__
        overall.end(number, label)
        yield result


class _Worker:
    """A process that does one item after the other."""

    def __init__(self, function: Work[Any, Any]) -> None:
        context = get_context("spawn")  # a fork would inherit locks of threads that it does not have
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        with _environment({**dict.fromkeys(_SINGLE, "1"), _INSIDE: "1"}):  # libraries read it while they are imported
            self._process.start()
        theirs.close()
        self.number = 0  # of the item in work
        self.label = ""

    def begin(self, number: int, label: str, item: object) -> None:
        """Hand it an item."""
        self.number, self.label = number, label
        self.connection.send(item)

    def stop(self) -> None:
        """End it, whatever it does."""
        self.connection.close()
        self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


class _Pool(Generic[Item, Result]):
    """Workers, what they have in hand, and what is done and waits for its turn."""

    def __init__(
        self, function: Work[Item, Result], workers: int, name: Callable[[Item], str], overall: _OverallProgress
    ) -> None:
        self._function = function
        self._most = workers
        self._name = name
        self._overall = overall
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}
        self._ready: dict[int, Result] = {}
        self._yielded = 0

    def results(self, items: Iterable[Item]) -> Iterator[Result]:
        """Hand out → give back in order → wait, until there is nothing left."""
        waiting = enumerate(items)
        self._overall.begin(f"{self._most} at a time")
        try:
            self._hand_out(waiting)
            while True:
                while self._yielded in self._ready:
                    self._yielded += 1
                    yield self._ready.pop(self._yielded - 1)
                    self._hand_out(waiting)
                if not self._busy:
                    return
                for connection in wait(list(self._busy)):
                    self._receive(self._busy[connection])  # type: ignore[index]
                self._hand_out(waiting)
        finally:
            for worker in (*self._idle, *self._busy.values()):
                worker.stop()

    def _hand_out(self, waiting: Iterator[tuple[int, Item]]) -> None:
        while len(self._busy) < self._most and len(self._busy) + len(self._ready) < _AHEAD * self._most:
            upcoming = next(waiting, None)
            if upcoming is None:
                return
            number, item = upcoming
            worker = self._idle.pop() if self._idle else _Worker(self._function)
            self._busy[worker.connection] = worker
            worker.begin(number, self._name(item), item)

    def _receive(self, worker: _Worker) -> None:
        try:
            kind, content = worker.connection.recv()
        except (EOFError, OSError):
            raise EngineError(
                f"The process that worked on {worker.label!r} died, most likely for want of memory.",
                hint="Use fewer workers, or ask for less at a time.",
            ) from None
        if kind == _PROGRESS:
            self._overall.step(worker.number, content[0], f"{worker.label}: {content[1]}")
            return
        if kind == _FAILED:
            raise _named(content, worker.label, self._overall)
        self._ready[worker.number] = content
        self._idle.append(self._busy.pop(worker.connection))
        self._overall.end(worker.number, worker.label)


def _serve(connection: Connection, function: Work[Any, Any]) -> None:
    """The life of a worker: until there is nobody left to hand it an item."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            connection.send((_DONE, function(item, lambda share, text: connection.send((_PROGRESS, (share, text))))))
        except Exception as error:
            connection.send((_FAILED, _able_to_travel(error)))


def _able_to_travel(error: Exception) -> Exception:
    """The error itself, or what it said where it cannot be sent to another process."""
    where = "".join(traceback.format_exception(error))
    error.__cause__ = error.__context__ = None
    try:
        same: Exception = ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        same = EngineError(f"{type(error).__name__}: {error}")
    same.add_note(where)
    return same


def _named(error: Exception, label: str, overall: _OverallProgress) -> Exception:
    """The same error, which tells at which item it happened."""
    if overall.is_single:
        return error
    if isinstance(error, StormpetrelError):
        error.what = f"{label}: {error.what}"
        error.args = (f"{error.what} {error.hint}".strip(),)
    else:
        error.add_note(f"It happened at: {label}")
    return error


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
