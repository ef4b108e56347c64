"""The prior that comes with the package: whole, small, without names, and fitting today's features."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.jobs.prior import shipped
from stormpetrel.jobs.prior.shipped import PRIOR_VERSION, SHIPPED, NoProfiles, learnt_from, prior_of, shipped_prior
from stormpetrel.jobs.prior.young_sites import PriorLog, young_site
from stormpetrel.records.predictions import version_text
from tests.jobs.logs import make_log, one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def log():
    return make_log(400, 3, days=5)


def test_the_shipped_features_are_those_of_today_at_each_moment(log):
    made = PriorLog.of("made", log)
    site = young_site(made, made.submit_s[0], moments=MOMENTS)
    for moment in MOMENTS:
        assert prior_of(moment).names_ == site.features[moment].names, "python -m benchmarks.jobs_prior --write"


def test_it_is_small_and_asks_for_no_profile():
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*.json")) < 1_000_000
    for moment in MOMENTS:
        names = prior_of(moment).names_
        trees = json.loads(prior_of(moment).risk_trees())["learner"]["gradient_booster"]["model"]["trees"]
        asked = {
            names[feature]
            for tree in trees
            for feature, child in zip(tree["split_indices"], tree["left_children"], strict=True)
            if child != -1
        }
        assert asked and not [name for name in asked if name.startswith("profile.") or name == "request.profile"]


def test_it_says_what_it_was_learnt_from():
    assert set(learnt_from(prior_of(Moment.SUBMIT))) == {"curie", "kth", "mira", "theta", "thetagpu"}
    assert version_text(PRIOR_VERSION) == f"prior-{shipped.VERSION}" and version_text(3) == "3"


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    shutil.copytree(SHIPPED, tmp_path / "shipped")
    trees = tmp_path / "shipped" / "submit" / "risk.json"
    trees.write_text(trees.read_text().replace("1", "2", 1))
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path / "shipped")
    with pytest.raises(ModelFormatError, match="not the file that was saved"):
        shipped_prior(failure_states=["FAILED"])


def test_the_first_job_of_a_site_has_a_risk_and_its_users_failures_raise_it(log):
    models = shipped_prior(failure_states=["FAILED", "TIMEOUT"], time_zone="UTC", past=log.clear())
    now = log["submit_time"].min()
    versions = dict.fromkeys(models, PRIOR_VERSION)
    predictor = JobPredictor(models, NoProfiles(), log.clear(), now=now, versions=versions)
    first = log.sort("submit_time").head(1)
    verdict = predictor.judge(first, Moment.SUBMIT, now)
    assert predictor.is_prior and 0 < verdict.risk < 1 and not verdict.known and verdict.profile is None
    user = log["user"].mode()[0]
    mine = log.filter(pl.col("user") == user, pl.col("end_time").is_not_null())
    later = mine["end_time"].max() + pl.Series([1]).cast(pl.Duration("ms")).item()
    risks = []
    for state in ("COMPLETED", "FAILED"):
        past = mine.with_columns(state=pl.lit(state))
        told = JobPredictor(models, NoProfiles(), past, now=later, versions=versions)
        risks.append(told.risk(mine.tail(1).with_columns(submit_time=pl.lit(later)), Moment.SUBMIT, later).item())
    assert risks[1] > risks[0] + 0.2
    assert np.isfinite(risks).all()
