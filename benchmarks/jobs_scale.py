"""What a site of many jobs costs: training, `check` and `why` on the command line, `serve`, `watch`, each page's first drawing.

`python -m benchmarks.jobs_scale [--jobs N …] [--only STEP …] [--keep DIR]`: simulated jobs, again and again under other names,
over at most two years; each step in a process of its own, seconds by the clock and peak memory. Each size is replaced on its own
in benchmarks/results/jobs_scale.json, `--only` those steps; the growth is drawn in docs/figures/jobs-scale.svg.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from benchmarks.jobs import SIMULATED, simulated
from stormpetrel.config import settings_from
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.jobs.predictor import known_by
from stormpetrel.records.jobs import FIELD_BIT
from stormpetrel.store.site import create_site

PERIODS = 10  # of simulated weeks, one after the other; more jobs than that are several clusters' worth at once
_TIMES = ("submit_time", "eligible_time", "start_time", "end_time")


def periods(jobs: int, now: datetime) -> Iterator[pl.DataFrame]:
    """So many jobs in order of time, about a tenth at a time; the last are submitted just before `now`."""
    once = simulated()
    first: datetime = once["submit_time"].min()  # type: ignore[assignment]
    last: datetime = once["submit_time"].max()  # type: ignore[assignment]
    weeks = timedelta(days=7 * -(-(last - first).days // 7))
    copies = max(1, round(jobs / once.height))
    at_once = -(-copies // PERIODS)
    back = -(-copies // at_once)
    for period in range(back):
        shift = (now - last) - weeks * (back - 1 - period)
        numbers = range(period * at_once, min(copies, (period + 1) * at_once))
        parts = [
            once.with_columns(
                pl.col(_TIMES) + shift,
                job_id=pl.col("job_id") + number * 10 * SIMULATED,
                job_id_raw=pl.col("job_id_raw") + number * 10 * SIMULATED,
                user=pl.col("user") + f"-{number}",
                node_list=pl.col("node_list").str.replace(r"^n", f"r{number - numbers[0]}n"),
            )
            for number in numbers
        ]
        yield known_by(pl.concat(parts), now).sort("submit_time")


def make_site(folder: Path, jobs: int) -> None:
    """A site with so many jobs in its table, and nothing learnt."""
    now = datetime.now(UTC).replace(microsecond=0)
    values = {"site": {"name": "scale", "cluster": "petrel"}, "serve": {"requests_per_minute": 10_000_000}}
    seen = 0
    with create_site(folder, settings_from(values)) as site:
        for frame in periods(jobs, now):
            numbered = frame.with_columns(fingerprint=pl.int_range(seen, seen + pl.len()), line=pl.int_range(pl.len()))
            commit_jobs(site.jobs, numbered, fields=sum(FIELD_BIT.values()), as_of=now)
            seen += frame.height


if __name__ == "__main__":
    import sys

    make_site(Path(sys.argv[2]), int(float(sys.argv[1])))
