"""What strangers can make the log say."""

import io
import logging
import re

import pytest

from stormpetrel.faces.web.logs import MergedLog
from stormpetrel.watch.logs import Log

HOSTILE = "x\n2026-01-01T00:00:00Z INFO forged\r\x1b[2J\x1b]0;owned\x07\u202e"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def written():
    """A logger that writes into a stream, the stream, and its clock."""
    stream, clock = io.StringIO(), Clock()
    log, handler = logging.Logger("test"), MergedLog(stream, clock=clock)
    log.addHandler(handler)
    return log, stream, clock


def fail(log, words):
    try:
        raise RuntimeError(words)
    except RuntimeError:
        log.exception("unexpected, while answering %s", words)


def test_an_error_that_repeats_is_one_traceback_and_then_a_count_a_minute(written):
    log, stream, clock = written
    for number in range(1000):
        fail(log, f"text {number}")
    assert stream.getvalue().count("Traceback") == 1 and "text 0" in stream.getvalue()
    clock.now = 61.0
    log.info("something else")
    assert "999 more times in 61 s: unexpected, while answering text 0" in stream.getvalue()
    fail(log, "again")
    assert stream.getvalue().count("Traceback") == 1
    for minute in (130.0, 260.0):
        clock.now = minute
        log.info("quiet")
    fail(log, "once more")
    assert stream.getvalue().count("Traceback") == 2


def test_two_errors_of_different_places_are_both_told(written):
    log, stream, _ = written
    fail(log, "one")
    try:
        int("x")
    except ValueError:
        log.exception("unexpected")
    assert stream.getvalue().count("Traceback") == 2


def test_nothing_that_is_logged_can_forge_a_line_or_reach_the_terminal(written):
    log, stream, _ = written
    log.warning("said: %s", HOSTILE)
    fail(log, HOSTILE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", stream.getvalue())
    lines = stream.getvalue().splitlines()
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert sum(not line.startswith("  | ") for line in lines) == 2
    assert "\\x1b[2J" in stream.getvalue()


def test_what_is_logged_is_bounded(written):
    log, stream, _ = written
    fail(log, "x" * 2_000_000 + "\n" * 10_000)
    assert len(stream.getvalue()) < 20_000


def test_many_wordings_of_one_warning_are_counted_together(written):
    log, stream, clock = written
    for number in range(500):
        log.warning("no such thing: %s", number)
    assert stream.getvalue().count("no such thing") <= 21
    clock.now = 61.0
    log.info("later")
    assert "more times" in stream.getvalue()


def test_every_request_stands_in_the_log(written):
    log, stream, _ = written
    for _ in range(50):
        log.info("GET / 200")
    assert stream.getvalue().count("GET / 200") == 50


def test_what_was_counted_is_told_at_the_end(written):
    log, stream, _ = written
    for _ in range(3):
        log.warning("broken")
    log.handlers[0].close()
    assert "2 more times" in stream.getvalue()


def test_the_watch_writes_hostile_words_to_a_terminal_as_text():
    stream = io.StringIO()
    Log(stream, as_json=False).warning("problem", what=HOSTILE)
    assert stream.getvalue().count("\n") == 1 and "\x1b" not in stream.getvalue()
