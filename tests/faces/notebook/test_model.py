from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from stormpetrel.errors import ModelError
from stormpetrel.faces.notebook import latest_model
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.store.site import create_site, open_site
from tests.faces.notebook.hostile import HOSTILE, assert_is_text


def test_the_models_of_every_moment_are_there_with_their_version(model):
    assert dict(model.versions) == dict.fromkeys(MOMENTS, 1)
    assert model.version == "1"
    assert model.summary().startswith("Model loaded: version 1, trained until ")


def test_versions_that_differ_are_told_one_by_one(model):
    mixed = replace(model, predictor=model.predictor)
    kept = dict(model.predictor.versions)
    try:
        model.predictor.versions[Moment.START] = 2
        assert mixed.version == "1 at submit, 2 at start, 1 at 2min"
    finally:
        model.predictor.versions.update(kept)


def test_a_site_without_a_model_says_how_to_make_one(tmp_path):
    create_site(tmp_path / "site").close()
    with pytest.raises(ModelError) as caught:
        latest_model(tmp_path / "site")
    assert caught.value.hint == "Train one: stormpetrel jobs train"


def test_the_past_is_the_sites_as_it_was_known_then(model, jobs):
    then = jobs.frame["submit_time"][jobs.frame.height // 2]
    past = model.past(then)
    assert past["submit_time"].max() < then
    assert past["end_time"].max() < then


def test_quality_is_that_of_the_watch_once_it_has_run(practice_site, model, streamed, tmp_path):
    assert model.quality.height == 0
    assert "How good" not in model._repr_html_()
    shutil.copytree(practice_site, tmp_path / "site")
    with open_site(tmp_path / "site") as site:
        site.predictions.begin(model.trained_until)
        site.predictions.append(streamed, horizon=site.now())
    watched = latest_model(tmp_path / "site")
    assert watched.quality["Moment"].to_list() == [str(moment) for moment in MOMENTS]
    assert watched.quality["Jobs"].min() > 0 and watched.quality["ROC area"].is_between(0.4, 1).all()
    assert "How good it has been" in watched._repr_html_()


def test_a_hostile_site_name_is_shown_as_text(model):
    html = replace(model, site_name=HOSTILE)._repr_html_()
    assert "&lt;img" in html
    assert_is_text(html)
