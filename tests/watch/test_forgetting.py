"""A user who is forgotten while a watch runs."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.records.jobs import KEY
from stormpetrel.store.upkeep.upkeep import forget
from stormpetrel.watch.loop import Watch
from tests.parts.watched_site import TRAINED, move_clock


@pytest.fixture
def site(begun, copied):
    return copied(begun)


@pytest.fixture
def watch(site):
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=3))
    watch.step()
    return watch


def busiest_waiting(site):
    """The user with most jobs that wait or run."""
    open_jobs = site.jobs.read_jobs().filter(pl.col("end_time").is_null()).collect()
    return open_jobs["user"].mode().sort()[0]


def orphans(site):
    """Predictions for jobs that are not in the table."""
    keys = site.jobs.read_jobs().select(KEY).collect()
    return site.predictions.read().collect().join(keys, on=list(KEY), how="anti", nulls_equal=True)


def test_a_watch_that_has_the_users_jobs_open_lets_go_of_them(site, watch):
    user = busiest_waiting(site)
    stream = watch._stream
    forget(site, user)
    move_clock(site, TRAINED + timedelta(hours=5))
    step = watch.step()
    assert site.jobs.read_jobs().filter(pl.col("user") == user).collect().is_empty()
    assert orphans(site).is_empty()
    waiting = site.jobs.read_jobs().filter(pl.col("end_time").is_null()).collect().height
    assert step.open_jobs == waiting and watch._stream is not stream
    assert step.predictions.height > 0  # of the others


def test_a_user_forgotten_between_the_judging_and_the_commit_is_not_committed(site, watch, monkeypatch):
    """The watch has read the jobs, and forecasts are on their way; then the user of the first one goes."""
    move_clock(site, TRAINED + timedelta(hours=6))
    commit, forgotten = watch._commit, []

    def forget_first(predictions, *, horizon):
        if not forgotten:
            jobs = site.jobs.read_jobs().select(*KEY, "user").collect()
            forgotten.append(predictions.join(jobs, on=list(KEY), nulls_equal=True)["user"][0])
            assert forget(site, forgotten[0]) > 0
        return commit(predictions, horizon=horizon)

    monkeypatch.setattr(watch, "_commit", forget_first)
    said = watch.step().predictions
    assert forgotten and said.height > 0
    assert orphans(site).is_empty()
    assert watch.step().open_jobs == site.jobs.read_jobs().filter(pl.col("end_time").is_null()).collect().height
