"""The contract that every model keeps: every model × every named check.

A new model comes in as one more entry of MODELS; a new promise as one more test.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.events.choose import MODELS as EVENT_MODELS
from stormpetrel.events.choose import load as load_event_model
from stormpetrel.events.choose import make as make_event_model
from stormpetrel.events.contract import SavedModel
from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.needs.features import feature_names as needs_features
from stormpetrel.jobs.needs.forecast import LEVELS as QUANTILES_OF_NEED
from stormpetrel.jobs.needs.model import NeedsModel
from stormpetrel.jobs.needs.past_use import GPU_MEMORY, RESOURCES, PastUse, use_table
from stormpetrel.jobs.needs.training import NeedsTraining, use_log
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.profiles import END, SUBMIT, JobProfiles
from stormpetrel.jobs.training import TrainingSettings, fit_at, label_jobs
from stormpetrel.jobs.wait.model import WaitModel
from stormpetrel.jobs.wait.queue_state import QueueState, queue_features, wait_table
from stormpetrel.jobs.wait.queue_state import feature_names as wait_features
from stormpetrel.jobs.wait.training import last_of_shape, queue_log, train_waits
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.traces import UNKNOWN_JOB
from stormpetrel.records.windows import Windows
from stormpetrel.synth.choose import GENERATORS, load_generator, new_generator
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.traces.detector.detector import ARRAYS, LEVELS, DetectorSettings, TraceDetector
from stormpetrel.traces.networks.architecture import WEIGHTS, Architecture
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from tests.events.rhythmic import broken, rhythmic_series
from tests.jobs.logs import make_log, one_thread, sealed
from tests.parts import need
from tests.synth.made_workloads import site_workload
from tests.traces.small import one_torch_thread, small_windows, tiny


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), one_torch_thread():
        yield


@cache
def log() -> pl.DataFrame:
    return make_log(400, 1)


@cache
def windows(seed: int) -> Windows:
    return small_windows(seed)


class JobsCase:
    """A model of jobs: its data are a log, and a row is a job."""

    rtol = 0.0  # each job on its own to the last bit

    def some(self, rows: int | None = None) -> pl.DataFrame:
        return log() if rows is None else log().head(rows)

    def strange(self) -> pl.DataFrame:
        return log().head(1).with_columns(user=pl.lit("stranger \u202e;rm -rf /"), account=pl.lit("new"), job_name=pl.lit(""))

    def with_missing(self, *kept: str) -> pl.DataFrame:
        """Seven jobs with nothing but these columns; none is cancelled, for without a start it would be one that never ran."""
        empty = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in JOB_SCHEMA.items() if name not in kept]
        return log().filter(pl.col("state") != "CANCELLED").head(7).with_columns(empty)


@dataclass(frozen=True)
class OutcomeCase(JobsCase):
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
class ProfilesCase(JobsCase):
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


@dataclass(frozen=True)
class NeedsCase(JobsCase):
    """What jobs need of one resource, of which nothing is known but their requests."""

    resource: str
    record: str = "model.json"
    weights: str = "forests.npz"
    features: tuple[str, ...] = needs_features()

    def fit(self, seed: int = 0) -> NeedsModel:
        used = {"cpu_time_s": pl.col("elapsed_s") * 2, "req_gpus": pl.lit(4, pl.Int64), "busy_gpus": pl.lit(1.5)}
        jobs = log().with_columns(**used, gpu_mem_bytes=pl.col("max_rss_bytes"))
        return NeedsTraining(use_log(jobs, self.resource), seed).fit_at(np.inf, tuned=False)

    def load(self, folder: Path) -> NeedsModel:
        return NeedsModel.load(folder)

    def scores(self, model: NeedsModel, jobs: pl.DataFrame) -> np.ndarray:
        jobs = jobs.with_columns(req_gpus=pl.lit(4, pl.Int64))
        readings = PastUse(self.resource, stand_in={}).read(jobs, [0.0] * jobs.height)
        return model.forecast(readings, use_table(jobs, self.resource), jobs).quantiles(QUANTILES_OF_NEED)


@dataclass(frozen=True)
class WaitCase(JobsCase):
    """How long jobs wait in a queue of which nothing is known."""

    record: str = "model.json"
    weights: str = "forest.npz"
    features: tuple[str, ...] = wait_features()

    def fit(self, seed: int = 0) -> WaitModel:
        return train_waits(queue_log(log()), log()["submit_time"].max().timestamp(), seed=seed)

    def load(self, folder: Path) -> WaitModel:
        return WaitModel.load(folder)

    def scores(self, model: WaitModel, jobs: pl.DataFrame) -> np.ndarray:
        readings, table = QueueState(stand_in={}).read(jobs, 0.0), wait_table(jobs)
        values = queue_features(readings, jobs, table, table.limit_s)
        return model.quantiles(values, last_of_shape(readings), model.levels_)


@dataclass(frozen=True)
class AutoencoderCase:
    """An autoencoder of CPU windows: its data are windows, sixteen threads on two nodes at each moment."""

    architecture: Architecture
    record: str = "model.json"
    weights: str = WEIGHTS
    rtol: float = 1e-4  # the order of sums in a product of matrices depends on its size

    def fit(self, seed: int = 0) -> TraceAutoencoder:
        need("torch")
        return TraceAutoencoder(tiny(self.architecture, seed=seed)).fit(windows(0), windows(1), device="cpu")

    def load(self, folder: Path) -> TraceAutoencoder:
        return TraceAutoencoder.load(folder)

    def some(self, rows: int | None = None) -> Windows:
        """Whole moments, unless it is fewer than the threads of one: a GNN hears all threads of a node."""
        size = rows if rows is None or rows < 16 else rows // 16 * 16
        return windows(2).take(slice(0, size))

    def strange(self) -> Windows:
        """A window of an unseen node and of a job of which nobody knows."""
        return replace(self.some(1), nodes=("stranger \u202e;rm -rf /", "n1"), job=np.array([UNKNOWN_JOB], dtype=np.int32))

    def with_missing(self, *kept: str) -> Windows:
        """Seven windows with steps that nobody saw; what is kept beside them does not matter."""
        some = self.some(7)
        rates = some.rates.copy()
        rates[:, 3] = np.nan
        return replace(some, rates=rates)

    def scores(self, model: TraceAutoencoder, data: Windows) -> np.ndarray:
        return np.column_stack([model.score(data), model.embed(data)])


@dataclass(frozen=True)
class DetectorCase(AutoencoderCase):
    """The detector of unusual windows: the same windows, scored for threads, jobs and nodes."""

    architecture: Architecture = Architecture.VANILLA
    weights: str = ARRAYS
    rtol: float = 1e-9  # only what came before is looked at

    def fit(self, seed: int = 0) -> TraceDetector:
        need("safetensors")
        return TraceDetector(DetectorSettings(seed=seed)).fit(windows(0))

    def load(self, folder: Path) -> TraceDetector:
        return TraceDetector.load(folder)

    def scores(self, model: TraceDetector, data: Windows) -> np.ndarray:
        return np.column_stack([model.score(data, level) for level in LEVELS])


@cache
def counts() -> EventSeries:
    return broken(rhythmic_series(6), (300, 310), (700, 706))


@dataclass(frozen=True)
class EventCase:
    """A model of event counts: a row is a bucket, whose score sees that bucket and those before it."""

    name: str
    weights: str = "model.json"
    record: str = "model.json"
    rtol: float = 1e-6

    def fit(self, seed: int = 0) -> SavedModel:
        made: Any = make_event_model(self.name, seed=seed)
        if self.weights == WEIGHTS:
            need("torch")
            made.settings = replace(made.settings, sequence=6, hidden=6, max_epochs=2)
        return made.fit(counts())

    def load(self, folder: Path) -> SavedModel:
        return load_event_model(folder)

    def some(self, rows: int | None = None) -> EventSeries:
        """Fifty and more are taken eightfold: there is no score before there is a day of counts."""
        return counts() if rows is None else counts().take(0, rows if rows < 50 else 8 * rows)

    def strange(self) -> EventSeries:
        """Another kind of event, in another zone, and a thousand times as many."""
        return replace(
            counts(), kinds=(*counts().kinds[:2], "stranger \u202e;rm -rf /"), zone="Asia/Tokyo", counts=1000 * counts().counts
        )

    def with_missing(self, *kept: str) -> EventSeries:
        """Seven buckets that nobody saw."""
        return replace(self.some(7), counts=np.full((7, 3), np.nan))

    def scores(self, model: SavedModel, series: EventSeries) -> np.ndarray:
        return model.score(series).reshape(-1, 1)


@dataclass(frozen=True)
class GeneratorCase:
    """A generator of workloads: a row is a job that it makes; nothing is handed in but how many."""

    name: str
    weights: str = "model.json"
    record: str = "model.json"

    def fit(self, seed: int = 0) -> WorkloadGenerator:
        if self.weights == WEIGHTS:
            need("torch")
        settings: dict[str, Any] = {"epochs": 1} if self.weights == WEIGHTS else {}
        return new_generator(self.name, seed=seed, **settings).fit(site_workload(600))

    def load(self, folder: Path) -> WorkloadGenerator:
        return load_generator(folder)

    def some(self, rows: int | None = None) -> Wanted:
        return Wanted(jobs=100 if rows is None else rows, seed=7)

    def scores(self, model: WorkloadGenerator, wanted: Wanted) -> np.ndarray:
        made = sample(model, wanted).jobs.with_columns(pl.col("submit_time").dt.epoch("us"))
        return made.select("submit_time", "cores", "runtime_s").cast(pl.Float64).to_numpy()


MODELS: dict[str, Any] = {
    **{f"outcome at {moment}": OutcomeCase(moment) for moment in MOMENTS},
    "profiles at the end": ProfilesCase(END),
    "profiles at submission": ProfilesCase(SUBMIT),
    **{f"needs of {resource}": NeedsCase(resource) for resource in RESOURCES if resource != GPU_MEMORY},
    "waits": WaitCase(),
    **{f"autoencoder {architecture}": AutoencoderCase(architecture) for architecture in Architecture},
    "detector of windows": DetectorCase(),
    **{f"events {name}": EventCase(name) for name in ("unsupervised", "combined")},
    **{f"events {name}": EventCase(name, WEIGHTS) for name in ("supervised",)},
    "generator sessions": GeneratorCase("sessions", "arrays.npz"),
    **{f"generator {name}": GeneratorCase(name) for name in ("gaussian-copula", "private")},
    **{f"generator {name}": GeneratorCase(name, WEIGHTS) for name in ("ctgan", "tvae", "copulagan")},
}


@pytest.fixture(params=MODELS, scope="module")
def case(request):
    return MODELS[request.param]


@pytest.fixture(scope="module")
def model(case):
    return case.fit()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """The model as it was saved once: nobody changes it there."""
    folder = tmp_path_factory.mktemp("models") / "saved"
    model.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "saved"))


def test_every_model_that_a_site_can_have_is_here():
    events = {case.name for case in MODELS.values() if isinstance(case, EventCase)}
    generators = {case.name for case in MODELS.values() if isinstance(case, GeneratorCase)}
    assert events == set(EVENT_MODELS)
    assert generators == {name for name in GENERATORS if name != "rows" and not name.startswith("sdv-")}  # never saved; not ours


def only(chosen):
    return pytest.mark.parametrize("case", [name for name, one in MODELS.items() if chosen(one)], indirect=True, scope="module")


JUDGES = only(lambda case: not isinstance(case, GeneratorCase))  # a generator makes rows, and judges none
SEEDED = only(lambda case: case != GeneratorCase("private"))  # whose noise must not be known to anybody


@SEEDED
def test_the_same_seed_gives_the_same_result(case, model):
    np.testing.assert_array_equal(case.scores(case.fit(), case.some()), case.scores(model, case.some()))


def test_another_seed_gives_another_autoencoder():
    case = AutoencoderCase(Architecture.VANILLA)
    assert not np.allclose(case.scores(case.fit(1), case.some()), case.scores(case.fit(), case.some()))


def test_a_loaded_model_scores_as_the_saved_one(case, model, folder):
    np.testing.assert_array_equal(case.scores(case.load(folder), case.some()), case.scores(model, case.some()))


def test_a_loaded_model_is_saved_the_same_again(case, folder, tmp_path):
    case.load(folder).save(tmp_path / "again")
    assert (tmp_path / "again" / case.record).read_bytes() == (folder / case.record).read_bytes()


def test_nothing_in_a_saved_model_is_code(folder):
    assert {path.suffix for path in folder.iterdir()} <= {
        ".json",
        ".safetensors",
        ".onnx",
        ".npz",
    }  # the last is read without pickle
    for path in folder.glob("*.json"):
        json.loads(path.read_text(), parse_constant=pytest.fail)


def test_no_rows_have_no_scores(case, model):
    scores = case.scores(model, case.some(0))
    assert scores.shape[0] == 0 and scores.shape[1] == case.scores(model, case.some(3)).shape[1]


def test_one_row_has_one_score(case, model):
    assert case.scores(model, case.some(1)).shape[0] == 1


@JUDGES
def test_rows_are_scored_each_on_its_own(case, model):
    """Each job; each window, or with a GNN each node; each bucket, whatever comes after it."""
    few = case.scores(model, case.some(50))
    np.testing.assert_allclose(case.scores(model, case.some(100))[: len(few)], few, rtol=case.rtol, atol=case.rtol)


@JUDGES
@pytest.mark.parametrize("kept", [("submit_time",), ("submit_time", "state", "user"), ()], ids=["time only", "three", "none"])
def test_missing_values_everywhere_are_scored_or_refused(case, model, kept):
    """A job of which little is known is scored, a bucket that nobody saw has no score; a window with a gap is not a window."""
    if isinstance(case, AutoencoderCase):
        with pytest.raises(ModelError, match="not numbers"):
            case.scores(model, case.with_missing(*kept))
    else:
        scores = case.scores(model, case.with_missing(*kept))
        assert scores.shape[0] == 7 and not np.isinf(scores).any()


@JUDGES
def test_an_unseen_user_node_or_kind_of_event_is_scored(case, model):
    assert np.isfinite(case.scores(model, case.strange())[-1]).all()


@JUDGES
def test_other_columns_are_refused_or_scored_as_unknown(case, model, folder):
    if isinstance(case, OutcomeCase):
        features = case.features(log())
        fewer = replace(features, names=features.names[:-1], values=features.values[:, :-1])
        with pytest.raises(ModelFormatError):
            model.predict_proba(fewer)
    elif isinstance(case, AutoencoderCase):
        shorter = replace(case.some(3), rates=case.some(3).rates[:, :-2])
        with pytest.raises(ModelError, match="14 steps"):
            model.score(shorter)
    elif isinstance(case, NeedsCase | WaitCase):
        rewrite(folder / case.record, **with_features(folder / case.record, case.features[:-1]))
        with pytest.raises(ModelFormatError, match="other columns"):
            case.load(folder)
    elif isinstance(case, EventCase):  # what is not told of counts as never having happened
        assert np.isfinite(model.score(counts().of_kinds(("Submit",)))[-1])
    else:  # a profile goes by whatever is known of a job
        assert model.k_ > 1 and model.assign(pl.DataFrame({"other": [1.0, 2.0]})).to_list() == [None, None]


def with_features(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The part of a record that names its columns, with others in their place."""
    record = json.loads(path.read_text())
    if "features" in record:
        return {"features": list(names)}
    return {"metadata": record["metadata"] | {"features": list(names)}}


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


