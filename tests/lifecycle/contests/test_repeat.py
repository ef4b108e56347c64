"""A training repeated from its record gives the same files, in every family."""

from __future__ import annotations

import pytest

from stormpetrel.errors import ModelError, StoreError
from stormpetrel.lifecycle.contests.repeat import repeat_training
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.lifecycle.workload_models import fit_site_generator
from stormpetrel.store.site import create_site, open_site
from tests.answers.cluster_sites import put_counts, sample_grid
from tests.answers.workload_sites import GENERATOR, put_workload
from tests.builders import make_site
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import few_trees, put_jobs, steady_log, trained_site
from tests.lifecycle.traced_site import put_windows, traced_site, train
from tests.traces.small import STEPS, one_torch_thread, small_windows


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), one_torch_thread():
        yield


@pytest.fixture
def jobs_site(tmp_path):
    with few_trees(), open_site(trained_site(tmp_path / "site", steady_log(), until=20)) as site:
        yield site


def test_models_of_jobs_come_out_the_same_although_jobs_have_come_since(jobs_site):
    put_jobs(jobs_site, make_log(50, 99))
    repeated = repeat_training(jobs_site, "jobs-1")
    assert repeated.same and set(repeated.models) >= {"jobs-profiles", "jobs-submit"}
    assert repeated.compute.cpu_s > 0


def test_a_training_on_rows_that_are_no_longer_kept_is_refused(jobs_site):
    put_jobs(jobs_site, make_log(50, 99))
    jobs_site.jobs.table.compact()
    jobs_site.jobs.table.vacuum(keep_hours=0)
    with pytest.raises(StoreError, match="no longer kept"):
        repeat_training(jobs_site, "jobs-1")


def test_a_record_that_does_not_say_enough_is_refused(jobs_site, monkeypatch):
    training = jobs_site.models.training("jobs-1")
    for model in training.models:
        model.about.pop("settings", None)
    monkeypatch.setattr(jobs_site.models, "training", lambda name: training)
    with pytest.raises(ModelError, match="settings not noted"):
        repeat_training(jobs_site, "jobs-1")


def test_a_model_that_was_changed_does_not_come_out_the_same(jobs_site, monkeypatch):
    training = jobs_site.models.training("jobs-1")
    for model in training.models:
        model.about["settings"] = {**model.about["settings"], "rounds": 7}
    monkeypatch.setattr(jobs_site.models, "training", lambda name: training)
    repeated = repeat_training(jobs_site, "jobs-1")
    assert not repeated.same and not repeated.models["jobs-submit"]["risk.json"] and "not the same" in repeated.why


def test_a_network_of_traces_comes_out_the_same_although_windows_have_come_since(tmp_path):
    with traced_site(tmp_path / "site", splits=False) as site:
        train(site)
        put_windows(site, small_windows(9, steps=20 * STEPS, name="live"))
        assert repeat_training(site, "traces-1").why == "every file came out the same"


def test_a_model_of_events_comes_out_the_same(tmp_path):
    with create_site(tmp_path / "site") as site:
        put_counts(site, sample_grid(700))
        train_event_model(site, "combined")
        assert repeat_training(site, "events-1").same


def test_a_generator_comes_out_the_same(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_workload(site)
        fit_site_generator(site, GENERATOR, seed=3)
        assert repeat_training(site, "synth-1").same
