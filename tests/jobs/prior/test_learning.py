"""A prior, and site models that begin with it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import Beginning, JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.learning import begin_with, fit_prior, own_weight
from stormpetrel.jobs.prior.trees import trees_over
from stormpetrel.jobs.prior.young_sites import PriorLog, sample_young_sites, young_site
from tests.jobs.logs import make_log, one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def prior():
    logs = [PriorLog.of(f"made {seed}", make_log(800, seed, days=10)) for seed in (1, 2)]
    rows = [sample_young_sites(log, moments=(Moment.SUBMIT,), starts=6, most_rows=1200) for log in logs]
    return fit_prior(rows, Moment.SUBMIT)


@pytest.fixture(scope="module")
def site():
    log = PriorLog.of("new", make_log(600, 9, days=10))
    return young_site(log, log.submit_s[0])


def log_odds(risk):
    return np.log(risk / (1 - risk))


def test_the_same_rows_give_the_same_prior(prior):
    logs = [PriorLog.of(f"made {seed}", make_log(800, seed, days=10)) for seed in (1, 2)]
    rows = [sample_young_sites(log, moments=(Moment.SUBMIT,), starts=6, most_rows=1200) for log in logs]
    assert fit_prior(rows, Moment.SUBMIT).risk_trees() == prior.risk_trees()


def test_a_prior_tells_failing_jobs_of_a_site_that_it_has_never_seen(prior, site):
    risk = prior.risk(site.features[Moment.SUBMIT])
    assert risk[site.failed].mean() > risk[~site.failed].mean() + 0.05


def test_own_trees_count_by_the_rarer_outcome():
    few, many = np.arange(100) < 10, np.arange(100_000) < 50_000
    assert 0 < own_weight(few) < 0.1 < 0.95 < own_weight(many) < 1
    assert own_weight(few) == own_weight(~few)


def test_a_model_begun_with_a_prior_adds_up_both_in_log_odds(prior, site):
    features, half = site.features[Moment.SUBMIT], {}
    for weight in (1e-9, 0.5, 1.0):
        begin = Beginning(prior.risk_trees(), weight)
        model = JobOutcomeModel(Moment.SUBMIT, rounds=20).fit_risk(features, site.failed, begin=begin)
        half[weight] = log_odds(model.risk(features))
    start = log_odds(prior.risk(features))
    np.testing.assert_allclose(half[1e-9], start, atol=1e-3)
    np.testing.assert_allclose(half[0.5] - start, (half[1.0] - start) / 2, atol=1e-3)
    assert np.abs(half[1.0] - start).max() > 0.1, "the site's own trees say something"


def test_a_begun_model_is_a_model_like_any_other(prior, site, tmp_path):
    features = site.features[Moment.SUBMIT]
    begin = begin_with(prior, features.names, site.failed)
    model = JobOutcomeModel(Moment.SUBMIT, rounds=10).fit(features, site.failed, site.outcome, begin=begin)
    model.save(tmp_path / "model")
    read = JobOutcomeModel.load(tmp_path / "model")
    np.testing.assert_array_equal(read.risk(features), model.risk(features))
    explained = read.explain(features)
    total = explained.contributions.sum(axis=1) + explained.base
    np.testing.assert_allclose(total, log_odds(model.risk(features)), atol=1e-3)


def test_trees_find_their_features_wherever_they_stand(prior, site):
    features = site.features[Moment.SUBMIT]
    order = np.random.default_rng(0).permutation(len(features.names))
    names = (*np.array(features.names)[order].tolist(), "telemetry.more")
    wider = np.column_stack([features.values[:, order], np.ones(len(features.values), dtype=np.float32)])
    moved = trees_over(prior.risk_trees(), prior.names_, names)
    assert json.loads(moved)["learner"]["learner_model_param"]["num_feature"] == str(len(names))
    shuffled = FeatureMatrix(Moment.SUBMIT, names, wider)
    model = JobOutcomeModel(Moment.SUBMIT, rounds=1).fit_risk(shuffled, site.failed, begin=Beginning(moved, 1e-9))
    risk = model.risk(shuffled)
    np.testing.assert_allclose(risk, prior.risk(features), atol=1e-5)


def test_a_site_that_has_seen_enough_begins_without(prior, site):
    names = site.features[Moment.SUBMIT].names
    assert begin_with(prior, names, np.arange(20_000) < 10_000) is None
    assert begin_with(prior, names[:-1], site.failed) is None, "a prior of other features is of no use"
