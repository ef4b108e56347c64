"""Similar names in the life of models: the switch of the site counts at once, for models that know them and for the prior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stormpetrel.config import SITE_FILE
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models, load_predictor, training_settings
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import DAYS, QUICK, day, put_jobs, steady_log

NOW = day(DAYS)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.mark.parametrize(
    ("sections", "allowed"),
    [
        ({"jobs": {"similar_names": True}}, True),
        ({}, False),
        ({"jobs": {"similar_names": True}, "store": {"pseudonymise_users": True}}, False),
    ],
)
def test_pseudonyms_and_the_switch_decide_whether_names_are_grouped(tmp_path: Path, sections, allowed):
    with make_site(tmp_path / "site", **sections) as site:
        put_jobs(site, steady_log(200))
        assert training_settings(site.settings).similar_names is allowed
        predictor = load_predictor(site, now=NOW)
        assert predictor.is_prior
        assert predictor.history.similar_names is allowed
        verdict = predictor.judge(site.jobs.read_jobs().collect().tail(1), Moment.SUBMIT, NOW)
        assert 0.0 < verdict.risk < 1.0


def test_switched_off_a_model_that_was_taught_groups_goes_on_without_them(tmp_path: Path):
    folder = tmp_path / "site"
    with make_site(folder, jobs={"similar_names": True}) as site:
        put_jobs(site, steady_log())
        fitted = fit_job_models(site, [Moment.SUBMIT], until=day(10), settings=replace(QUICK, similar_names=True))
        enter_job_models(site, fitted, why="trained by hand", promoted_by="ada")
        with_groups = load_predictor(site, now=NOW)
        jobs = site.jobs.read_jobs().collect().tail(3)
        assert with_groups.history.similar_names
        assert any(name.startswith("similar_name.") for name in with_groups.models[Moment.SUBMIT].names_)
        with_groups.judge_many(jobs, Moment.SUBMIT, NOW)
    toml = folder / SITE_FILE
    toml.write_text(toml.read_text().replace("similar_names = true", "similar_names = false"))
    with open_site(folder) as site:
        without = load_predictor(site, now=NOW)
        assert not without.history.similar_names
        assert all(0.0 < verdict.risk < 1.0 for verdict in without.judge_many(jobs, Moment.SUBMIT, NOW))
