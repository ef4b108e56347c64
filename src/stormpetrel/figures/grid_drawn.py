"""What figures of the grid draw: times and spans by the clock on the wall, since an axis of Plotly knows no zones.

GridAnswer -> wall_times, time_spans; the page and the report draw the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.figures.time_spans import ALARM, GAP, TimeSpan

if TYPE_CHECKING:
    from stormpetrel.answers.grid import GridAnswer


def wall_times(answer: GridAnswer, zone: str) -> npt.NDArray[np.datetime64]:
    """(buckets,) when each bucket that is shown begins, by the clock on the wall."""
    start_s = pl.Series(answer.board.series.start_s[answer.first : answer.last])
    local = pl.from_epoch(start_s, "s").dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return local.to_numpy().astype("datetime64[s]")


def on_wall(moment: datetime, zone: str) -> datetime:
    """A moment as clocks of the site show it, without a zone."""
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def time_spans(answer: GridAnswer, zone: str) -> list[TimeSpan]:
    """Alarms, outages, maintenance and gaps of the time that is shown, cut to it."""
    if answer.first == answer.last:
        return []
    found = [(one.start, one.end, ALARM, one.findings[0] if one.findings else "") for one in answer.alarms]
    found += [
        (seen.outage.start, seen.outage.end or answer.end, seen.outage.kind.value, seen.outage.title) for seen in answer.outages
    ]
    found += [(gap.start, gap.end, GAP, gap.why) for gap in answer.gaps]
    return [
        TimeSpan(on_wall(max(start, answer.start), zone), on_wall(min(end, answer.end), zone), kind, words)
        for start, end, kind, words in found
        if start < answer.end and end > answer.start
    ]
