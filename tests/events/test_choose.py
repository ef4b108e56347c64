"""Names to models, folders to models; what a damaged folder says."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from stormpetrel.errors import ModelError, ModelFormatError, UsageError
from stormpetrel.events.choose import DEFAULT, FORECAST, MODELS, load, make
from tests.events.rhythmic import broken, rhythmic_series
from tests.jobs.logs import sealed

OURS = ("unsupervised", "combined")


@cache
def series():
    return broken(rhythmic_series(6), *[(first, first + 5) for first in range(100, 1000, 90)])


@cache
def fitted(name):
    return make(name).fit(series())


def damaged(folder, path, value):
    """Write a value into the record at a path of names, and seal it again: what is looked at is what the record says."""
    record = json.loads((folder / "model.json").read_text())
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (folder / "model.json").write_text(json.dumps(sealed(record)))


def test_the_default_and_the_forecaster_are_among_the_models():
    assert DEFAULT in MODELS and FORECAST in MODELS
    assert hasattr(make(FORECAST), "forecast")


@pytest.mark.parametrize("name", MODELS)
def test_every_name_makes_a_model(name):
    model = make(name, seed=3, sequence=12)
    assert callable(model.fit) and callable(model.score) and callable(model.save)
    if hasattr(model, "settings"):
        assert (model.settings.seed, model.settings.sequence) == (3, 12)


def test_an_unknown_name_is_told_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"Unknown model of events 'magic'\. Known: supervised"):
        make("magic")


@pytest.mark.parametrize("name", OURS)
def test_a_loaded_model_scores_and_expects_as_the_saved_one(name, tmp_path):
    fitted(name).save(tmp_path / "saved")
    model = load(tmp_path / "saved")
    assert type(model) is type(fitted(name)) and model.history_buckets == fitted(name).history_buckets
    np.testing.assert_array_equal(model.score(series()), fitted(name).score(series()))
    np.testing.assert_array_equal(model.forecast(series()).high, fitted(name).forecast(series()).high)


@pytest.mark.parametrize("name", OURS)
def test_a_loaded_model_is_saved_the_same_again(name, tmp_path):
    fitted(name).save(tmp_path / "saved")
    load(tmp_path / "saved").save(tmp_path / "again")
    assert (tmp_path / "again/model.json").read_bytes() == (tmp_path / "saved/model.json").read_bytes()


@pytest.mark.parametrize("name", OURS)
def test_two_trainings_on_the_same_series_are_the_same(name, tmp_path):
    fitted(name).save(tmp_path / "one")
    make(name, seed=9).fit(series()).save(tmp_path / "two")
    assert (tmp_path / "one/model.json").read_bytes() == (tmp_path / "two/model.json").read_bytes()


def test_the_labelled_model_has_something_to_save():
    assert fitted("combined").correction_ is not None


def test_a_model_without_labels_is_saved_too(tmp_path):
    model = make("combined").fit(series().unlabelled())
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(load(tmp_path / "saved").score(series()), model.score(series()))


@pytest.mark.parametrize("name", OURS)
def test_a_model_that_has_learnt_nothing_is_not_saved(name, tmp_path):
    with pytest.raises(ModelError, match="learnt nothing"):
        make(name).save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_folder_without_a_model_says_how_to_get_one(tmp_path):
    with pytest.raises(ModelFormatError, match=r"holds no model.*stormpetrel events train"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"kind": "job-outcome"}', '{"kind": ["x"]}', "[" * 100_000])
def test_a_record_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelFormatError):
        load(tmp_path)


ABSURD = [
    (("kinds",), [], None, ["Submit", "Submit", "Execute"], [1, 2, 3], ["Submit"], "abc"),
    (("bucket_s",), 0, -3600, "x", None, 3600.5, 10**12, True),
    (("ridge",), None, -1, "x"),
    (("profile",), [], [[1.0]], None, "x"),
    (("base",), [1.0], [-1.0, 1.0, 1.0], ["x", 1, 1], [None, 1, 1], [1e400, 1, 1]),
    (("floor",), 0, -1, 2.0, None),
    (("ahead",), [], [{}], None, {}),
    (("beside",), [{}, {}, {}], [1, 2, 3]),
    (("beside", 0, "weights"), [0.0], None, "x"),
    (("beside", 0, "spread"), [0.0, 0.0], [0.0, 0.0, "x"]),
    (("memories",), [], None, [1]),
    (("memories", 0, "hours"), 0, -1, 1e9, None),
    (("memories", 0, "precision"), [[1.0]], None),
    (("memories", 0, "knots"), [], [2.0, 1.0], [[1.0]], 5.0, None),
    (("memories", 0, "tail"), 0, -1, None),
]


@pytest.mark.parametrize(
    ("path", "value"), [pytest.param(path, value, id=f"{path} {value}"[:50]) for path, *values in ABSURD for value in values]
)
def test_an_absurd_value_in_the_record_is_refused(path, value, tmp_path):
    fitted("unsupervised").save(tmp_path / "saved")
    damaged(tmp_path / "saved", path, value)
    with pytest.raises(ModelFormatError, match="stormpetrel events train"):
        load(tmp_path / "saved")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trust",), 1.5),
        (("trust",), None),
        (("outages",), -1),
        (("outages",), 0.5),
        (("correction",), "x"),
        (("correction",), None),
        (("correction", "weights"), [1.0]),
        (("correction", "slope"), 0.0),
        (("forecast",), None),
        (("forecast", "floor"), -1),
    ],
)
def test_an_absurd_value_in_what_labels_taught_is_refused(path, value, tmp_path):
    fitted("combined").save(tmp_path / "saved")
    damaged(tmp_path / "saved", path, value)
    with pytest.raises(ModelFormatError, match="stormpetrel events train"):
        load(tmp_path / "saved")
