"""A sign of life to somebody outside: an address is asked every minute while the loop turns, and raises the alarm when it is not.

url -> Heartbeat.beat, from the loop. Its answer is not read, a failure is not repeated before the next minute.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from stormpetrel.records.routes import shown_address

_EVERY_S: Final = 60.0
_TIMEOUT_S: Final = 10.0


class Heartbeat:
    """Asks one address; an empty one never. `problem` is why the last time failed."""

    def __init__(self, url: str, *, every_s: float = _EVERY_S) -> None:
        self._url, self._every_s = url, every_s
        self._last = float("-inf")
        self._thread: threading.Thread | None = None
        self.problem = ""

    def beat(self) -> None:
        """The loop has made a turn: ask, if it is time, beside the loop."""
        is_asking = self._thread is not None and self._thread.is_alive()
        if not self._url or is_asking or time.monotonic() - self._last < self._every_s:
            return
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._ask, name="heartbeat", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Wait for what is under way, not for long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _ask(self) -> None:
        import httpx

        try:
            with httpx.stream("GET", self._url, timeout=_TIMEOUT_S, follow_redirects=False) as response:
                status = response.status_code
            self.problem = "" if 200 <= status < 300 else f"{shown_address(self._url)} answered {status}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.problem = f"{shown_address(self._url)} cannot be reached ({type(error).__name__})"
