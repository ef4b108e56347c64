"""A site to practise on: a few weeks of a small simulated cluster, ingested, and a model that knows all but its last week.

empty folder -> make_practice_site -> the folder of a site whose clock stands still.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.jobs.selection import Progress, silent
from stormpetrel.config import settings_from
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.learn.threads import wait_politely
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models, training_settings
from stormpetrel.records.times import fixed_clock
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import as_of, record_feed
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.writing import write_sacct
from stormpetrel.sources.formats import ReadOptions, open_source
from stormpetrel.store.site import create_site

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

CLUSTER: Final = "petrel"
_FEED: Final = "feed"


def make_practice_site(
    folder: Path | str,
    *,
    days: float = 30.6,  # it is afternoon: some jobs wait and some run
    nodes: int = 8,
    unseen_days: float = 7.0,
    rounds: int = 80,
    progress: Progress = silent,
) -> Path:
    """Simulate a cluster, ingest what it recorded up to its last day, and train as of `unseen_days` before that.

    The same numbers make the same site. `rounds` is how many trees a model has: fewer than a site's own has, to be ready soon.
    With 8 nodes and 30 days: about 5,000 jobs, under ten seconds, 500 MB while it trains.
    """
    wait_politely()
    place = Path(folder).expanduser()
    spec = ClusterSpec(name=CLUSTER, nodes=nodes, days=days + 1, load=0.5)
    now = spec.start + timedelta(days=days)
    settings = settings_from({"site": {"name": "the practice site", "cluster": CLUSTER, "feed": _FEED}})
    with create_site(place, settings) as site:
        _record(site, spec, now)
        progress(0.3)
        chosen = replace(training_settings(site.settings), rounds=rounds)
        fitted = fit_job_models(site, until=now - timedelta(days=unseen_days), settings=chosen)
        enter_job_models(site, fitted, why="to practise on", promoted_by=operator())
        progress(1.0)
    return place


def _record(site: Site, spec: ClusterSpec, now: datetime) -> None:
    """Run the cluster to its end, and tell the site what accounting would have shown at `now`."""
    frames = list(simulate(spec))
    record_feed(frames, site.folder / _FEED, fixed_clock(now))
    with TemporaryDirectory() as scratch:
        log = Path(scratch) / "sacct.txt"
        write_sacct([as_of(pl.concat(frames), now)], log)
        ingest_jobs(site, open_source(str(log), "sacct", ReadOptions(cluster=spec.name)))
