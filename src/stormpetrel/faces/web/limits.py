"""Rate limits: one bucket of requests per viewer or address, refilled steadily; take -> seconds to wait, 0 for go ahead."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST_KEYS: Final = 20_000  # about 4 MB
LOGINS_PER_MINUTE: Final = 10


class RateLimit:
    """So many requests a minute for each key, a minute's worth of them at once.

    Memory is bounded: the key that was quiet for longest is dropped first, and its bucket was the fullest anyway.
    """

    def __init__(self, per_minute: int, *, most_keys: int = _MOST_KEYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = float(per_minute)
        self._per_second = per_minute / 60
        self._most_keys = most_keys
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> what was left, when

    def take(self, key: str) -> float:
        """Count one request; 0 if it may go ahead, else after how many seconds the next one may."""
        now = self._clock()
        with self._lock:
            left, since = self._left.pop(key, (self._burst, now))
            left = min(self._burst, left + (now - since) * self._per_second)
            wait = 0.0 if left >= 1 else (1 - left) / self._per_second
            self._left[key] = (left - 1 if left >= 1 else left, now)
            if len(self._left) > self._most_keys:
                self._left.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._left)
