from datetime import timedelta

from tests.parts import need

need("torch")

import numpy as np
import polars as pl
import pytest
from benchmarks.jobs_sequence import NETWORKS, Risks, Study, best_weight, figures_of
from benchmarks.outcome_network import NetworkSettings
from benchmarks.past_events import ENDED, FAILED, MOST_ENDED, MOST_OPEN, NONE, PENDING, RUNNING, PastEvents

from stormpetrel.jobs.exam.evaluation import evaluate
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from tests.traces.small import one_torch_thread

SETTINGS = TrainingSettings()
QUICK = {"width": 8, "epochs": 1.0}


@pytest.fixture(autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    spec = ClusterSpec(nodes=4, cores_per_node=8, users=12, jobs=1500, days=None, seed=3)
    return pl.concat(simulate(spec)).sort("submit_time", "job_id", "array_task", "restart", maintain_order=True)


@pytest.fixture(scope="module")
def study(jobs) -> Study:
    return Study.of(jobs, SETTINGS)


def with_other_outcomes(jobs: pl.DataFrame, now) -> pl.DataFrame:
    """The same jobs up to `now`: what ends at or after it ends otherwise and later, what starts then starts later."""
    later, starts = pl.col("end_time") >= now, pl.col("start_time") >= now
    other = pl.col("state").cast(pl.String).replace({"COMPLETED": "FAILED", "FAILED": "COMPLETED", "TIMEOUT": "COMPLETED"})
    return jobs.with_columns(
        state=pl.when(later & pl.col("start_time").is_not_null()).then(other).otherwise("state").cast(jobs.schema["state"]),
        end_time=pl.when(later).then(pl.col("end_time") + timedelta(hours=3)).otherwise("end_time"),
        start_time=pl.when(starts).then(pl.col("start_time") + timedelta(hours=1)).otherwise("start_time"),
        elapsed_s=pl.when(later).then(pl.col("elapsed_s") * 1.5).otherwise("elapsed_s"),
    )


def events_of(jobs: pl.DataFrame) -> np.ndarray:
    past = PastEvents.of(jobs, SETTINGS)
    return past.numbers(past.visible())


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_outcomes_that_come_after_a_submission_change_nothing_in_its_events_or_earlier_ones(jobs, share):
    row = int(share * jobs.height)
    changed = with_other_outcomes(jobs, jobs["submit_time"][row])
    same = (jobs["submit_time"] <= jobs["submit_time"][row]).to_numpy()
    before, after = events_of(jobs), events_of(changed)
    assert np.array_equal(before[same], after[same])
    assert not np.array_equal(before, after), "the outcomes that were changed are seen by later submissions"


@pytest.mark.parametrize(("name", "past"), [("gru", "gru"), ("attention", "attention"), ("gru_features", "gru")])
def test_outcomes_that_come_after_a_submission_change_no_prediction_at_it(jobs, study, name, past):
    tested = np.flatnonzero(study.split.test)
    row = int(tested[tested.size // 2])
    changed = Study.of(with_other_outcomes(jobs, jobs["submit_time"][row]), SETTINGS)
    assert changed.split.cut == study.split.cut
    test = np.zeros(jobs.height, dtype=bool)
    test[tested[tested <= row]] = True
    network = NetworkSettings(past=past, **QUICK)
    before = study.network(name, network, study.split.train, test)
    after = changed.network(name, network, changed.split.train, test)
    assert np.array_equal(study.split.train, changed.split.train) and np.array_equal(before, after)


def test_an_event_is_the_end_of_a_job_or_the_latest_that_is_known_of_an_open_one(jobs):
    past = PastEvents.of(jobs, SETTINGS)
    rows = past.visible()
    numbers = past.numbers(rows)
    now = past.submit[:, None]
    there = rows != NONE
    kinds = numbers[..., [ENDED, RUNNING, PENDING]].astype(bool)
    over, runs = past.end[rows] < now, past.start[rows] < now
    expected = np.stack([over, ~over & runs, ~over & ~runs], axis=-1)
    assert np.array_equal(kinds[there], expected[there]) and not numbers[~there].any()
    assert (kinds.sum(axis=-1)[there] == 1).all() and (numbers[..., FAILED] <= numbers[..., ENDED]).all()
    assert (past.user[rows] == past.user[:, None])[there].all()


def test_the_latest_jobs_of_the_user_are_seen_and_no_others(jobs):
    past = PastEvents.of(jobs, SETTINGS)
    rows = past.visible()
    for job in range(0, jobs.height, 97):
        earlier = np.flatnonzero((past.user == past.user[job]) & (np.arange(jobs.height) < job))
        over = past.end[earlier] < past.submit[job]
        ended = earlier[over][np.argsort(past.end[earlier[over]], kind="stable")][-MOST_ENDED:]
        assert set(rows[job][rows[job] != NONE]) == {*ended, *earlier[~over][-MOST_OPEN:]}


def test_trees_and_rules_are_those_of_jobs_evaluate(jobs, study):
    evaluation = evaluate(jobs, SETTINGS, moments=[Moment.SUBMIT], protocol="time")
    result = evaluation.at[Moment.SUBMIT]
    assert np.array_equal(np.flatnonzero(study.split.test), result.rows)
    forecasts = {**study.forecasts(0), **study.rules()}
    _, truth = study.truth()
    for ours, theirs in {"trees": "model", "xgboost": "xgboost", "last_outcome": "last_outcome"}.items():
        risks = study.risks(forecasts[ours])
        assert np.allclose(risks.judged, result.probability(theirs), atol=1e-6)
        threshold = result.forecasts[theirs].thresholds[0]
        found = figures_of(truth, risks.judged, threshold)
        assert found["pr_auc"] == pytest.approx(result.forecasts[theirs].judge(result.truth)["pr_auc"], abs=1e-4)


def test_a_network_of_features_alone_does_not_read_the_events(study):
    settings = NetworkSettings(past="none", **QUICK)
    test = study.split.test
    one = study.network("features_network", settings, study.split.train, test)
    blind = Study(study.labelled, study.settings, np.zeros_like(study.events), study.split, study.inner)
    assert np.array_equal(one, blind.network("features_network", settings, study.split.train, test))
    assert NETWORKS["features_network"].past == "none"


def test_what_is_only_noise_gets_no_weight():
    rng = np.random.default_rng(0)
    risk = rng.random(4000)
    truth = rng.random(4000) < risk
    exact, noise = Risks(risk, risk), Risks(rng.random(4000), risk)
    assert best_weight(truth, exact, noise) == 0.0
    assert best_weight(truth, noise, exact) == 1.0