ABSURD_SETTINGS: tuple[dict[str, Any], ...] = (
    {"architecture": "lstm"}, {"architecture": "node_gnn"}, {"steps": 10**9}, {"steps": 4096, "hidden": 4096}, {"steps": "16"},
    {"channels": None}, {"channels": [8, 4]}, {"channels": [4, 8, 1e9]}, {"kernel": 4}, {"embedding": True},
    {"hidden": float("inf")}, {"learning_rate": float("nan")}, {"more": 1},
)  # fmt: skip
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
    "autoencoder": {
        "settings": (None, [], {}, *(tiny().record() | change for change in ABSURD_SETTINGS)),
        "history": (
            None,
            {},
            {"train": [1.0], "validation": []},
            {"train": [], "validation": []},
            {"train": "x", "validation": "y"},
        ),
        "data": (None, 5, []),
        "versions": (None, "1.0"),
        "files": ({}, {WEIGHTS: "00"}, {"../weights.safetensors": "00"}, None, []),
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


SMALLEST = {"outcome": "outcome at submit", "profiles": "profiles at the end", "autoencoder": "autoencoder vanilla"}


@pytest.fixture(scope="module")
def saved_of(tmp_path_factory):
    """The folder of the smallest model of each kind, made when it is first asked for."""

    @cache
    def saved_once(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind) / "saved"
        MODELS[SMALLEST[kind]].fit().save(folder)
        return folder

    return saved_once


def load_with(saved: Path, folder: Path, kind: str, field: str, value: Any) -> None:
    """Copy a model, write a value into its record, load it and use it."""
    case = MODELS[SMALLEST[kind]]
    shutil.copytree(saved, folder)
    record = json.loads((folder / case.record).read_text())
    if value == "NaN" and isinstance(record[field], list):
        value = (np.array(record[field]) * np.nan).tolist()
    rewrite(folder / case.record, **{field: value})
    case.scores(case.load(folder), case.some(5))


@pytest.mark.parametrize(("kind", "field", "value"), absurd(ABSURD))
def test_an_absurd_value_in_the_record_is_refused(saved_of, kind, field, value, tmp_path):
    with pytest.raises(ModelFormatError):
        load_with(saved_of(kind), tmp_path / "saved", kind, field, value)


@pytest.mark.parametrize(("kind", "field", "value"), absurd(ABSURD_FAULTS))
def test_an_absurd_value_in_the_record_is_refused_too(saved_of, kind, field, value, tmp_path):
    with pytest.raises(ModelFormatError):
        load_with(saved_of(kind), tmp_path / "saved", kind, field, value)
