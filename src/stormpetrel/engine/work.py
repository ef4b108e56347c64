"""What every place of work shares: the shape of a piece of work, its progress, its errors, what it costs.

function, items -> run_here -> results, in this process.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from stormpetrel.errors import StormpetrelError

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[float, str], None]  # share done, in words
Work = Callable[[Item, Progress], Result]  # has to be importable, or made of what is, where there are several workers
Finished = Callable[[Item, Result], None]  # called in this process with each result, as soon as it is there

SINGLE: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
INSIDE: Final = "STORMPETREL_ENGINE_WORKER"  # in the environment of a worker
_COSTLY_S: Final = 0.05  # CPU time of an item that is worth being told
_elsewhere_s: list[float] = [0.0]  # CPU time of items that were worked on by processes that are no children of this one


def no_progress(_share: float, _text: str) -> None:
    """Tell nobody."""


def cores() -> int:
    """How many cores this process may use: one inside a worker, whose neighbours have the others."""
    return 1 if os.environ.get(INSIDE) else max(1, len(os.sched_getaffinity(0)))


def own_cpu_seconds() -> float:
    """CPU time so far of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cpu_seconds() -> float:
    """CPU time so far of this process, of workers on this machine that have ended, and of items done on other machines."""
    return own_cpu_seconds() + _elsewhere_s[0]


def add_cpu_elsewhere(seconds: float) -> None:
    """Count the CPU time of an item that was worked on by no child of this process."""
    _elsewhere_s[0] += seconds


class OverallProgress:
    """The progress of all items as one share, and what they cost."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self.total = total  # 0 where nobody knows
        self._shares: dict[int, float] = {}  # of the items in work
        self._done = 0
        self._cpu_s = 0.0

    @property
    def is_single(self) -> bool:
        """Whether there is one item only, which needs no name."""
        return self.total == 1

    def begin(self, text: str) -> None:
        """Work goes on with this."""
        self._progress(self._share(), text)

    def step(self, number: int, share: float, text: str) -> None:
        """An item is so far."""
        self._shares[number] = min(1.0, max(0.0, share))
        self._progress(self._share(), text)

    def end(self, number: int, text: str, cpu_s: float = 0.0) -> None:
        """An item is done, and took so much CPU time; it is told together with that of all so far."""
        self._shares.pop(number, None)
        self._done += 1
        self._cpu_s += cpu_s
        cost = f" · {cpu_s:.1f} s of CPU, {self._cpu_s:.1f} s in all" if cpu_s >= _COSTLY_S else ""
        self._progress(self._share(), text + cost)

    def again(self, number: int, text: str) -> None:
        """The worker of an item died: it begins anew."""
        self._shares.pop(number, None)
        self._progress(self._share(), text)

    def _share(self) -> float:
        return min(1.0, (self._done + sum(self._shares.values())) / self.total) if self.total else 0.0


def run_here(
    function: Work[Item, Result],
    items: Iterable[Item],
    name: Callable[[Item], str],
    overall: OverallProgress,
    finished: Finished[Item, Result],
) -> Iterator[Result]:
    """One item after the other, in this process."""
    for number, item in enumerate(items):
        label = name(item)
        overall.begin(label)

        def step(share: float, text: str, number: int = number, label: str = label) -> None:
            overall.step(number, share, f"{label}: {text}")

        began_s = time.process_time()
        try:
            result = function(item, step)
        except Exception as error:
            raise named(error, label, overall) from error.__cause__
        finished(item, result)
        overall.end(number, label, time.process_time() - began_s)
        yield result


def error_to_send(error: Exception) -> Exception:
    """The error with the place where it happened as a note, and without others hanging on it."""
    where = "".join(traceback.format_exception(error))
    error.__cause__ = error.__context__ = None
    error.add_note(where)
    return error


def named(error: Exception, label: str, overall: OverallProgress) -> Exception:
    """The same error, which tells at which item it happened."""
    if overall.is_single:
        return error
    if isinstance(error, StormpetrelError):
        error.what = f"{label}: {error.what}"
        error.args = (f"{error.what} {error.hint}".strip(),)
    else:
        error.add_note(f"It happened at: {label}")
    return error
