"""A small practice site, made once, and its last days."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stormpetrel.faces.notebook import LatestModel, LoadedJobs, latest_model, load_jobs, make_practice_site
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.records.predictions import readable_from
from stormpetrel.store.site import open_site


@pytest.fixture(scope="session")
def practice_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_practice_site(tmp_path_factory.mktemp("practice") / "site", days=18.6, nodes=6, unseen_days=4.0, rounds=25)


@pytest.fixture(scope="session")
def jobs(practice_site: Path) -> LoadedJobs:
    return load_jobs(practice_site, last_days=4)


@pytest.fixture(scope="session")
def model(practice_site: Path) -> LatestModel:
    return latest_model(practice_site)


@pytest.fixture(scope="session")
def streamed(practice_site: Path, model: LatestModel) -> pl.DataFrame:
    """What the live watch would have said since the training."""
    since = model.trained_until
    assert since is not None
    with open_site(practice_site) as site:
        stream = open_stream(site, horizon=since, began=since, remember=False)
        said = stream.advance(site.jobs.read_jobs().collect(), until=site.now())
        return readable_from(said, site.now())
