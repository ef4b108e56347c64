"""A challenger in shadow scores beside the model in use, apart from everything that alarms."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.lifecycle.contests import shadow
from stormpetrel.lifecycle.contests.shadow import run_shadows, set_shadow, shadow_figures, shadow_name, stop_shadow
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.lifecycle.job_models import JOBS, train_job_models
from stormpetrel.store.site import create_site, open_site
from stormpetrel.store.upkeep.upkeep import forget
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import DAYS, day, few_trees, steady_log, trained_site
from tests.lifecycle.traced_site import put_windows, traced_site, train
from tests.traces.small import STEPS, one_torch_thread, small_windows


@pytest.fixture(autouse=True)
def _however_long_ago(monkeypatch):
    monkeypatch.setattr(shadow, "_LONGEST", timedelta(days=50_000))  # of sites whose clock is the real one


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), one_torch_thread():
        yield


@pytest.fixture
def site(tmp_path):
    """Two trainings of jobs, the first in use, and jobs that came after both."""
    with few_trees(), open_site(trained_site(tmp_path / "site", steady_log(), until=20)) as made:
        train_job_models(made, until=day(21))
        JOBS.promote(made, "jobs-1")
        made.now = lambda: day(DAYS)
        yield made


def test_a_shadow_of_jobs_scores_what_neither_has_seen_beside_the_champion(site):
    set_shadow(site, "jobs-2", user="ada")
    (sentence,) = run_shadows(site, now=site.now())
    rows = site.shadow_scores.read("jobs").collect()
    assert rows.height and "jobs-2 in shadow beside jobs-1" in sentence
    assert (rows["submit_time"] > site.models.training("jobs-2").trained_until).all()
    assert rows["score"].is_between(0, 1).all() and rows["champion_score"].is_not_null().all()


def test_a_shadow_writes_to_its_own_table_only(site):
    others = [table for table in site.all_tables if table is not site.shadow_scores.table]
    before = [table.version() for table in others]
    set_shadow(site, "jobs-2", user="ada")
    run_shadows(site, now=site.now())
    assert [table.version() for table in others] == before
    assert site.models.current_training("jobs").name == "jobs-1"


def test_a_forgotten_user_is_gone_from_the_shadow_too(site):
    set_shadow(site, "jobs-2", user="ada")
    run_shadows(site, now=site.now())
    user = site.jobs.read_jobs().collect().filter(submit_time=site.shadow_scores.read().collect()["submit_time"][0])["user"][0]
    keys = site.jobs.read_jobs().collect().filter(user=user)["job_id"].to_list()
    forget(site, user)
    assert not set(keys) & set(site.shadow_scores.read().collect()["job_id"])


def test_a_shadow_that_is_stopped_leaves_nothing(site):
    set_shadow(site, "jobs-2", user="ada")
    run_shadows(site, now=site.now())
    stop_shadow(site, "jobs-2", user="ada")
    assert shadow_name(site, "jobs") is None and site.shadow_scores.read().collect().height == 0


def test_a_shadow_is_not_pruned(site):
    set_shadow(site, "jobs-2", user="ada")
    for _ in range(2):
        JOBS.promote(site, "jobs-1")
    assert site.models.prune(1, spare={"jobs-2"}) == []


def test_what_is_in_use_cannot_be_its_own_shadow(site):
    with pytest.raises(UsageError, match="in use"):
        set_shadow(site, "jobs-1", user="ada")


def test_a_shadow_of_events_scores_buckets(tmp_path):
    with create_site(tmp_path / "site") as site:
        put_counts(site, sample_grid(700))
        for _ in range(2):
            train_event_model(site, "unsupervised")
        set_shadow(site, "events-1", user="ada")
        run_shadows(site, now=site.now())
        figures = shadow_figures(site, "events")
    assert figures.rows > 100 and figures.flagged == figures.champion_flagged


def test_a_shadow_of_traces_keeps_the_highest_score_of_a_node_at_a_moment(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        train(site)
        train(site, settings={"seed": 1})
        put_windows(site, small_windows(9, steps=20 * STEPS, name="live"))
        set_shadow(site, "traces-1", user="ada")
        run_shadows(site, now=site.now())
        rows = site.shadow_scores.read("traces").collect()
    assert rows.select("subject", "time").is_unique().all() and set(rows["subject"]) == {"n0", "n1"}
