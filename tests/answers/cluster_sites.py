"""Sites with events: a simulated grid, and scores made up from how it would have been without outages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import polars as pl

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.events.finding import Finding, FindingKind, findings_as_json
from stormpetrel.records.events import BACKGROUND_SCHEMA, COUNT_SCHEMA, EVENT_SCORE_SCHEMA, as_counts, covered
from stormpetrel.records.outages import Outage
from stormpetrel.simulate.grid.grid import GridSpec, SimulatedGrid, simulate_grid
from stormpetrel.store.site import Site

SOURCE = "condor:pool"
MODEL = "events-unsupervised"
HOUR = timedelta(hours=1)
START = datetime(2025, 1, 6, tzinfo=UTC)
THRESHOLD = 4.0
GRAPHITE = {"url": "http://127.0.0.1:9", "targets": ["queued=a.b", "running=a.c", "utilisation=a.d"]}  # nobody asks it
SECRET_NODE, SECRET_GROUP = "node-of-ada", "adas-experiment"


@lru_cache(4)
def sample_grid(hours: int = 400, seed: int = 3) -> SimulatedGrid:
    """A small grid with a few outages."""
    return simulate_grid(GridSpec(hours=hours, seed=seed, nodes=40, sites=4, hosts=3, groups=4, start=START, outages_per_week=3))


@lru_cache(4)
def counts_of(grid: SimulatedGrid, *, by_place: bool = True) -> pl.DataFrame:
    """Its counts as a source tells them, without marks."""
    counts = grid.series.counts  # (hours, kinds)
    parts = [_rows(grid, counts[:, :, None], "", [""])]
    if by_place:
        for place, (values, split) in grid.places(0, len(grid.series)).items():
            parts.append(_rows(grid, split, place, list(values)))
    return as_counts(pl.concat(parts).filter(pl.col("count") > 0), SOURCE, grid.series.bucket_s)


def _rows(grid: SimulatedGrid, split: np.ndarray, place: str, values: Sequence[str]) -> pl.DataFrame:
    """(hours, kinds, values) as rows."""
    hours, kinds, size = split.shape
    hour, kind, value = (part.ravel() for part in np.indices((hours, kinds, size)))
    return pl.DataFrame(
        {
            "bucket_start": pl.from_epoch(pl.Series(grid.series.start_s[hour]), "s").dt.replace_time_zone("UTC"),
            "kind": pl.Series(np.array(grid.series.kinds)[kind]),
            "place": [place] * hour.size,
            "value": pl.Series(np.array(values, dtype=object)[value], dtype=pl.String),
            "count": split.ravel().astype(np.int64),
        }
    )


def put_counts(site: Site, grid: SimulatedGrid, *, unseen: tuple[int, int] | None = None, by_place: bool = True) -> None:
    """Counts into the table; hours from `unseen[0]` to before `unseen[1]` are a gap with a reason."""
    rows = counts_of(grid, by_place=by_place)
    end = grid.series.moment(len(grid.series) - 1) + HOUR
    marks = covered(SOURCE, START, end, grid.series.bucket_s, rows)
    if unseen is not None:
        begin, until = (grid.series.moment(place) for place in unseen)
        missing = pl.col("bucket_start").is_between(begin, until, closed="left")
        rows, marks = rows.filter(~missing), marks.filter(~missing)
    told = pl.concat([rows, marks]).select(list(COUNT_SCHEMA))
    site.event_counts.replace(told, source=SOURCE, start=START, end=end, bucket_s=grid.series.bucket_s)
    if unseen is not None:
        seen = site.event_counts.coverage(bucket_s=grid.series.bucket_s)
        why = f"the log of {SECRET_NODE} was <b>rotated</b> away"
        site.event_counts.reasons.update(SOURCE, [(begin, until, why)], seen=seen, now=end)


def scores_of(grid: SimulatedGrid, *, since: int = 0, until: int | None = None, version: int = 1) -> pl.DataFrame:
    """What a model would say that knows how the grid would have been: the outages of the plan raise alarms."""
    series, calm = grid.series, grid.calm
    spread = 3.5 * np.sqrt(calm.counts + 0.04 * calm.counts**2 + 1)  # (hours, kinds)
    low, high = np.maximum(0, calm.counts - spread), calm.counts + spread
    surprise = 2.5 * (series.counts - calm.counts) / spread
    score = np.abs(surprise).max(axis=1)  # (hours,)
    alarm = (score > THRESHOLD) & (series.label != 2)
    places = range(since, len(series) if until is None else until)
    rows = [
        {
            "bucket_start": series.moment(at),
            "bucket_s": series.bucket_s,
            "model": MODEL,
            "model_version": version,
            "score": float(score[at]),
            "threshold": THRESHOLD,
            "alarm": bool(alarm[at]),
            "said_at": series.moment(at) + 2 * HOUR,
            "kinds": list(series.kinds),
            "counts": series.counts[at].tolist(),
            "expected": calm.counts[at].tolist(),
            "low": low[at].tolist(),
            "high": high[at].tolist(),
            "surprise": surprise[at].tolist(),
            "why": findings_as_json(_findings(grid, at, surprise[at])) if alarm[at] else "[]",
        }
        for at in places
    ]
    return pl.DataFrame(rows, schema=EVENT_SCORE_SCHEMA)


def _findings(grid: SimulatedGrid, at: int, surprise: np.ndarray) -> list[Finding]:
    """Three findings: one on a submit host, one of a group, one of a node."""
    place = int(np.abs(surprise).argmax())
    kind, count, expected = grid.series.kinds[place], float(grid.series.counts[at, place]), float(grid.calm.counts[at, place])
    what = FindingKind.MORE if surprise[place] > 0 else FindingKind.FEWER
    since = grid.series.moment(at)
    where = (("submit_host", "host2"), ("group", SECRET_GROUP))
    found = [Finding(what, f"{kind} odd, 93 % on {value}", kind, count, expected, since, sort, value) for sort, value in where]
    hole = f"Node {SECRET_NODE} is a black hole"
    return [*found, Finding(FindingKind.BLACK_HOLE, hole, "Execute", 90.0, 3.0, since, "node", SECRET_NODE)]


def put_outages(site: Site, grid: SimulatedGrid, *more: Outage) -> None:
    """The outages and maintenances of the grid, and others."""
    for outage in (*grid.outages, *more):
        site.outages.add(outage)


def put_background(site: Site, grid: SimulatedGrid, *, unseen: tuple[int, int] = (100, 110)) -> None:
    """Queued, running and utilisation of the grid as Graphite tells them; of the hours from `unseen` there is no sample."""
    series = grid.series
    hour, name = (part.ravel() for part in np.indices(series.background.shape))
    values = pl.DataFrame(
        {
            "source": ["graphite"] * hour.size,
            "bucket_start": pl.from_epoch(pl.Series(series.start_s[hour]), "s").dt.replace_time_zone("UTC"),
            "bucket_s": [series.bucket_s] * hour.size,
            "name": pl.Series(np.array(series.background_names)[name]),
            "value": series.background.ravel(),
        }
    ).filter(~pl.Series((hour >= unseen[0]) & (hour < unseen[1])))
    rows = values.select([pl.col(column).cast(dtype) for column, dtype in BACKGROUND_SCHEMA.items()])
    end = series.moment(len(series) - 1) + HOUR
    site.event_background.replace(rows, source="graphite", start=START, end=end, bucket_s=series.bucket_s)


def make_live(site: Site, grid: SimulatedGrid | None = None, scores: pl.DataFrame | None = None) -> LiveSite:
    """A site with the counts, the outages and these scores, in memory."""
    if grid is not None:
        put_counts(site, grid, unseen=(200, 206))
        put_outages(site, grid)
    if scores is not None:
        site.event_scores.append(scores)
    live = LiveSite(site)
    live.refresh()
    return live
