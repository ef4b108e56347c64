"""Promises: from which score on windows are flagged, and what share of calm windows that may be.

scores of calm windows that were kept aside -> promised -> Promise. A threshold is an order statistic of these scores, and a share
is promised only where they are enough to be 95 % sure of it. Threads of one job on one node at one moment do the same and count
once. With too few nothing is promised and nothing is flagged: the scores are a ranking then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import numpy as np

from stormpetrel.records.arrays import Floats

SURE: Final = 0.95  # how sure a promise is
LARGEST_SHARE: Final = 0.05  # a threshold that may flag more of the calm windows is none


@dataclass(frozen=True, slots=True)
class Calm:
    """Calm windows that were kept aside: how many, how many of them are independent, and over how long."""

    windows: int
    independent: int
    hours: float


@dataclass(frozen=True, slots=True)
class Promise:
    """What may be expected of a threshold, and what it would take to promise what was asked for."""

    asked: float  # share of calm windows that may be flagged, as the settings say
    share: float | None  # that can be promised now; None: no threshold can be kept
    threshold: float | None
    calm: Calm

    @property
    def is_kept(self) -> bool:
        """Whether the share that was asked for can be promised."""
        return self.share is not None and self.share <= self.asked

    @property
    def needed(self) -> int:
        """How many independent calm windows it takes to promise what was asked for."""
        return needed_windows(self.asked)

    @property
    def needed_hours(self) -> float | None:
        """How long it takes to see as many, at the rate of those that were seen; None where none was."""
        return self.calm.hours * self.needed / self.calm.independent if self.calm.independent else None

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it, with what is needed."""
        return {**asdict(self), "needed_windows": self.needed, "needed_hours": self.needed_hours}

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """The promise that a record holds; KeyError, TypeError or ValueError where it holds none."""
        calm = record["calm"]
        seen = Calm(int(calm["windows"]), int(calm["independent"]), float(calm["hours"]))
        share, threshold = (None if record[name] is None else float(record[name]) for name in ("share", "threshold"))
        return cls(float(record["asked"]), share, threshold, seen)

    @classmethod
    def of_about(cls, about: Mapping[str, Any]) -> Self:
        """The promise of a registered model; of one from before promises were kept, what its validation windows allow."""
        if about.get("promise") is not None:
            return cls.of_record(about["promise"])
        share_wanted, windows = float(about.get("alarm_share", LARGEST_SHARE)), int(about.get("windows", {}).get("validation", 0))
        share, _ = _share_and_rank(share_wanted, windows)
        threshold = float(about["threshold"]) if share is not None else None
        return cls(share_wanted, share, threshold, Calm(windows, windows, windows * float(about.get("window_s", 0.0)) / 3600))

    def words(self) -> str:
        """In one or two sentences: what is flagged, what that promises, and what more would take."""
        seen = f"{self.calm.independent:,} independent calm windows over {_hours(self.calm.hours)}"
        wanted = f"{percent(self.asked)} (traces.alarm_share)"
        takes = f"it takes {self.needed:,}" + (f", about {_hours(self.needed_hours)} like these" if self.needed_hours else "")
        if self.threshold is None or self.share is None:
            fewest = needed_windows(max(self.asked, LARGEST_SHARE))
            return (
                f"Nothing is flagged, and the scores are a ranking: {seen} were kept aside, too few to keep a threshold"
                f" ({fewest:,} for the first). To flag at most {wanted} of calm windows {takes}."
            )
        above = f"Windows with a score above {self.threshold:.5f} are flagged: at most {percent(self.share)} of calm ones"
        if self.is_kept:
            return f"{above}, by {seen}."
        return f"{above}, which is all that {seen} can promise. For {wanted} {takes}."


def promised(scores: Floats, calm: Calm, share_wanted: float) -> Promise:
    """The lowest threshold that keeps the share that is wanted; or the smallest share that can be promised; or neither.

    Of n independent scores, the r-th largest is exceeded by more than a share a of all calm windows with the probability that
    fewer than r of n exceed the true quantile: P(Binomial(n, a) < r), which must not be above 5 %.
    """
    share, rank = _share_and_rank(share_wanted, calm.independent)
    if share is None or not scores.size:
        return Promise(share_wanted, None, None, calm)
    above = int((rank - 1) / calm.independent * scores.size)  # windows that may lie above it
    return Promise(share_wanted, share, float(np.sort(scores)[::-1][above]), calm)


def needed_windows(share: float) -> int:
    """How many independent calm windows it takes to promise a share: so many without one above the highest are 95 % sure."""
    return math.ceil(math.log(1 - SURE) / math.log1p(-share))


def percent(share: float) -> str:
    """A share for people, in percent, rounded up: a promise is not rounded in its own favour."""
    digits = 2 if share < 0.01 else 1
    return f"{math.ceil(round(share * 10 ** (2 + digits), 6)) / 10**digits:.{digits}f} %"


def _share_and_rank(share_wanted: float, independent: int) -> tuple[float | None, int]:
    """The share that so many independent windows can promise, and which of the largest scores is the threshold."""
    if independent < 1:
        return None, 0
    from scipy.special import bdtr

    ranks = np.arange(1, math.ceil(share_wanted * independent) + 2)
    rank = int((bdtr((ranks - 1).astype(np.float64), independent, share_wanted) <= 1 - SURE).sum())
    if rank:
        return share_wanted, rank
    smallest = 1 - (1 - SURE) ** (1 / independent)
    return (smallest, 1) if smallest <= LARGEST_SHARE else (None, 0)


def _hours(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.0f} minutes" if hours > 1 / 30 else f"{3600 * hours:.0f} seconds"
    return f"{hours:.1f} hours" if hours < 100 else f"{hours / 24:.0f} days"
