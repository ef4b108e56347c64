"""Where heavy work runs: in this process, in several processes of this machine, or on a Ray cluster.

Engine(workers, place).map(function, items) -> results, in the order of the items. An item carries its seed, so that its result
does not depend on where, or next to what, it was worked out. Nothing else in Stormpetrel starts processes to compute in.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Final

from stormpetrel.engine.kept_results import KeptResults
from stormpetrel.engine.ordered_pool import OrderedPool
from stormpetrel.engine.places import AUTO, LOCAL, RAY, RAY_CLIENT, chosen_place
from stormpetrel.engine.work import (
    INSIDE,
    Finished,
    Item,
    OverallProgress,
    Progress,
    Result,
    Work,
    cores,
    cpu_seconds,
    no_progress,
    run_here,
)
from stormpetrel.errors import EngineError, UsageError

__all__ = [
    "AUTO",
    "LOCAL",
    "ONE_PROCESS",
    "RAY",
    "RAY_CLIENT",
    "Engine",
    "KeptResults",
    "Progress",
    "Work",
    "cores",
    "cpu_seconds",
    "engine_at",
    "no_progress",
]


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs a function over many items: seeds, models, logs.

    Parameters
    ----------
    workers
        How many items are worked on at a time. With 1 it happens in this process, with all its cores; with more, in as many
        processes of one thread each. 0 is one worker for each core, and on Ray one for each CPU of the cluster.
    place
        `local`; `ray`: the cluster that RAY_ADDRESS names or that runs on this machine; `ray://host:port`: a cluster that this
        machine is no part of; `auto`: `ray` where there is one, else `local`.
    shared
        A folder that the function reads or writes by its path: a worker that does not see it is refused.
    """

    workers: int = 1
    place: str = LOCAL
    shared: Path | None = None

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise UsageError(f"{self.workers} workers cannot work.", hint="Ask for 1 or more, or for 0: one for each core.")
        chosen_place(self.place)

    @property
    def is_local(self) -> bool:
        """Whether all work is done on this machine, by this process or its children."""
        return chosen_place(self.place) == LOCAL or bool(os.environ.get(INSIDE))

    def map(
        self,
        function: Work[Item, Result],
        items: Iterable[Item],
        *,
        name: Callable[[Item], str] = str,
        progress: Progress = no_progress,
        kept: KeptResults[Result] | None = None,
    ) -> Iterator[Result]:
        """The result of each item in the order of the items, each as soon as those before it are there.

        `function(item, progress)` may tell its own progress, from 0 to 1. The first error ends everything: what waits is not
        begun, what runs is stopped, and the error bears the item's name. So does a caller who takes no more results. With `kept`
        each result is kept on disk as soon as it is there, and items whose results lie there already are not worked on again.
        """
        overall = OverallProgress(progress, length_hint(items))
        if kept is None:
            return self._results(function, items, name, overall, lambda _item, _result: None)
        return self._only_what_is_missing(function, items, name, overall, kept)

    def _results(
        self,
        function: Work[Item, Result],
        items: Iterable[Item],
        name: Callable[[Item], str],
        overall: OverallProgress,
        finished: Finished[Item, Result],
    ) -> Iterator[Result]:
        at_most = overall.total or 1_000_000
        if os.environ.get(INSIDE):  # a worker has one core, and no workers of its own
            return run_here(function, items, name, overall, finished)
        if not self.is_local:
            from stormpetrel.engine.on_ray import RayWorkers

            crew = RayWorkers(function, chosen_place(self.place), self.workers, self.shared)
            return OrderedPool(crew, name, overall, finished).results(items)
        at_once = min(self.workers or cores(), at_most)
        if at_once <= 1:
            return run_here(function, items, name, overall, finished)
        from stormpetrel.engine.local_pool import LocalWorkers

        return OrderedPool(LocalWorkers(function, at_once), name, overall, finished).results(items)

    def _only_what_is_missing(
        self,
        function: Work[Item, Result],
        items: Iterable[Item],
        name: Callable[[Item], str],
        overall: OverallProgress,
        kept: KeptResults[Result],
    ) -> Iterator[Result]:
        order: deque[tuple[str, bool]] = deque()  # name of the item, and whether its result lies on disk; not yielded yet
        names: set[str] = set()

        def missing() -> Iterator[Item]:
            for item in items:
                label = name(item)
                if label in names:
                    raise EngineError(f"Two items are called {label!r}: their results could not be told apart.")
                names.add(label)
                is_kept = kept.has(label)
                order.append((label, is_kept))
                if is_kept:
                    overall.end(-1, f"{label}: was done before")
                else:
                    yield item

        def keep(item: Item, result: Result) -> None:
            kept.write(name(item), result)

        def from_disk() -> Iterator[Result]:
            while order and order[0][1]:
                yield kept.read(order.popleft()[0])

        fresh = self._results(function, missing(), name, overall, keep)
        try:
            for result in fresh:
                yield from from_disk()
                order.popleft()
                yield result
            yield from from_disk()
        finally:
            close = getattr(fresh, "close", None)
            if close is not None:
                close()


ONE_PROCESS: Final = Engine()


def engine_at(place: str, workers: int | None, *, default: int = 1, shared: Path | None = None) -> Engine:
    """An engine for a command: where nobody says how many workers, `default` of them here, and all CPUs of a Ray cluster."""
    engine = Engine(default if workers is None else workers, place, shared)
    return engine if engine.is_local or workers is not None else Engine(0, place, shared)
