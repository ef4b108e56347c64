"""A small simulated site that can be watched: a recorded feed whose clock the test holds, and models of what came before."""

from __future__ import annotations

import functools
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from stormpetrel.config import settings_from
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.records.clock import fixed_clock
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import record_feed, set_clock, write_fake_sacct
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel
from stormpetrel.sources.slurm_live import live_sources
from stormpetrel.store.site import Site, create_site, open_site

START = datetime(2026, 3, 2, tzinfo=UTC)
DAYS = 14
TRAINED = START + timedelta(days=10)  # what comes after this, no model has seen
SPEC = ClusterSpec(name="small", nodes=6, cores_per_node=16, mem_per_node_gib=64, days=DAYS, load=0.6, start=START, seed=7)


@functools.cache
def simulated_jobs(spec: ClusterSpec = SPEC) -> pl.DataFrame:
    """Every job of the small site, as it ends in the end."""
    return pl.concat(simulate(spec))


def make_watched_site(
    folder: Path, *, trained: bool = True, spec: ClusterSpec = SPEC, now: datetime = TRAINED, **sections: dict[str, Any]
) -> Site:
    """A site whose jobs up to `now` have been read (and learnt from); its clock stands there."""
    slurm = {"sacct": str(folder.resolve() / "feed" / "sacct"), "since": f"{START:%Y-%m-%d}", "chunk_days": 31.0, "pause_s": 0.0}
    values = {
        "site": {"name": "small", "cluster": "small", "feed": "feed", **sections.pop("site", {})},
        "slurm": {**slurm, **sections.pop("slurm", {})},
        "watch": {"poll_s": 0.2, "address": "", "retrain_hours": 0.0, **sections.pop("watch", {})},
        **sections,
    }
    site = create_site(folder, settings_from(values))
    record_feed([simulated_jobs(spec)], folder / "feed", fixed_clock(now), spec=spec)
    for write in (write_fake_sacct, write_fake_sbatch, write_fake_scancel):
        write(folder / "feed")
    for source in live_sources(site.settings.slurm, site.settings.site, site.jobs.cursor, now=site.now()):
        ingest_jobs(site, source)
    if trained:
        train_job_models(site, until=now)
    return site


def copy_site(original: Path, folder: Path) -> Site:
    """The same site in another folder: training it anew would take longer."""
    shutil.copytree(original, folder)
    for path in (folder / "site.toml", *(folder / "feed" / name for name in ("sacct", "sbatch", "scancel"))):
        path.write_text(path.read_text().replace(str(original.resolve()), str(folder.resolve())))
    return open_site(folder)


def move_clock(site: Site, moment: datetime) -> None:
    """Let the site's clock stand at another moment."""
    set_clock(site.folder / "feed", fixed_clock(moment))
