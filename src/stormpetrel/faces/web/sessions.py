"""Sessions of browsers: a random number in a cookie -> the token that was shown at the login.

They live in the memory of the serving process: a restart ends them all, and so does the end or the revocation of the token.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from stormpetrel.store.tokens import digest_of

SESSION_S: Final = 12 * 3600.0
_MOST: Final = 10_000
_MOST_OF_TOKEN: Final = 20  # browsers of one person; the next login ends the oldest of them, and nobody else's


class Sessions:
    """Who has logged in."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, most: int = _MOST, most_of_token: int = _MOST_OF_TOKEN
    ) -> None:
        self._clock = clock
        self._most = most
        self._most_of_token = most_of_token
        self._lock = threading.Lock()
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()  # digest of the session -> digest of the token, end

    def begin(self, token_digest: str) -> str:
        """Start a session for whoever showed a token; what the cookie is to hold."""
        session = secrets.token_urlsafe(32)
        with self._lock:
            own = [key for key, (token, _) in self._open.items() if token == token_digest]
            for oldest in own[: max(0, len(own) + 1 - self._most_of_token)]:
                del self._open[oldest]
            self._open[digest_of(session)] = (token_digest, self._clock() + SESSION_S)
            while len(self._open) > self._most:
                self._open.popitem(last=False)  # the oldest, which ends first
        return session

    def token_of(self, session: str) -> str | None:
        """The digest of the token behind a session; None where there is none, or its time is over."""
        key = digest_of(session)
        with self._lock:
            token, end = self._open.get(key, ("", 0.0))
            if token and self._clock() >= end:
                del self._open[key]
                return None
        return token or None

    def end(self, session: str) -> None:
        """Log out."""
        with self._lock:
            self._open.pop(digest_of(session), None)
