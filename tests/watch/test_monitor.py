"""The thread beside the loop: a source that hangs is told in the log and in the state while the loop stands still."""

from __future__ import annotations

import io
import json
import threading
from contextlib import suppress

import pytest

from stormpetrel.errors import SourceUnavailableError
from stormpetrel.store.source_health import JOBS, SourceBook
from stormpetrel.store.watch_status import read_watch
from stormpetrel.watch.logs import Log
from stormpetrel.watch.metrics import WatchMetrics
from stormpetrel.watch.monitor import HealthMonitor
from stormpetrel.watch.service import Health
from tests.builders import make_site
from tests.parts import wait_until

AWAY = SourceUnavailableError("sacct failed: Connection refused.")


@pytest.fixture
def state(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site.state


@pytest.fixture
def stream():
    return io.StringIO()


def look(book, error=None):
    with suppress(SourceUnavailableError), book.poll("sacct", watcher=JOBS, every_s=3600.0) as seen:
        if error:
            raise error
        seen(3)


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def monitor_of(state, book, stream):
    return HealthMonitor(state, book, Log(stream, as_json=True))


@pytest.fixture
def hanging():
    """A book whose first look went well and whose second hangs until the test ends."""
    book, end = SourceBook(patience_s=0.1), threading.Event()
    look(book)

    def hang():
        with book.poll("sacct", watcher=JOBS, every_s=3600.0):
            end.wait(60)

    thread = threading.Thread(target=hang)
    thread.start()
    yield book, end
    end.set()
    thread.join()


def test_a_hang_is_told_once_while_it_lasts_and_once_when_it_is_over(state, stream, hanging):
    book, end = hanging
    with monitor_of(state, book, stream).running():
        wait_until(lambda: "problem" in stream.getvalue(), "the hang is told", limit_s=30)
        wait_until(lambda: read_watch(state).sources != (), "other processes can read of it", limit_s=30)
        assert read_watch(state).sources[0].looking_since is not None
        end.set()
        wait_until(lambda: "problem over" in stream.getvalue(), "the end is told", limit_s=30)
    assert [(line["event"], line["source"]) for line in lines(stream)] == [("problem", "sacct"), ("problem over", "sacct")]
    assert lines(stream)[0]["what"].startswith("A poll of sacct has been under way for")


def test_a_failed_look_is_told_once_however_often_it_is_tried(state, stream):
    book = SourceBook()
    monitor = monitor_of(state, book, stream)
    for error in (None, AWAY, AWAY, SourceUnavailableError("sacct failed: no such host."), None):
        look(book, error)
        monitor.check()
    assert [line["what"] for line in lines(stream) if line["event"] == "problem"] == [str(AWAY), "sacct failed: no such host."]
    assert [line["event"] for line in lines(stream)].count("problem over") == 1


def test_a_state_that_cannot_be_written_is_told_once(state, stream, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stormpetrel.watch.monitor.write_sources", fail)
    monkeypatch.setattr("stormpetrel.watch.monitor._WRITE_S", 0.0)
    monitor = monitor_of(state, SourceBook(), stream)
    monitor.check()
    monitor.check()
    assert [line["event"] for line in lines(stream)] == ["health cannot be written"]


def test_readiness_and_metrics_are_computed_when_they_are_asked_for(hanging):
    book, end = hanging
    health, metrics = Health(5.0, book), WatchMetrics(book)
    health.beat()
    metrics.ask(ready=lambda: not health.not_ready, lag_s=lambda: 7.0)
    wait_until(lambda: "under way" in health.not_ready, "the hang is seen", limit_s=30)
    text = metrics.text().decode()
    assert 'stormpetrel_source_up{source="sacct"} 0.0' in text and "stormpetrel_watch_ready 0.0" in text
    assert "stormpetrel_horizon_lag_seconds 7.0" in text
    assert lag_of(metrics) < lag_of(metrics)  # nothing happened in between but time
    end.set()
    wait_until(lambda: not health.not_ready, "it is over", limit_s=30)
    assert 'stormpetrel_source_up{source="sacct"} 1.0' in metrics.text().decode()


def lag_of(metrics) -> float:
    line = next(line for line in metrics.text().decode().splitlines() if line.startswith("stormpetrel_source_lag_seconds{"))
    return float(line.rsplit(" ", 1)[1])
