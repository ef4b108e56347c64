"""A heartbeat for an outside service: GET of one address every minute while the loop runs; the service alarms when it stops.

url -> Heartbeat.beat, from the loop. Of the answer only the status counts; a failure is not repeated before the next minute.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from stormpetrel.records.routes import shown_address
from stormpetrel.sources.http import BusyError, HttpClient, TooLongError, UntrustedError

_EVERY_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_MOST_READ: Final = 4096  # bytes of an answer, of which only the status counts


class Heartbeat:
    """Asks one address; an empty one never. `problem` is why the last time failed."""

    def __init__(self, url: str, *, every_s: float = _EVERY_S) -> None:
        self._url, self._every_s = url, every_s
        self._last = float("-inf")
        self._thread: threading.Thread | None = None
        self.problem = ""

    def beat(self) -> None:
        """The loop has made a turn: ask, if it is time, beside the loop."""
        is_busy = self._thread is not None and self._thread.is_alive()
        if not self._url or is_busy or time.monotonic() - self._last < self._every_s:
            return
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._request, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Wait for what is under way, not for long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _request(self) -> None:
        try:
            client = HttpClient(self._url, timeout_s=_TIMEOUT_S)
            try:
                status = client.exchange("GET", most_bytes=_MOST_READ).status
            finally:
                client.close()
        except TooLongError as error:
            status = error.reply.status
        except (BusyError, UntrustedError) as error:
            self.problem = f"{shown_address(self._url)} {error}"
            return
        self.problem = "" if 200 <= status < 300 else f"{shown_address(self._url)} answered {status}"
