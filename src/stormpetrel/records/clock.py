"""The clock of a simulated site: at which time it lives, and how fast.

FeedClock is kept in the feed's folder as JSON; `clock_of` reads that document.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

FEED_FILE: Final = "feed.json"
FEED_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class FeedClock:
    """The simulated time: `start_s` + `speed` × the real seconds since `began_s`; speed 0 stands still. Unix seconds."""

    start_s: float
    began_s: float = 0.0
    speed: float = 0.0

    def now_s(self, real_s: float) -> float:
        """The simulated time at a real time."""
        return self.start_s + self.speed * max(0.0, real_s - self.began_s)

    def now(self) -> datetime:
        """The simulated time, in whole seconds (UTC)."""
        return datetime.fromtimestamp(int(self.now_s(time.time())), UTC)


def fixed_clock(moment: datetime) -> FeedClock:
    """A clock that stands still."""
    return FeedClock(moment.timestamp())


def running_clock(start: datetime, *, speed: float = 1.0) -> FeedClock:
    """A clock that shows `start` now and runs at `speed`."""
    return FeedClock(start.timestamp(), time.time(), speed)


def clock_of(document: Mapping[str, Any]) -> FeedClock | None:
    """Return the clock in the settings of a feed; None where they are of another format."""
    return FeedClock(**document["clock"]) if document.get("format") == FEED_FORMAT else None
