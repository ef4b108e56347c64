"""Work off the request: made once, shown at once, made anew when the site has changed."""

import threading
from datetime import UTC, datetime

import pytest

from stormpetrel.answers.background import Background, Snapshot, scope_of
from stormpetrel.answers.live_site import SiteMemory
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import ModelError, StoreBusyError

NOW = datetime(2024, 3, 4, tzinfo=UTC)


class Site:
    """As much of a LiveSite as the background needs."""

    def __init__(self):
        self.version = 1
        self.memory = SiteMemory()

    def now(self):
        return NOW


class Work:
    """Counts its makings, and waits at a gate."""

    def __init__(self, error=None):
        self.gate, self.made, self.error = threading.Event(), [], error

    def __call__(self, live, key, before):
        assert self.gate.wait(10)
        self.made.append((live.version, key, before))
        if self.error is not None:
            raise self.error
        return f"{key}{len(self.made)}"


def test_a_look_never_waits_and_the_first_result_is_waited_for():
    site, work = Site(), Work()
    kept = Background(work, rest_s=0)
    assert kept.peek(site) is None
    work.gate.set()
    assert kept.wait(site) == Snapshot("1", 1, NOW)
    assert kept.peek(site).value == kept.latest(site).value == "1"


def test_nothing_is_made_again_until_the_site_has_changed():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=0)
    assert [kept.wait(site).value, kept.wait(site).value] == ["1", "1"]
    site.version = 2
    assert kept.wait(site).value == "2"
    assert work.made == [(1, "", None), (2, "", "1")]  # the last result is there to build on


def test_the_old_result_is_shown_while_the_new_one_is_made():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=0)
    kept.wait(site)
    work.gate.clear()
    site.version = 2
    assert (kept.peek(site).value, kept.latest(site).value) == ("1", "1")
    work.gate.set()
    assert kept.wait(site).value == "2"


def test_between_two_makings_there_is_a_rest():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=1000)
    kept.wait(site)
    site.version = 2
    assert kept.wait(site).value == "1"


def test_what_is_not_in_the_tables_is_looked_at_again_after_each_rest():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=0, always=True)
    assert [kept.wait(site).value, kept.wait(site).value] == ["1", "2"]


def test_what_goes_wrong_is_told_to_whoever_looks_and_tried_again():
    site, work = Site(), Work(ModelError("No model."))
    work.gate.set()
    kept = Background(work, rest_s=0)
    with pytest.raises(ModelError, match="No model"):
        kept.wait(site)
    work.error = None
    assert kept.wait(site).value == "2"
    work.error, site.version = ModelError("Gone."), 2
    assert kept.wait(site).value == "2"  # the last good one


def test_waiting_has_a_limit():
    site, work = Site(), Work()
    kept = Background(work, rest_s=0)
    with pytest.raises(StoreBusyError, match="still being computed"):
        kept.wait(site, limit_s=0.01)
    work.gate.set()
    assert kept.wait(site).value == "1"


def test_each_key_has_its_own_result_and_the_least_used_one_goes():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=0, most=2)
    values = [kept.wait(site, key).value for key in ("a", "b", "a", "c", "b")]
    assert values == ["a1", "b2", "a1", "c3", "b4"]


def test_an_answer_is_worked_out_once_however_many_ask():
    made, started, go = Snapshot("x", 1, NOW), threading.Barrier(5), threading.Event()
    calls, answers = [], []

    def make():
        calls.append(1)
        assert go.wait(10)
        return object()

    def ask():
        started.wait(10)
        answers.append(made.answer("key", make))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    assert len(set(map(id, answers))) == 1 and len(answers) == 4


def test_an_answer_that_failed_is_tried_again():
    made = Snapshot("x", 1, NOW)
    with pytest.raises(ZeroDivisionError):
        made.answer("key", lambda: 1 // 0)
    assert made.answer("key", lambda: 7) == 7


def test_no_user_shares_a_scope_with_another_or_with_the_administrators():
    viewers = [Viewer(name, is_admin=False) for name in ("", "everybody", "user everybody", "ada", "user")]
    assert len({scope_of(viewer) for viewer in (LOCAL, *viewers)}) == 6
    assert scope_of(Viewer("ada", is_admin=True)) == scope_of(LOCAL)


def test_a_site_that_has_forgotten_somebody_shows_nothing_that_was_made_before():
    site, work = Site(), Work()
    work.gate.set()
    kept = Background(work, rest_s=1000)
    assert kept.wait(site).value == "1"
    site.memory = SiteMemory()
    work.gate.clear()
    assert kept.peek(site) is None
    work.gate.set()
    assert kept.wait(site).value == "2"
    assert work.made[-1] == (1, "", None)  # nothing of the old result goes into the new one
