"""The pool over any crew: a worker that dies is asked again, so often and no more."""

from __future__ import annotations

import pytest

from stormpetrel.engine.ordered_pool import AHEAD, Kind, Message, OrderedPool
from stormpetrel.engine.work import OverallProgress, no_progress
from stormpetrel.errors import EngineError


class ScriptedCrew:
    """Workers that die as often as it is written for an item; the last hired answers first."""

    tries = 3

    def __init__(self, size: int, deaths: dict[int, int]) -> None:
        self._size, self._deaths = size, deaths
        self.items: dict[int, int] = {}
        self.begun: list[int] = []

    def size(self):
        return self._size

    def begin(self, worker, item):
        self.items[worker] = item
        self.begun.append(item)

    def messages(self, workers):
        worker = max(workers)
        item = self.items[worker]
        if self._deaths.get(item, 0) > 0:
            self._deaths[item] -= 1
            yield worker, Message(Kind.DIED, "")
        else:
            yield worker, Message(Kind.DONE, (item * item, 0.1))

    def stop(self, busy):
        self.stopped = list(busy)


def results_of(crew, count):
    pool = OrderedPool(crew, lambda item: f"seed {item}", OverallProgress(no_progress, count), lambda _item, _result: None)
    return pool.results(range(count))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_item_whose_worker_died_twice_has_its_place_in_the_order(size):
    crew = ScriptedCrew(size, {2: 2, 7: 1})
    assert list(results_of(crew, 9)) == [n * n for n in range(9)]
    assert crew.begun.count(2) == 3 and crew.begun.count(7) == 2 and crew.stopped == []


def test_an_item_whose_workers_die_three_times_is_an_error_that_names_it():
    with pytest.raises(EngineError, match="'seed 3' died 3 times"):
        list(results_of(ScriptedCrew(2, {3: 99}), 9))


def test_a_worker_that_answers_last_does_not_let_results_pile_up():
    crew = ScriptedCrew(4, {})
    results = results_of(crew, 1000)
    next(results)  # the first item is answered last, when no more than this are handed out
    assert len(crew.begun) <= AHEAD * 4 + 1
    results.close()
