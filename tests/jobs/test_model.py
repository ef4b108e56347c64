"""The outcome model: probabilities that add up, contributions that add up, and refusals in one sentence."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError, NotEnoughJobsError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import FEWEST_OF_A_CLASS, JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.outcomes import OUTCOMES
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_at, label_jobs
from stormpetrel.records.states import DEFAULT_FAILURE_STATES
from tests.jobs.logs import make_log, one_thread, sealed

FAILURE_STATES = tuple(str(state) for state in DEFAULT_FAILURE_STATES)
MEANINGS = {
    "cancelled is no failure": {},
    "cancelled is a failure": {"failure_states": (*FAILURE_STATES, "CANCELLED")},
    "cancelled is dropped": {"dropped_states": ("CANCELLED",)},
    "only crashes are failures": {"failure_states": ("FAILED",)},
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


def fitted(jobs, **options) -> tuple[JobOutcomeModel, LabelledJobs]:
    settings = TrainingSettings(rounds=10, **options)
    labelled = label_jobs(jobs, settings, [Moment.SUBMIT])
    return fit_at(labelled, Moment.SUBMIT, labelled.reached(Moment.SUBMIT), settings), labelled


@pytest.fixture(scope="module")
def log():
    return make_log(500, 1, cancelled=0.2)


@pytest.fixture(scope="module")
def model_and_features(log):
    model, labelled = fitted(log)
    return model, labelled.features[Moment.SUBMIT]


def assert_adds_up(model, said):
    outcomes = [f"p_{name}" for name in model.outcomes_]
    values = said.select("risk", *outcomes, "p_COMPLETED").to_numpy()
    assert ((values >= 0) & (values <= 1)).all()
    failures = said.select(pl.sum_horizontal(f"p_{name}" for name in model.failure_outcomes_)).to_series().to_numpy()
    np.testing.assert_allclose(failures, said["risk"].to_numpy(), atol=1e-6)
    np.testing.assert_allclose(said.select(pl.sum_horizontal(*outcomes, "p_COMPLETED")).to_series().to_numpy(), 1.0, atol=1e-6)


@pytest.mark.parametrize("meaning", MEANINGS)
def test_outcomes_add_up_to_the_risk_and_everything_to_one(log, meaning):
    model, labelled = fitted(log, **MEANINGS[meaning])
    said = model.predict_proba(labelled.features[Moment.SUBMIT])
    assert ("CANCELLED" in model.outcomes_) == (meaning != "cancelled is dropped")
    assert ("CANCELLED" in model.failure_outcomes_) == (meaning == "cancelled is a failure")
    assert_adds_up(model, said)


def test_one_kind_of_failure_is_the_whole_risk():
    model, labelled = fitted(make_log(300, 2, cancelled=0.0, failures=("FAILED",)))
    assert model.outcomes_ == ("FAILED",)
    assert_adds_up(model, model.predict_proba(labelled.features[Moment.SUBMIT]))


@pytest.mark.parametrize("cancelled", [0.0, 0.4], ids=["no outcome at all", "cancelled only"])
def test_the_risk_is_not_lost_where_every_kind_of_failure_is_rare(cancelled):
    jobs = make_log(90, 3, cancelled=cancelled, failures=("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"))
    model, labelled = fitted(jobs)
    said = model.predict_proba(labelled.features[Moment.SUBMIT])
    total = said.select(pl.sum_horizontal(f"p_{name}" for name in (*model.outcomes_, "COMPLETED"))).to_series()
    np.testing.assert_allclose(total.to_numpy(), 1.0, atol=1e-6)


def test_jobs_of_careless_users_have_a_higher_risk(log, model_and_features):
    model, features = model_and_features
    careless = (log["user"].str.slice(4).cast(pl.Int64) % 2 == 0).to_numpy()
    risk = model.risk(features)
    late = np.arange(len(risk)) > 250
    assert risk[late & careless].mean() > risk[late & ~careless].mean() + 0.1


def test_contributions_and_base_add_up_to_the_log_odds(model_and_features):
    model, features = model_and_features
    explained = model.explain(features)
    assert explained.names == features.names and explained.contributions.shape == features.values.shape
    risk = model.risk(features)
    np.testing.assert_allclose(explained.contributions.sum(axis=1) + explained.base, np.log(risk / (1 - risk)), atol=1e-3)


def test_importance_is_a_share_of_the_whole_most_first(model_and_features):
    model, features = model_and_features
    table = model.importance(features)
    assert table["gain"].sum() == pytest.approx(1.0) and table["mean_abs_shap"].is_sorted(descending=True)
    assert set(table["feature"]) == set(features.names)


def test_no_jobs_have_no_contributions(model_and_features):
    model, features = model_and_features
    assert model.explain(features.rows(np.empty(0, dtype=np.int64))).contributions.shape == (0, len(features.names))


def test_a_job_of_a_stranger_is_not_known(model_and_features):
    model, features = model_and_features
    stranger = features.rows(np.array([0]))
    assert model.predict_proba(stranger)["known"].to_list() == [False]
    assert model.predict_proba(features.rows(np.array([499])))["known"].to_list() == [True]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: FeatureMatrix(f.moment, f.names[:-1], f.values[:, :-1]),
        lambda f: FeatureMatrix(f.moment, (*f.names, "more"), np.hstack([f.values, f.values[:, :1]])),
        lambda f: FeatureMatrix(f.moment, (f.names[1], f.names[0], *f.names[2:]), f.values),
        lambda f: FeatureMatrix(f.moment, (), f.values[:, :0]),
    ],
    ids=["one less", "one more", "other order", "none"],
)
def test_other_columns_are_refused_in_one_sentence(model_and_features, spoil):
    model, features = model_and_features
    for use in (model.risk, model.predict_proba, model.explain):
        with pytest.raises(ModelFormatError, match="trained on other columns") as caught:
            use(spoil(features))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [0, FEWEST_OF_A_CLASS - 1, 41, 50])
def test_too_few_of_a_class_are_refused_with_the_numbers(model_and_features, bad):
    features = model_and_features[1].rows(np.arange(50))
    failed = np.arange(50) < bad
    outcome = pl.Series(np.where(failed, "FAILED", "COMPLETED"))
    with pytest.raises(NotEnoughJobsError, match=f"50 ended jobs, {bad} of them failed") as caught:
        JobOutcomeModel(Moment.SUBMIT, rounds=2).fit(features, failed, outcome)
    assert "\n" not in str(caught.value)


def test_jobs_without_an_outcome_are_learnt_from_as_far_as_they_tell(model_and_features):
    features = model_and_features[1]
    failed = np.arange(500) % 3 == 0
    model = JobOutcomeModel(Moment.SUBMIT, rounds=3).fit(features, failed, pl.Series([None] * 500, dtype=pl.String))
    assert model.outcomes_ == ("FAILED",) and model.n_train_ == 500
    assert not set(OUTCOMES) & set(model.predict_proba(features).columns)


def test_a_few_jobs_of_each_class_are_enough():
    model, labelled = fitted(make_log(60, 5))
    assert np.isfinite(model.risk(labelled.features[Moment.SUBMIT])).all()


def with_weights(folder: Path, name: str, content: bytes) -> None:
    """Put other weights into a folder, with their right digest."""
    (folder / name).write_bytes(content)
    record = json.loads((folder / "model.json").read_text())
    record["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(sealed(record)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"learner": {}}',
        b'{"learner": {"learner_model_param": {"num_feature": "1e999"}}}',
        b'{"learner": NaN}',
    ],
)
def test_weights_that_are_none_are_refused_even_with_their_right_digest(model_and_features, tmp_path, content):
    model_and_features[0].save(tmp_path / "saved")
    with_weights(tmp_path / "saved", "risk.json", content)
    with pytest.raises(ModelFormatError):
        JobOutcomeModel.load(tmp_path / "saved")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe"], ids=["deep", "no text"])
def test_rubble_in_place_of_weights_is_refused_even_with_its_right_digest(model_and_features, tmp_path, content):
    model_and_features[0].save(tmp_path / "saved")
    with_weights(tmp_path / "saved", "risk.json", content)
    with pytest.raises(ModelFormatError):
        JobOutcomeModel.load(tmp_path / "saved")


def test_a_model_that_lost_its_second_set_of_trees_is_refused(model_and_features, tmp_path):
    model_and_features[0].save(tmp_path / "saved")
    record = json.loads((tmp_path / "saved" / "model.json").read_text())
    del record["files"]["kinds.json"]
    (tmp_path / "saved" / "model.json").write_text(json.dumps(sealed(record)))
    with pytest.raises(ModelFormatError):
        JobOutcomeModel.load(tmp_path / "saved")
