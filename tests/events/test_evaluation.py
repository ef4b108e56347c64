"""Evaluation: every model by the same rules, and figures over seeds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.events.evaluation import (
    MODEL_NAMES,
    Contestant,
    Run,
    contestants,
    judge_contestant,
    judge_contestants,
    merged,
    summary,
)
from stormpetrel.events.event_metrics import Caught
from stormpetrel.records.event_series import ANOMALY
from tests.events.rhythmic import small_dataset


@pytest.fixture(scope="module")
def dataset():
    return small_dataset()


class Spy:
    """Scores by the third kind, and remembers what it was shown."""

    history_buckets = 0

    def fit(self, series, *, progress=None):
        self.fitted = series
        return self

    def score(self, series):
        self.scored = series
        return series.counts[:, 2].astype(float)


def test_a_model_is_trained_on_the_training_part_and_scores_everything_without_labels(dataset):
    spy = Spy()
    judged = judge_contestant(dataset, Contestant("seasonal", lambda _seed: spy))
    assert len(spy.fitted) == len(dataset.train) and not (spy.fitted.label == ANOMALY).any()
    assert len(spy.scored) == 12 * 168 and not (spy.scored.label == ANOMALY).any()
    assert judged.figures.recall_at_one_per_week == 1.0 and judged.figures.pr_auc > 0.9


def test_only_models_that_learn_from_labels_are_shown_them(dataset):
    for name, shown in (("xgboost", True), ("supervised", True), ("combined", True), ("iforest", False), ("unsupervised", False)):
        spy = Spy()
        judge_contestant(dataset, Contestant(name, lambda _seed, spy=spy: spy))
        assert (spy.fitted.label == ANOMALY).any() == shown, name


def test_the_threshold_is_that_of_calm_operation_although_outages_are_not_told(dataset):
    found = judge_contestant(dataset, Contestant("seasonal", lambda _seed: Spy())).figures
    calm = dataset.calm.counts[:, 2]
    assert calm.mean() < found.threshold and (calm > found.threshold).sum() <= 2 * 24
    assert found.threshold < dataset.test.counts[:, 2].max()


def test_a_model_that_fails_is_told_with_its_error_and_the_others_go_on(dataset):
    def no_model(_seed):
        raise ModelError("There is no labelled outage.", hint="Label some.")

    def broken_model(_seed):
        raise ZeroDivisionError("division by zero")

    those = [Contestant("supervised", no_model), Contestant("combined", broken_model), *contestants(["seasonal"])]
    found = judge_contestants(dataset, those)
    assert found["supervised"].error == "There is no labelled outage. Label some."
    assert found["combined"].error == "ZeroDivisionError: division by zero"
    assert found["seasonal"].figures.pr_auc > 0.5


def test_progress_names_the_model(dataset):
    told = []
    judge_contestants(dataset, contestants(["seasonal", "pca"]), progress=lambda share, words: told.append((share, words)))
    assert told == [(0.0, "made, seed 0: seasonal"), (0.5, "made, seed 0: pca")]


def test_an_unknown_model_is_refused_by_name():
    with pytest.raises(UsageError, match=r"Unknown model 'lstm'.*supervised"):
        contestants(["lstm"])
    assert [one.name for one in contestants(["pca", "supervised"])] == ["supervised", "pca"]


def run(model="pca", *, seed=0, area=0.5, dataset="made", error="", caught=()):
    figures = {} if error else {"pr_auc": area, "roc_auc": None}
    return Run(dataset, seed, model, figures, caught, error, fit_s=2.0)


def test_figures_over_seeds_are_mean_std_and_n():
    found = summary([run(area=0.4), run(seed=1, area=0.6)])["datasets"]["made"]["baselines"]["pca"]
    assert found["pr_auc"] == {"mean": 0.5, "std": pytest.approx(0.1), "n": 2}
    assert found["roc_auc"] == {"mean": None, "std": None, "n": 0} and "errors" not in found


def test_models_and_baselines_stand_apart_in_their_order():
    runs = [run("xgboost"), run("unsupervised"), run("supervised")]
    found = summary(runs, order=MODEL_NAMES)["datasets"]["made"]
    assert list(found["models"]) == ["supervised", "unsupervised"] and list(found["baselines"]) == ["xgboost"]


def test_a_failed_seed_is_told_and_counts_in_no_figure():
    found = summary([run(), run(seed=1, error="too few hours")])["datasets"]["made"]["baselines"]["pca"]
    assert found["pr_auc"]["n"] == 1 and found["errors"] == {"1": "too few hours"}


def test_outages_of_all_seeds_are_taken_together():
    runs = [run(seed=seed, caught=(Caught("storm", "mild", delay),)) for seed, delay in enumerate((None, 2.0, 4.0))]
    cell = summary(runs)["datasets"]["made"]["by_outage"]["storm"]["mild"]["pca"]
    assert cell == {"recall": pytest.approx(2 / 3), "delay_hours": 3.0, "n": 3}


def test_runs_survive_a_file_and_newer_ones_replace_older():
    older = [run(area=0.1, caught=(Caught("storm", "mild", None),)), run(seed=1)]
    read = [Run.of_json(json.loads(json.dumps(one.as_json()))) for one in older]
    assert read == older
    both = merged(read, [run(area=0.9)])
    assert len(both) == 2 and both[0].figures["pr_auc"] == 0.9


def test_judged_figures_become_a_run(dataset):
    judged = judge_contestants(dataset, contestants(["seasonal"]))["seasonal"]
    made = Run.of("made", 3, "seasonal", judged)
    assert made.figures["pr_auc"] == judged.figures.pr_auc and len(made.caught) == len(dataset.outages)
    json.dumps(made.as_json(), allow_nan=False)
    assert np.isfinite(made.fit_s)
