"""The hourly counts of a small simulated grid, as a whole and by place, as the table of a site has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from benchmarks.grid_counts import placed_counts

from stormpetrel.records.events import covered
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid

START = datetime(2026, 1, 5, tzinfo=UTC)
SOURCE = "table:grid"


def counted_grid(*, days: int, seed: int = 5) -> pl.DataFrame:
    """Counts of a grid without outages (COUNT_SCHEMA), every hour seen whole."""
    grid = simulate_grid(
        GridSpec(hours=24 * days, seed=seed, start=START, nodes=20, slots=900, outages_per_week=0.0, maintenance_weeks=0.0)
    )
    counts = placed_counts(grid).with_columns(source=pl.lit(SOURCE))
    marks = covered(SOURCE, START, START + timedelta(days=days), 3600, counts)
    return pl.concat([counts, marks.select(counts.columns)])
