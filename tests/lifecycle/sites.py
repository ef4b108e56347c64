"""Sites for the tests of the models' life: made-up jobs in a table, and models trained on part of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models
from stormpetrel.records.jobs import VALUES, field_mask
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site
from tests.builders import T0, make_site
from tests.jobs.logs import make_log

QUICK = TrainingSettings(rounds=12)
DAYS = 40


@contextmanager
def few_trees() -> Iterator[None]:
    """Commands train and evaluate with a dozen trees instead of 150: for tests that claim nothing about how good they are."""
    whole = JobInput.training
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stormpetrel.lifecycle.job_models.training_settings", lambda _settings: QUICK)
        patch.setattr(JobInput, "training", lambda given: replace(whole(given), rounds=QUICK.rounds))
        patch.setattr("stormpetrel.jobs.model.KIND_ROUNDS", QUICK.rounds)
        yield


def put_jobs(site: Site, jobs: pl.DataFrame) -> None:
    """Jobs straight into the table of a site."""
    rows = jobs.with_columns(fingerprint=pl.int_range(pl.len(), dtype=pl.Int64), line=pl.int_range(pl.len(), dtype=pl.Int64))
    commit_jobs(site.jobs, rows, fields=field_mask(frozenset(VALUES)), as_of=day(DAYS))


def day(number: float) -> datetime:
    """So many days after the first one."""
    return T0 + timedelta(days=number)


def changing_log(n: int = 900, *, changes_on: float) -> pl.DataFrame:
    """Jobs that fail by chance at first, and from a day on if and only if they ask for 16 CPUs."""
    jobs = make_log(n, 7, days=DAYS, cancelled=0.0)
    rng = np.random.default_rng(5)
    by_chance = pl.Series(rng.random(n) < 0.35)
    fails = pl.when(pl.col("submit_time") < day(changes_on)).then(by_chance).otherwise(pl.col("req_cpus") == 16)
    return jobs.with_columns(state=pl.when(fails).then(pl.lit("FAILED")).otherwise(pl.lit("COMPLETED")))


def steady_log(n: int = 900) -> pl.DataFrame:
    """Jobs of users whose habits stay as they are."""
    return make_log(n, 3, days=DAYS)


def trained_site(folder: Path, jobs: pl.DataFrame, *, until: float, moments: tuple = MOMENTS) -> Path:
    """A site with these jobs, and with models trained on what was known on a day."""
    with make_site(folder) as site:
        put_jobs(site, jobs)
        train(site, until=day(until), moments=moments)
    return folder


def train(site: Site, *, until: datetime, moments: tuple = MOMENTS, why: str = "trained by hand") -> Training:
    """A quick training, put in use."""
    fitted = fit_job_models(site, moments, until=until, settings=QUICK)
    return enter_job_models(site, fitted, why=why, promoted_by="ada")
