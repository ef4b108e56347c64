"""The counts of a simulated grid as its site would have them, as a whole and by place.

SimulatedGrid -> placed_counts -> COUNT_SCHEMA. Apart from the simulator, which needs nothing but NumPy.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stormpetrel.records.events import WHOLE, as_counts
from stormpetrel.simulate.grid.grid import SimulatedGrid
from stormpetrel.simulate.grid.outages import SIMULATED


def placed_counts(grid: SimulatedGrid, first: int = 0) -> pl.DataFrame:
    """The counts of a grid from an hour on as its site would have them, as a whole and by place (COUNT_SCHEMA), without marks."""
    start = pl.from_epoch(pl.Series(grid.series.start_s[first:]), "s").dt.replace_time_zone("UTC")
    whole = np.nan_to_num(grid.series.counts[first:]).astype(np.int64)[:, :, None]  # (hours, kinds, 1)
    frames = []
    for place, (values, split) in {WHOLE: ((WHOLE,), whole), **grid.places(first, len(grid.series))}.items():
        hour, kind, value = np.nonzero(split)
        frames.append(
            pl.DataFrame(
                {
                    "bucket_start": start.gather(hour),
                    "kind": pl.Series(np.array(grid.series.kinds)[kind]),
                    "place": pl.repeat(place, hour.size, eager=True),
                    "value": pl.Series(np.array(values)[value]),
                    "count": split[hour, kind, value],
                }
            )
        )
    return as_counts(pl.concat(frames), SIMULATED, grid.series.bucket_s)
