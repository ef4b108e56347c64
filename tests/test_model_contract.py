"""The contract that every model keeps: every model × every named check.

A new model comes in as one more entry of MODELS; a new promise as one more test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError
from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history import History
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.profiles import END, SUBMIT, JobProfiles
from stormpetrel.jobs.training import TrainingSettings, fit_at, label_jobs
from stormpetrel.records.jobs import JOB_SCHEMA
from tests.jobs.logs import make_log, one_thread, sealed


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@cache
def log() -> pl.DataFrame:
    return make_log(400, 1)


@dataclass(frozen=True)
class OutcomeCase:
    """The outcome model of one moment."""

    moment: Moment
    record: str = "model.json"
    weights: str = "risk.json"

    def fit(self, seed: int = 0) -> JobOutcomeModel:
        settings = TrainingSettings(rounds=8, seed=seed)
        labelled = label_jobs(log(), settings, [self.moment])
        return fit_at(labelled, self.moment, labelled.reached(self.moment), settings)

    def load(self, folder: Path) -> JobOutcomeModel:
        return JobOutcomeModel.load(folder)

    def features(self, jobs: pl.DataFrame) -> FeatureMatrix:
        return features_at(jobs, History(stand_in={}), [self.moment])[self.moment]

    def scores(self, model: JobOutcomeModel, jobs: pl.DataFrame) -> np.ndarray:
        return model.predict_proba(self.features(jobs)).drop("known").to_numpy()


@dataclass(frozen=True)
class ProfilesCase:
    """Profiles of jobs."""

    columns: tuple[str, ...]
    record: str = "model.json"
    weights: str = "model.json"  # they stand in the record itself

    def fit(self, seed: int = 0) -> JobProfiles:
        return JobProfiles(self.columns).fit(prepare(log()).frame, seed)

    def load(self, folder: Path) -> JobProfiles:
        return JobProfiles.load(folder)

    def scores(self, model: JobProfiles, jobs: pl.DataFrame) -> np.ndarray:
        return model.assign(prepare(jobs).frame).cast(pl.Float64).to_numpy().reshape(-1, 1)


MODELS: dict[str, Any] = {
    **{f"outcome at {moment}": OutcomeCase(moment) for moment in MOMENTS},
    "profiles at the end": ProfilesCase(END),
    "profiles at submission": ProfilesCase(SUBMIT),
}


@pytest.fixture(params=MODELS, scope="module")
def case(request):
    return MODELS[request.param]


@pytest.fixture(scope="module")
def model(case):
    return case.fit()


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_the_same_seed_gives_the_same_result(case, model):
    np.testing.assert_array_equal(case.scores(case.fit(), log()), case.scores(model, log()))


def test_a_loaded_model_scores_as_the_saved_one(case, model, folder):
    np.testing.assert_array_equal(case.scores(case.load(folder), log()), case.scores(model, log()))


def test_a_loaded_model_is_saved_the_same_again(case, folder, tmp_path):
    case.load(folder).save(tmp_path / "again")
    assert (tmp_path / "again" / case.record).read_bytes() == (folder / case.record).read_bytes()


def test_nothing_in_a_saved_model_is_code(folder):
    assert {path.suffix for path in folder.iterdir()} == {".json"}
    for path in folder.iterdir():
        json.loads(path.read_text(), parse_constant=pytest.fail)


def test_no_jobs_have_no_scores(case, model):
    scores = case.scores(model, log().head(0))
    assert scores.shape[0] == 0 and scores.shape[1] == case.scores(model, log().head(3)).shape[1]


def test_one_job_has_one_score(case, model):
    assert case.scores(model, log().head(1)).shape[0] == 1


def test_jobs_are_scored_each_on_its_own(case, model):
    first = case.scores(model, log().head(100))
    np.testing.assert_array_equal(first[:50], case.scores(model, log().head(50)))


@pytest.mark.parametrize("kept", [("submit_time",), ("submit_time", "state", "user"), ()], ids=["time only", "three", "none"])
def test_nulls_everywhere_are_scored_without_complaint(case, model, kept):
    empty = (
        log()
        .head(7)
        .with_columns(pl.lit(None, dtype=dtype).alias(name) for name, dtype in JOB_SCHEMA.items() if name not in kept)
    )
    scores = case.scores(model, empty)
    assert scores.shape[0] == 7 and not np.isinf(scores).any()


def test_an_unseen_user_is_scored(case, model):
    stranger = log().head(1).with_columns(user=pl.lit("stranger \u202e;rm -rf /"), account=pl.lit("new"), job_name=pl.lit(""))
    assert np.isfinite(case.scores(model, stranger)).all()


def test_other_columns_are_refused_or_scored_as_unknown(case, model):
    if isinstance(case, OutcomeCase):
        features = case.features(log())
        fewer = replace(features, names=features.names[:-1], values=features.values[:, :-1])
        with pytest.raises(ModelFormatError):
            model.predict_proba(fewer)
    else:  # a profile goes by whatever is known of a job
        assert model.k_ > 1 and model.assign(pl.DataFrame({"other": [1.0, 2.0]})).to_list() == [None, None]


def rewrite(path: Path, **changes: Any) -> None:
    """Change a record and give it its right digest again: what is looked at is what the record says."""
    path.write_text(json.dumps(sealed(json.loads(path.read_text()) | changes)))


def truncate(path: Path, share: float = 0.5) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = next(n for n in range(len(content) // 2, len(content)) if content[n : n + 1].isdigit())
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    path.write_bytes(content)


def without(path: Path, name: str) -> None:
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != name}))


DAMAGES = {
    "no record": lambda folder, case: (folder / case.record).unlink(),
    "an empty record": lambda folder, case: (folder / case.record).write_text(""),
    "a record cut in half": lambda folder, case: truncate(folder / case.record),
    "a record without its last byte": lambda folder, case: (folder / case.record).write_bytes(
        (folder / case.record).read_bytes()[:-1]
    ),
    "a record that is no text": lambda folder, case: (folder / case.record).write_bytes(b"\xff\xfe\x00\x01"),
    "a record that is a list": lambda folder, case: (folder / case.record).write_text("[1, 2]"),
    "a record that is null": lambda folder, case: (folder / case.record).write_text("null"),
    "another version": lambda folder, case: rewrite(folder / case.record, format_version=99),
    "no version": lambda folder, case: without(folder / case.record, "format_version"),
    "a number of 5,000 digits": lambda folder, case: (folder / case.record).write_text('{"format_version": ' + "9" * 5000 + "}"),
    "weights cut in half": lambda folder, case: truncate(folder / case.weights),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_sentence(case, folder, damage):
    DAMAGES[damage](folder, case)
    with pytest.raises(ModelFormatError) as caught:
        case.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "rubble",
    [
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(None, id="a folder in its place"),
    ],
)
def test_rubble_in_place_of_the_record_is_refused(case, folder, rubble):
    (folder / case.record).unlink()
    if rubble is None:
        (folder / case.record).mkdir()
    else:
        (folder / case.record).write_text(rubble)
    with pytest.raises(ModelFormatError):
        case.load(folder)


def test_a_changed_byte_in_the_weights_is_found(case, folder):
    flip_a_byte(folder / case.weights)
    with pytest.raises(ModelFormatError):
        case.load(folder)


def test_another_kind_of_model_is_refused(case, folder):
    rewrite(folder / case.record, kind="something-else")
    with pytest.raises(ModelFormatError):
        case.load(folder)


def test_a_model_is_never_overwritten(model, folder):
    with pytest.raises(ModelFormatError):
        model.save(folder)


# Fields of a record with a value that no model ever had.
ABSURD = {
    "outcome": {
        "moment": ("noon", [], None),
        "features": (None, 5, [], ["request.cpus"]),
        "outcomes": (None, 5),
        "failure_outcomes": (None,),
        "rounds": (None, "many"),
        "seed": ("x", []),
        "threshold": (None, "half", []),
        "failed_share": (None,),
        "n_train": ("few",),
        "about": (5,),
        "files": ({}, {"risk.json": "00"}, {"../risk.json": "00"}, {"/etc/passwd": "00"}, None, []),
    },
    "profiles": {
        "normaliser": (None, {}, {"mean": ["x"], "scale": [1.0]}),
        "weights": (None, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], "x"),
        "means": ([[1.0]], "x"),
        "covariances": ([], [[[1.0]]]),
    },
}
# The same, where another error comes out, or none: faults.
ABSURD_FAULTS = {
    "outcome": {
        "rounds": (float("inf"), 1e308 * 10),
        "seed": (float("inf"),),
        "threshold": (float("nan"), float("inf"), 1e300),
        "failed_share": (float("nan"), 7.0),
        "n_train": (float("inf"), -5),
        "outcomes": ([], ["FAILED"], ["FAILED"] * 9),
        "failure_outcomes": (["NO_SUCH_OUTCOME"],),
    },
    "profiles": {
        "columns": (None, 5),
        "columns_used": (5,),
        "left_out": (5, "x"),
        "k": (None, "x", float("inf")),
        "k_elbow": ("x",),
        "elbow": (None, ["x"]),
        "bic": (5,),
        "method": ("magic",),
        "summary": (5, [{"profile": "x"}]),
        "normaliser": ({"mean": [float("nan")], "scale": [0.0]},),
        "weights": ("NaN",),
        "covariances": ("NaN",),
    },
}


def absurd(table: dict[str, dict[str, tuple[Any, ...]]]) -> list[Any]:
    """One parameter per kind, field and value."""
    return [
        pytest.param(kind, field, value, id=f"{kind} {field} {str(value)[:20]}")
        for kind, fields in table.items()
        for field, values in fields.items()
        for value in values
    ]


SMALLEST = {"outcome": "outcome at submit", "profiles": "profiles at the end"}


@cache
def model_of(kind: str) -> Any:
    with one_thread():
        return MODELS[SMALLEST[kind]].fit()


def load_with(kind: str, field: str, value: Any, folder: Path) -> None:
    """Save a model, write a value into its record, load it and use it."""
    case = MODELS[SMALLEST[kind]]
    model_of(kind).save(folder)
    record = json.loads((folder / case.record).read_text())
    if value == "NaN" and isinstance(record[field], list):
        value = (np.array(record[field]) * np.nan).tolist()
    rewrite(folder / case.record, **{field: value})
    case.scores(case.load(folder), log().head(5))


@pytest.mark.parametrize(("kind", "field", "value"), absurd(ABSURD))
def test_an_absurd_value_in_the_record_is_refused(kind, field, value, tmp_path):
    with pytest.raises(ModelFormatError):
        load_with(kind, field, value, tmp_path / "saved")


@pytest.mark.parametrize(("kind", "field", "value"), absurd(ABSURD_FAULTS))
def test_an_absurd_value_in_the_record_is_refused_too(kind, field, value, tmp_path):
    with pytest.raises(ModelFormatError):
        load_with(kind, field, value, tmp_path / "saved")
