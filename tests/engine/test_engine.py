"""The engine: the same results in order, here or in processes; the first error ends everything."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stormpetrel.engine import Engine, Progress, cores
from stormpetrel.errors import EngineError, MissingExtraError, ModelError, UsageError
from tests.parts import wait_until

BOTH = pytest.mark.parametrize("workers", [1, 2])


def squared(item: int, progress: Progress) -> int:
    progress(0.5, "squaring")
    return item * item


def slow_first(item: int, _progress: Progress) -> int:
    time.sleep(0.3 if item == 0 else 0.0)
    return item


def failing(item: int, _progress: Progress) -> int:
    if item == 2:
        raise ModelError("It is too small.", hint="Take more.")
    return item


def crashing(item: int, _progress: Progress) -> int:
    raise ValueError(f"no {item}")


def lacking(_item: int, _progress: Progress) -> int:
    raise MissingExtraError("Training", "traces")


class _UnsendableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("two numbers")


def unsendable(_item: int, _progress: Progress) -> int:
    raise _UnsendableError(1, 2)


def no_result(item: int, _progress: Progress) -> object:
    return (lambda: item) if item else 0


def dying(item: int, _progress: Progress) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def endless(item: Path, _progress: Progress) -> str:
    if item.name == "bad":
        raise ModelError("bad")
    item.write_text(str(os.getpid()))
    time.sleep(60)
    return ""


def process_and_threads(_item: int, _progress: Progress) -> tuple[int, int, str | None]:
    return os.getpid(), cores(), os.environ.get("OMP_NUM_THREADS")


def nested(item: int, _progress: Progress) -> list[tuple[int, int, str | None]]:
    return list(Engine(3).map(process_and_threads, range(item)))


@BOTH
def test_results_come_in_the_order_of_the_items(workers):
    assert list(Engine(workers).map(slow_first, range(12))) == list(range(12))


@BOTH
def test_progress_grows_from_nothing_to_everything_and_names_the_item(workers):
    told: list[tuple[float, str]] = []
    items = [3, 4]
    assert list(Engine(workers).map(squared, items, name=lambda n: f"n {n}", progress=lambda *step: told.append(step))) == [9, 16]
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0
    assert {"n 3: squaring", "n 4: squaring"} <= {words for _, words in told}


@BOTH
def test_nothing_to_do_gives_nothing(workers):
    assert list(Engine(workers).map(squared, [])) == []


@BOTH
def test_an_error_tells_the_item_that_it_happened_at(workers):
    with pytest.raises(ModelError) as caught:
        list(Engine(workers).map(failing, range(5), name=lambda item: f"seed {item}"))
    assert str(caught.value) == "seed 2: It is too small. Take more." and caught.value.hint == "Take more."


@BOTH
def test_an_error_of_the_only_item_is_told_as_it_is(workers):
    with pytest.raises(ModelError, match=r"^It is too small"):
        list(Engine(workers).map(failing, [2]))


@BOTH
def test_an_unforeseen_error_keeps_its_class_and_notes_the_item(workers):
    with pytest.raises(ValueError, match="no 7") as caught:
        list(Engine(workers).map(crashing, [7, 7], name=lambda item: f"log {item}"))
    assert any("log 7" in note for note in caught.value.__notes__)


@BOTH
def test_a_missing_extra_is_told_as_such(workers):
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[traces\]") as caught:
        list(Engine(workers).map(lacking, range(2)))
    assert caught.value.extra == "traces"


def test_an_error_that_cannot_be_sent_is_told_in_words():
    with pytest.raises(EngineError, match="_UnsendableError: two numbers"):
        list(Engine(2).map(unsendable, range(2)))


def test_a_result_that_cannot_be_sent_is_an_error():
    with pytest.raises((EngineError, AttributeError, TypeError)):
        list(Engine(2).map(no_result, range(2)))


def test_a_worker_that_dies_is_told_with_what_it_worked_on():
    with pytest.raises(EngineError, match="'seed 1' died"):
        list(Engine(2).map(dying, range(3), name=lambda item: f"seed {item}"))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_first_error_stops_what_runs_beside_it(tmp_path):
    running = tmp_path / "running"
    with pytest.raises(ModelError, match="bad"):
        list(Engine(2).map(endless, [running, tmp_path / "bad"]))
    assert not running.exists() or _is_gone(int(running.read_text()))


def test_a_caller_who_takes_no_more_stops_the_workers(tmp_path):
    first, endless_one = tmp_path / "first", tmp_path / "second"
    results = Engine(2).map(_first_or_endless, [first, endless_one])
    assert next(results) == "first"
    wait_until(lambda: endless_one.exists() and bool(endless_one.read_text()), "the second one runs", limit_s=30)
    results.close()
    assert _is_gone(int(endless_one.read_text()))


def _first_or_endless(item: Path, progress: Progress) -> str:
    return "first" if item.name == "first" else endless(item, progress)


def test_no_more_is_handed_out_than_a_few_items_ahead_of_the_caller():
    handed = []

    def items() -> Iterator[int]:
        for number in range(1000):
            handed.append(number)
            yield number

    results = Engine(2).map(squared, items())
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    results.close()
    assert len(handed) <= 3 + 2 * 4 + 2


def test_one_worker_is_this_process_with_all_its_cores():
    assert {pid for pid, _, _ in Engine(1).map(process_and_threads, range(2))} == {os.getpid()}


def test_workers_have_one_thread_each_and_no_workers_of_their_own():
    for found in Engine(2).map(nested, [2, 2]):
        assert {(one, threads) for _, one, threads in found} == {(1, "1")} and len({pid for pid, _, _ in found}) == 1
    assert os.environ.get("STORMPETREL_ENGINE_WORKER") is None


def test_no_workers_named_is_one_for_each_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1})
    assert len({pid for pid, _, _ in Engine(0).map(process_and_threads, range(6))}) <= 2
    assert cores() == 2


def test_fewer_than_no_workers_are_refused():
    with pytest.raises(UsageError, match="cannot work"):
        Engine(-1)
