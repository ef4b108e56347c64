"""Evaluation: what is measured on which windows, and what is said where nothing can be measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stormpetrel.answers.studies.trace_study import evaluation_answer
from stormpetrel.errors import ModelError
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, MIXED_JOB, UNKNOWN_JOB, mpi
from stormpetrel.records.windows import join_windows
from stormpetrel.traces.evaluation import FIGURES, PUBLISHED, evaluate, why_not, windows_per_second
from stormpetrel.traces.networks.architecture import Architecture
from tests.traces.flat_scorer import FlatScorer
from tests.traces.small import STEPS, small_windows

TRAIN = small_windows(0, steps=8 * STEPS)
TEST = join_windows([small_windows(seed, name=name, steps=8 * STEPS) for seed, name in ((1, "first"), (2, "second"))])
ENSEMBLE = {Architecture.VANILLA: [FlatScorer(), FlatScorer(offset=0.25)]}


def found(test=None, **changes):
    return as_it_is() if test is None and not changes else evaluate(ENSEMBLE, TRAIN, TEST if test is None else test, **changes)


@cache
def as_it_is():
    return evaluate(ENSEMBLE, TRAIN, TEST)


def with_job(windows, rows, job):
    changed = windows.job.copy()
    changed[rows] = job
    return replace(windows, job=changed)


def test_errors_are_means_over_the_windows_of_each_kind_and_spread_over_the_models():
    figures = found().models[Architecture.VANILLA]
    iowait = TEST.rates[:, :, 2].mean(axis=1)
    normal, anomalous = iowait[~TEST.is_anomalous()].mean(), iowait[TEST.is_anomalous()].mean()
    assert figures.re_normal.mean == pytest.approx(normal + 0.125, abs=1e-6) and figures.re_normal.n == 2
    assert figures.re_normal.std == pytest.approx(0.125)
    assert figures.re_anomalous.mean == pytest.approx(anomalous + 0.125, abs=1e-6)
    assert figures.roc_auc.mean == 1.0 and figures.models == 2


def test_the_silhouette_is_of_job_types():
    scrambled = replace(TEST, job=np.random.default_rng(0).permutation(TEST.job))
    assert found().models[Architecture.VANILLA].silhouette.mean > 0.5
    assert found(scrambled).models[Architecture.VANILLA].silhouette.mean < 0.1


def test_windows_in_which_a_thread_changed_hands_count_nowhere():
    bad = np.flatnonzero(TEST.is_anomalous())
    mixed = found(with_job(TEST, bad[:5], MIXED_JOB))
    assert mixed.mixed_windows == 5
    assert mixed.models[Architecture.VANILLA].by_job_type[BAD_IO].windows == len(bad) - 5
    assert mixed.models[Architecture.VANILLA].re_normal == found().models[Architecture.VANILLA].re_normal


def test_windows_of_unknown_type_are_normal_and_have_no_say_in_the_silhouette():
    idle = np.flatnonzero(TEST.job_types() == IDLE)
    unknown = found(with_job(TEST, idle, UNKNOWN_JOB)).models[Architecture.VANILLA]
    without = found(TEST.take(TEST.job_types() != IDLE)).models[Architecture.VANILLA]
    assert unknown.re_normal.mean == pytest.approx(found().models[Architecture.VANILLA].re_normal.mean)
    assert unknown.silhouette.mean == pytest.approx(without.silhouette.mean, abs=0.03)
    assert "" in unknown.by_job_type


def test_without_anomalies_nothing_is_said_of_them():
    calm = found(TEST.of_normal())
    figures = calm.models[Architecture.VANILLA]
    assert figures.re_anomalous is None and figures.roc_auc is None and figures.re_normal is not None
    assert calm.baselines["mean_iowait"]["roc_auc"] is None and calm.baselines["mean_iowait"]["recall"] is None
    assert calm.baselines["pca"]["re_anomalous"] is None


def test_one_job_type_has_no_silhouette():
    only = found(TEST.take(TEST.job_types() == GOOD_IO))
    assert only.models[Architecture.VANILLA].silhouette is None and only.baselines["pca"]["silhouette"] is None


def test_errors_are_told_per_job_type_and_per_run():
    figures = found().models[Architecture.VANILLA]
    assert set(figures.by_job_type) == {mpi(4), GOOD_IO, BAD_IO, IDLE}
    spread = figures.by_job_type[BAD_IO]
    assert list(spread.quantiles) == sorted(spread.quantiles) and len(spread.sample) <= 200
    assert spread.mean > figures.by_job_type[IDLE].mean
    assert set(figures.per_run) == {"first", "second"}
    assert figures.re_normal.mean == pytest.approx(np.mean([run.mean for run in figures.per_run.values()]))


def test_the_iowait_rule_is_judged_at_a_threshold_of_the_training_windows():
    rule = found().baselines["mean_iowait"]
    assert rule["roc_auc"] == 1.0 and rule["recall"] == 1.0 and rule["false_alarm_share"] == 0.0
    shifted = replace(TEST, rates=TEST.rates * 0.0 + 0.25)  # all alike: the rule of the training windows finds nothing
    assert found(shifted).baselines["mean_iowait"]["recall"] == 0.0


def test_pca_has_as_many_components_as_an_embedding_has_numbers():
    pca = found().baselines["pca"]
    assert pca["components"] == 3 and pca["re_normal"] < pca["re_anomalous"]


def test_the_same_seed_gives_the_same_figures():
    assert evaluation_answer(found(seed=3)) == evaluation_answer(found(seed=3))


def test_the_json_names_every_figure_and_what_could_not_be_judged():
    why = {Architecture.JOB_GNN: "no jobs"}
    told = evaluation_answer(found(why=why)).model_dump()
    assert set(told["model"]["vanilla"]) == set(FIGURES) and told["model"]["vanilla"]["re_normal"]["n"] == 2
    assert told["model"]["job_gnn"] is None and told["why"] == {"job_gnn": "no jobs"}
    assert set(told["by_job_type"]["vanilla"][BAD_IO]) == {"windows", "mean", "p05", "p25", "p50", "p75", "p95"}
    assert set(told["per_run"]["vanilla"]) == {"first", "second"}
    assert set(told["baselines"]) == {"mean_iowait", "pca"}
    json.dumps(told, allow_nan=False)


def test_the_job_gnn_needs_jobs_on_both_sides():
    unknown = with_job(TEST, slice(None), UNKNOWN_JOB)
    assert "No thread is known" in why_not(Architecture.JOB_GNN, TRAIN, unknown)
    assert not why_not(Architecture.JOB_GNN, TRAIN, TEST) and not why_not(Architecture.NODE_GNN, unknown)


def test_test_windows_that_are_all_anomalous_are_refused():
    with pytest.raises(ModelError, match="No test window is normal"):
        found(TEST.take(TEST.is_anomalous()))


def test_speed_is_windows_per_second_of_cpu():
    assert windows_per_second(FlatScorer(), TEST, at_least_s=0.02) > 1000


def test_the_published_table_is_that_of_the_paper():
    assert [PUBLISHED[kind]["re_normal"].mean for kind in PUBLISHED] == [0.0064, 0.0122, 0.0069]
    assert [PUBLISHED[kind]["re_anomalous"].mean for kind in PUBLISHED] == [0.3543, 0.3642, 0.3733]
    assert [PUBLISHED[kind]["silhouette"].mean for kind in PUBLISHED] == [0.7503, 0.6849, 0.6694]
