"""The thread beside the loop that tells how the sources are: in the log, and in the state for other processes.

SourceBook -> HealthMonitor.check, every second. The loop may hang in a look for minutes; this thread says so while it does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from stormpetrel.errors import StormpetrelError
from stormpetrel.store.source_health import SourceBook, SourceHealth, Trouble, troubles
from stormpetrel.store.state import StateStore
from stormpetrel.store.watch_status import write_sources
from stormpetrel.watch.logs import Log

_CHECK_S: Final = 1.0
_WRITE_S: Final = 5.0  # a sign of life at least this often; what has changed is written at once


class HealthMonitor:
    """Looks at the book of sources again and again; a problem is told once when it begins, and once when it is over."""

    def __init__(self, state: StateStore, book: SourceBook, log: Log) -> None:
        self._state, self._book, self._log = state, book, log
        self._reported: dict[str, tuple[Trouble, datetime]] = {}  # what is wrong with a source, and since when
        self._written: datetime | None = None
        self._read: set[str] = set()  # sources that have been read well
        self._cannot_write = False
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Check every second while the block runs, and once at its end."""
        stop = threading.Event()

        def keep_checking() -> None:
            while not stop.wait(_CHECK_S):
                self.check()

        thread = threading.Thread(target=keep_checking, name="health", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.check(write=True)

    def check(self, *, write: bool = False) -> None:
        """Tell what has changed since the last check; with `write` leave it in the state in any case."""
        with self._lock:
            now = datetime.now(UTC)
            sources = self._book.sources()
            read = {source.name for source in sources if source.last_good}
            has_news = self._report({trouble.source: trouble for trouble in troubles(sources, now)}, now) or read != self._read
            self._read = read
            if write or has_news or self._written is None or (now - self._written).total_seconds() >= _WRITE_S:
                self._write(sources, now)

    def _report(self, current: dict[str, Trouble], now: datetime) -> bool:
        has_news = False
        for name, trouble in current.items():
            before, since = self._reported.get(name, (None, now))
            self._reported[name] = (trouble, since)
            if not trouble.same_as(before):
                has_news = True
                self._log.warning("problem", source=name, what=trouble.what)
        for name in [name for name in self._reported if name not in current]:
            trouble, since = self._reported.pop(name)
            has_news = True
            self._log.info("problem over", source=name, what=trouble.what, seconds=round((now - since).total_seconds()))
        return has_news

    def _write(self, sources: tuple[SourceHealth, ...], now: datetime) -> None:
        """Leave the sources in the state; a state that cannot be written is told once, and tried again."""
        self._written = now
        try:
            write_sources(self._state, sources, now)
            self._cannot_write = False
        except (StormpetrelError, OSError) as error:
            if not self._cannot_write:
                self._log.warning("health cannot be written", what=str(error))
            self._cannot_write = True
