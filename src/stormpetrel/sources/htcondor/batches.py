"""HTCondor events -> counts: what the readers of event logs give, and how it is counted.

EventBatch (numbers, times, places as ids) -> `tally` -> CountTally.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.records.events import PLACES, EventKind
from stormpetrel.sources.event_tally import CountTally
from stormpetrel.sources.htcondor.vocabulary import kind_of_number

_FAILED, _FAILED_FAST, _CODES = 1000, 1001, 1024  # our own kinds, behind HTCondor's three digits
_KIND_OF_CODE: Final = pl.Series(
    [kind_of_number(number) for number in range(1000)]
    + [EventKind.FAILED.value, EventKind.FAILED_FAST.value]
    + [""] * (_CODES - 1002),
    dtype=pl.String,
)
FAILED_FLAG, FAST_FLAG = 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class EventBatch:
    """Some consecutive events of a log that count, and what was set aside among them."""

    number: NDArray[np.int64]
    time_us: NDArray[np.int64]  # UTC
    places: NDArray[np.int64]  # (events, 4) ids into `names`, in the order of PLACES; -1 where nobody tells
    mark: NDArray[np.int64]  # FAILED_FLAG, FAST_FLAG
    names: list[str]
    read: int  # events that were read, with those that repeat another or tell of the log itself
    quarantined: dict[str, int] = field(default_factory=dict)
    first: datetime | None = None  # times of what was read
    last: datetime | None = None


def moment_of(time_us: int) -> datetime:
    """A time in µs since 1970 as a datetime."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)


def tally(batch: EventBatch, into: CountTally) -> None:
    """Count the events of a batch."""
    if batch.number.size:
        rows, codes = _with_our_kinds(batch)
        names = pl.Series(batch.names, dtype=pl.String)
        places = {name: (batch.places[rows, place], names) for place, name in enumerate(PLACES)}
        into.add(batch.time_us[rows], codes, _KIND_OF_CODE, places)


def _with_our_kinds(batch: EventBatch) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """(rows,) which event, and its kind as a code: the events, then once more those that failed, then those that failed fast."""
    failed, fast = (np.flatnonzero(batch.mark & mark) for mark in (FAILED_FLAG, FAST_FLAG))
    rows = np.concatenate([np.arange(batch.number.size), failed, fast])
    codes = np.concatenate([batch.number, np.full(failed.size, _FAILED), np.full(fast.size, _FAILED_FAST)])
    return rows, codes.astype(np.int64)
