"""A small simulated site that can be watched: a recorded feed whose clock the test holds, and models of what came before.

`watched_site_once` makes it once per run of the tests (3 s of processor time), with a dozen trees per model: to check and load
150 takes 0.4 s each time. `copy_site` copies it in 20 ms, with settings of the test's own:
copy_site(original, folder, watch={"retrain_hours": 1.0}).
"""

from __future__ import annotations

import functools
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.config import settings_from
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import FAMILY, enter_job_models, load_fitted, train_job_models
from stormpetrel.records.times import fixed_clock
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import record_feed, set_clock, write_fake_sacct
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel
from stormpetrel.sources.slurm.live import live_sources
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site, create_site, open_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.parts.command_line import change_settings
from tests.parts.made_once import made_once
from tests.parts.quick_sacct import write_quick_sacct

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


def watched_site_once(factory: pytest.TempPathFactory, *, trained: bool = True) -> Path:
    """The folder of the small site as it is at `TRAINED`, made by the first test that needs it; to be copied."""
    if not trained:
        return made_once(factory, "watched-site-untrained", lambda folder: make_watched_site(folder, trained=False).close())

    def train(folder: Path) -> None:
        with one_thread(), few_trees(), copy_site(watched_site_once(factory, trained=False), folder) as site:
            train_job_models(site, until=TRAINED)

    return made_once(factory, "watched-site", train)


def copy_site(original: Path, folder: Path, *, sacct: str | None = None, **sections: dict[str, Any]) -> Site:
    """The same site in another folder, with other settings where some are given: training it anew would take longer.

    `sacct` is where a quick `sacct` gets its answers (quick_sacct.py); without it, the copy has that of the original.
    """
    shutil.copytree(original, folder)
    for path in (folder / "site.toml", *(folder / "feed" / name for name in ("sacct", "sbatch", "scancel"))):
        path.write_text(path.read_text().replace(str(original.resolve()), str(folder.resolve())))
    if sacct:
        write_quick_sacct(folder / "feed", sacct)
    if sections:
        change_settings(folder, **sections)
    return open_site(folder)


def train_same_again(site: Site) -> Training:
    """A second training that came to the models of the current one, in use: what follows from a training, without its seconds."""
    current = site.models.current_training(FAMILY)
    assert current is not None
    return enter_job_models(site, load_fitted(site, current), why="trained by hand", promoted_by="ada")


def move_clock(site: Site, moment: datetime) -> None:
    """Let the site's clock stand at another moment."""
    set_clock(site.folder / "feed", fixed_clock(moment))
