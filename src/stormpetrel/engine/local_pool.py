"""Workers on this machine: processes of one thread each, started anew, with a pipe to each.

LocalWorkers(function, most) -> a crew of OrderedPool. The pipes of multiprocessing speak pickle, between this process and its own
children only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from stormpetrel.engine.ordered_pool import Kind, Message
from stormpetrel.engine.work import INSIDE, SINGLE, Work, error_to_send, own_cpu_seconds
from stormpetrel.errors import EngineError


class LocalWorkers:
    """Up to `most` processes, which begin when they are needed first; an item whose process dies is not tried again."""

    tries = 1

    def __init__(self, function: Work[Any, Any], most: int) -> None:
        self._function = function
        self._most = most
        self._workers: dict[int, _Worker] = {}

    def size(self) -> int:
        """How many workers there can be."""
        return self._most

    def begin(self, worker: int, item: object) -> None:
        """Hand an item to this worker."""
        if worker not in self._workers:
            self._workers[worker] = _Worker(self._function)
        self._workers[worker].connection.send(item)

    def messages(self, workers: Sequence[int]) -> Iterator[tuple[int, Message]]:
        """Wait until one of them has something to say."""
        numbers = {self._workers[number].connection: number for number in workers}
        for connection in wait(list(numbers)):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = Message(Kind.DIED, "")
            yield numbers[connection], message

    def stop(self, busy: Sequence[int]) -> None:
        """End all of them; the idle ones have nothing to lose either."""
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()


class _Worker:
    """A process that does one item after the other."""

    def __init__(self, function: Work[Any, Any]) -> None:
        context = get_context("spawn")  # a fork would inherit locks of threads that it does not have
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        with _environment({**dict.fromkeys(SINGLE, "1"), INSIDE: "1"}):  # libraries read it while they are imported
            self._process.start()
        theirs.close()

    def stop(self) -> None:
        """End it, whatever it does."""
        self.connection.close()
        self._process.terminate()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _serve(connection: Connection, function: Work[Any, Any]) -> None:
    """The life of a worker: until there is nobody left to hand it an item."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        began_s = own_cpu_seconds()
        try:
            result = function(item, lambda share, text: connection.send(Message(Kind.PROGRESS, (share, text))))
            connection.send(Message(Kind.DONE, (result, own_cpu_seconds() - began_s)))
        except Exception as error:
            connection.send(Message(Kind.FAILED, _able_to_travel(error)))


def _able_to_travel(error: Exception) -> Exception:
    """The error itself, or what it said where it cannot be sent to another process."""
    notes = error_to_send(error).__notes__
    try:
        same: Exception = ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        same = EngineError(f"{type(error).__name__}: {error}")
    same.__notes__ = notes
    return same


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
