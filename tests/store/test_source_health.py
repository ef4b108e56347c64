"""What the watch's own reads leave behind: a look that hangs is seen while it hangs, and nobody is blamed for another."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import SourceUnavailableError, StoreBusyError
from stormpetrel.store.source_health import EVENTS, JOBS, SourceBook, SourceHealth, format_span, leading, troubles

AWAY = SourceUnavailableError("The server did not answer.", hint="Try again.")


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = datetime(2026, 3, 2, 12, tzinfo=UTC)

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(clock):
    return SourceBook(patience_s=15.0, clock=clock)


def look(book, name, *, records=0, error=None, watcher=JOBS, every_s=5.0):
    with suppress(type(error) if error else ()), book.poll(name, watcher=watcher, every_s=every_s) as seen:
        if error:
            raise error
        seen(records)


def of(book, name):
    return next(source for source in book.sources() if source.name == name)


def kinds(book):
    return {trouble.source: trouble.kind for trouble in book.troubles()}


def test_a_look_that_hangs_is_told_while_it_hangs(book, clock):
    look(book, "sacct", records=7)
    clock.move(5)
    with book.poll("sacct", watcher=JOBS, every_s=5.0):
        clock.move(14)
        assert not book.troubles()
        clock.move(2)
        assert kinds(book) == {"sacct": "slow"}
        assert book.troubles()[0].what == "A poll of sacct has been under way for 16 s. Last read well 21 s ago."
    assert not book.troubles()


def test_a_long_look_that_gets_on_does_not_hang(book, clock):
    with book.poll("sacct", watcher=JOBS, every_s=5.0) as seen:
        for _window in range(30):
            clock.move(10)
            seen(1000)
            assert not book.troubles()
    assert of(book, "sacct").records == 30_000


def test_a_failed_look_is_told_until_one_goes_well(book, clock):
    look(book, "sacct", records=7)
    clock.move(5)
    look(book, "sacct", error=AWAY)
    assert kinds(book) == {"sacct": "failed"} and book.troubles()[0].what == str(AWAY)
    clock.move(600)
    assert (of(book, "sacct").lag_s(clock()), of(book, "sacct").records) == (605.0, 7)
    look(book, "sacct", records=3)
    assert not book.troubles() and of(book, "sacct").problem_since is None


def test_a_quiet_source_is_well(book, clock):
    for _ in range(1000):
        look(book, "sacct", records=0)
        clock.move(5)
    assert not book.troubles() and of(book, "sacct").lag_s(clock()) == 5.0


def test_a_source_that_nobody_looks_at_any_more_is_overdue(book, clock):
    look(book, "sacct")
    clock.move(34)
    assert not book.troubles()
    clock.move(2)
    assert kinds(book) == {"sacct": "overdue"}


def test_a_source_that_could_not_be_reached_because_of_another_is_not_blamed(book, clock):
    look(book, "sacct")
    look(book, "squeue")
    look(book, "elasticsearch", watcher=EVENTS, every_s=3600.0)
    clock.move(100)
    look(book, "sacct", error=AWAY)
    assert kinds(book) == {"sacct": "failed"}


def test_a_store_that_is_busy_says_nothing_about_the_source(book):
    look(book, "sacct", error=StoreBusyError("Another process has been writing."))
    assert not book.troubles() and of(book, "sacct").last_good is None


def test_what_leads_are_the_sources_of_jobs_and_without_them_all(book):
    look(book, "elasticsearch", watcher=EVENTS)
    assert [source.name for source in leading(book.sources())] == ["elasticsearch"]
    look(book, "sacct")
    assert [source.name for source in leading(book.sources())] == ["sacct"]


def test_the_next_watch_knows_when_a_source_was_last_read_well_and_is_not_late_at_once(book, clock):
    look(book, "sacct", records=7)
    clock.move(7200)
    later = SourceBook(clock=clock)
    later.recall(book.sources())
    look(later, "sacct", error=AWAY)
    assert of(later, "sacct").lag_s(clock()) == 7200.0 and kinds(later) == {"sacct": "failed"}


def test_a_record_survives_json_and_what_a_later_version_adds_is_left_out(book, clock):
    look(book, "sacct", records=7)
    look(book, "sacct", error=AWAY)
    told = {**of(book, "sacct").as_dict(), "added_later": 1}
    assert SourceHealth.from_dict(told) == of(book, "sacct")
    assert troubles([SourceHealth.from_dict(told)], clock())[0].what == str(AWAY)


@pytest.mark.parametrize(("seconds", "words"), [(-3, "0 s"), (59, "59 s"), (600, "10 min"), (7200, "2 h"), (3 * 86400, "3 days")])
def test_ages_are_one_number(seconds, words):
    assert format_span(seconds) == words
