"""Event counts as the models see them: one row per bucket of time, one column per kind.

counts, background and labels -> EventSeries. A bucket that was not seen whole is NaN in all kinds: a gap stays a gap, a zero is a
zero. Buckets follow each other without a hole in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError

NORMAL, ANOMALY, MAINTENANCE, UNLABELLED = 0, 1, 2, -1
HOUR_S: Final = 3600
WEEK_S: Final = 604_800

Counts = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class EventSeries:
    """Counts per bucket, oldest first, with what is known next to them."""

    start_s: npt.NDArray[np.int64]  # (buckets,) Unix seconds of each bucket's beginning, bucket_s apart
    bucket_s: int
    kinds: tuple[str, ...]
    counts: Counts  # (buckets, kinds); a gap is NaN in all kinds
    label: Labels  # (buckets,) NORMAL, ANOMALY, MAINTENANCE or UNLABELLED
    background: Counts = field(default_factory=lambda: np.empty((0, 0)))  # (buckets, names), NaN where nobody knows
    background_names: tuple[str, ...] = ()
    zone: str = "UTC"  # people work by the clock on their wall

    def __post_init__(self) -> None:
        if self.background.size == 0:
            object.__setattr__(self, "background", np.empty((len(self.start_s), len(self.background_names))))
        rows = len(self.start_s)
        fits = (
            self.counts.shape == (rows, len(self.kinds))
            and self.label.shape == (rows,)
            and self.background.shape == (rows, len(self.background_names))
            and (rows < 2 or bool((np.diff(self.start_s) == self.bucket_s).all()))
        )
        if not fits:
            raise UsageError("These are no event counts: the buckets have holes, or the columns do not fit.")

    def __len__(self) -> int:
        return int(self.start_s.size)

    @property
    def is_gap(self) -> npt.NDArray[np.bool_]:
        """The buckets that were not seen whole."""
        return np.asarray(np.isnan(self.counts).any(axis=1), dtype=np.bool_)

    @property
    def buckets_per_day(self) -> int:
        """How many buckets make a day."""
        return max(1, 86_400 // self.bucket_s)

    @property
    def buckets_per_week(self) -> int:
        """How many buckets make a week."""
        return max(1, WEEK_S // self.bucket_s)

    def take(self, first: int, last: int) -> EventSeries:
        """The buckets from `first` to before `last`."""
        rows = slice(first, last)
        return replace(
            self,
            start_s=self.start_s[rows],
            counts=self.counts[rows],
            label=self.label[rows],
            background=self.background[rows],
        )

    def of_kinds(self, kinds: tuple[str, ...]) -> EventSeries:
        """The columns of some kinds, in that order; a kind that the series does not have is all zeros where it was seen."""
        counts = np.where(self.is_gap[:, None], np.nan, np.zeros((len(self), len(kinds))))
        for place, kind in enumerate(kinds):
            if kind in self.kinds:
                counts[:, place] = self.counts[:, self.kinds.index(kind)]
        return replace(self, kinds=kinds, counts=counts)

    def with_labels(self, label: Labels) -> EventSeries:
        """The same counts under other labels."""
        return replace(self, label=label.astype(np.int8))

    def unlabelled(self) -> EventSeries:
        """The same counts as a site without labels has them; what maintenance was announced stays known."""
        return self.with_labels(np.where(self.label == MAINTENANCE, MAINTENANCE, UNLABELLED))

    def bucket_of_week(self) -> npt.NDArray[np.int64]:
        """(buckets,) which bucket of the week each is, by the clock on the wall; 0 begins with Monday."""
        local_s = self.start_s + _offsets(self.start_s, self.zone)
        since_monday = (local_s - 4 * 86_400) % WEEK_S  # 1970-01-05 was a Monday
        place: npt.NDArray[np.int64] = since_monday // self.bucket_s
        return place

    def moment(self, place: int) -> datetime:
        """When a bucket begins."""
        return datetime.fromtimestamp(int(self.start_s[place]), UTC)


def _offsets(start_s: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """(buckets,) how far the wall clock is ahead of UTC, in seconds; asked once per hour, which is when clocks change."""
    if zone == "UTC" or not start_s.size:
        return np.zeros(start_s.size, dtype=np.int64)
    place = ZoneInfo(zone)
    hours, inverse = np.unique(start_s // HOUR_S, return_inverse=True)
    ahead = [datetime.fromtimestamp(int(hour) * HOUR_S, place).utcoffset() for hour in hours]
    return np.array([0 if offset is None else round(offset.total_seconds()) for offset in ahead], dtype=np.int64)[inverse]
