"""How late the ends of jobs are told: by accounting that lags, or because this machine's clock is ahead of the scheduler's.

ends of jobs that each look brought -> RecordLateness.late. A job that was not over at one look and is at the next should have
ended between the two, or within the seconds that accounting takes. Where look after look brings only ends from before the look
before it, the two clocks differ; rules that go by our clock would take those ends for seen.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import Final

import polars as pl

LATE_FROM: Final = timedelta(seconds=5)  # every end is at least so much older than the look before
_POLLS: Final = 3  # in a row, that bring ends
_FEWEST_ENDS: Final = 5
_OLDEST: Final = timedelta(hours=12)  # what is older is an import of the past, no lateness


class RecordLateness:
    """Learns from each look how late ends are told; `late` is zero while they come in time."""

    def __init__(self) -> None:
        self.late = timedelta(0)
        self._polled_to: datetime | None = None
        self._polls: deque[tuple[timedelta, timedelta, int]] = deque(maxlen=_POLLS)  # least, most, ends

    def note(self, ends: pl.Series, known_to: datetime) -> None:
        """Take the ends that the look up to `known_to` brought."""
        before, self._polled_to = self._polled_to, known_to
        if before is None or known_to <= before:
            self._polls.clear()
            self.late = timedelta(0)
            return
        recent = ends.filter(ends > before - _OLDEST)
        newest, oldest = recent.max(), recent.min()
        if not isinstance(newest, datetime) or not isinstance(oldest, datetime):
            return
        self._polls.append((before - newest, before - oldest, recent.len()))
        is_late = len(self._polls) == _POLLS and all(least > LATE_FROM for least, _, _ in self._polls)
        if is_late and sum(count for _, _, count in self._polls) >= _FEWEST_ENDS:
            self.late = max(self.late, *(most for _, most, _ in self._polls))
        elif not is_late:
            self.late = timedelta(0)
