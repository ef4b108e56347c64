"""Each watcher has a thread of its own: one that hangs, fails or has a bug holds up nobody."""

import io
import json
import threading

import pytest

from stormpetrel.errors import SourceUnavailableError, StoreError
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.logs import Log
from stormpetrel.watch.watcher import LoopFirst, SteppingWatcher, WatcherThreads
from tests.builders import make_site
from tests.parts.alarm_findings import finding

LIMIT_S = 60.0


class MadeWatcher:
    every_s = 0.01
    state = ""

    def __init__(self, name, *outcomes):
        self.name, self._outcomes = name, list(outcomes)
        self.steps = 0

    def step(self, now):
        self.steps += 1
        outcome = self._outcomes.pop(0) if self._outcomes else []
        if isinstance(outcome, Exception):
            raise outcome
        return outcome(now) if callable(outcome) else outcome


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def stepping(site, stream):
    keeper, log = IncidentKeeper(site), Log(stream, as_json=True)
    return lambda *made: WatcherThreads([SteppingWatcher(one, site, keeper, log) for one in made], log)


def told(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_what_each_watcher_finds_becomes_an_incident_and_is_logged_without_names_of_people(site, stepping, stream):
    threads = stepping(MadeWatcher("jobs", lambda now: [finding(when=now, known=now)]))
    threads.start(steps=1)
    threads.join()
    (incident,) = site.incidents.list()
    (line,) = (line for line in told(stream) if line["event"].startswith("incident"))
    assert line["incident"] == incident.id and line["subjects"] == ["n017"] and "ann" not in stream.getvalue()


def test_how_far_each_watcher_is_is_kept_although_none_of_them_finds_anything(site, stepping):
    jobs, system = MadeWatcher("jobs"), MadeWatcher("system")
    jobs.state, system.state = "1", "2"
    stepping(jobs, system).step_once()
    assert [IncidentKeeper(site).state_of(name) for name in ("jobs", "system")] == ["1", "2"]


def test_one_that_hangs_or_has_a_bug_holds_up_nobody(site, stepping, stream):
    free = threading.Event()
    hanging, broken, working = (
        MadeWatcher("a", lambda _now: free.wait(60) and []),
        MadeWatcher("b", ValueError("bug")),
        MadeWatcher("c"),
    )
    threads = stepping(hanging, broken, working)
    threads.start()
    while working.steps < 5:
        threading.Event().wait(0.01)
    free.set()
    threads.end()
    assert hanging.steps and [line["what"] for line in told(stream) if line["event"] == "watcher failed"] == ["ValueError: bug"]


def test_a_problem_is_told_once_and_once_that_it_is_over(site, stepping, stream):
    full = StoreError("The disk is full.")
    threads = stepping(MadeWatcher("events", full, full, []))
    threads.start(steps=3)
    threads.join()
    assert [line["event"] for line in told(stream)] == ["watcher problem", "watcher problem over"]


def test_a_source_that_is_away_is_asked_more_and_more_rarely_and_is_not_told_twice(site, stream):
    away = SourceUnavailableError("Nobody answers.")
    watcher = SteppingWatcher(MadeWatcher("traces", away, away, []), site, IncidentKeeper(site), Log(stream, as_json=True))
    pauses = [watcher.step() for _ in range(3)]
    assert pauses[0] < pauses[1] and pauses[2] == 0.01 and not stream.getvalue()
    assert watcher.health.problem == "" and watcher.health.stepped is not None


def gives_way(first):
    """A thread that gives way once; it ends when it has."""
    thread = threading.Thread(target=first.give_way, daemon=True)
    thread.start()
    return thread


def test_long_work_beside_the_loop_goes_on_when_the_turn_is_over():
    first = LoopFirst(longest_s=LIMIT_S)
    with first.turn():
        beside = gives_way(first)
        beside.join(0.05)
        assert beside.is_alive()
    beside.join(LIMIT_S)
    assert not beside.is_alive()


def test_a_turn_that_hangs_holds_up_what_is_beside_it_for_a_while_only():
    first = LoopFirst(longest_s=0.05)
    with first.turn():
        beside = gives_way(first)
        beside.join(LIMIT_S)
        assert not beside.is_alive()


def test_between_turns_nobody_waits():
    first = LoopFirst(longest_s=LIMIT_S)
    with pytest.raises(ValueError), first.turn():
        raise ValueError
    first.give_way()
