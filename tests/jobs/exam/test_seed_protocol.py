from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.jobs.exam.seed_models import RECIPES
from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE, seed_columns, table_one
from stormpetrel.records.jobs import job_frame
from stormpetrel.sources.formats import ReadOptions, open_source
from tests.builders import T0, read_all


def log(n=1000, seed=0):
    """A log where jobs of more than half an hour fail as a rule, and a tenth run into their limit and always fail."""
    rng = np.random.default_rng(seed)
    run = rng.integers(30, 3600, n)
    reached = rng.random(n) < 0.1
    bad = reached | ((run > 1800) & (rng.random(n) < 0.3))
    return job_frame(
        [
            {
                "cluster": "petrel", "job_id": k, "restart": 0, "user": f"u{k % 7}", "group": f"g{k % 3}", "cpus": 1 + k % 4,
                "submit_time": T0 + timedelta(minutes=k), "start_time": T0 + timedelta(minutes=k, seconds=60),
                "end_time": T0 + timedelta(minutes=k, seconds=60 + int(run[k])), "elapsed_s": float(run[k]),
                "time_limit_s": float(run[k]) if reached[k] else 7200.0, "state": "FAILED" if bad[k] else "COMPLETED",
            }
            for k in range(n)
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def jobs():
    return log()


@pytest.fixture(scope="module")
def table(jobs):
    return table_one(jobs, seed=0)


def test_every_recipe_has_a_line_for_training_and_test_and_gives_probabilities(table):
    assert {row.model for row in table.rows} == {*RECIPES, "rule_run_limit", "rule_near_limit"}
    assert [row.part for row in table.rows] == ["train", "test"] * (len(RECIPES) + 2)
    for truth, probability in table.forecasts.values():
        assert truth.size == probability.size == 200
        assert (probability >= 0).all() and (probability <= 1).all()


def test_a_line_says_what_the_forecast_says(table):
    truth, probability = table.forecasts["xgboost"]
    said, row = probability >= 0.5, table.row("xgboost")
    assert row.accuracy == pytest.approx((said == truth).mean())
    assert row.failed.recall == pytest.approx((said & truth).sum() / truth.sum())
    assert row.completed.precision == pytest.approx((~said & ~truth).sum() / (~said).sum())
    assert row.completed.f1 == pytest.approx(2 * (~said & ~truth).sum() / ((~said).sum() + (~truth).sum()))


def test_the_rule_finds_those_that_ran_into_their_limit_and_only_those(table):
    row = table.row("rule_run_limit")
    assert row.failed.precision == 1.0
    assert 0.2 < row.failed.recall < 0.8


def test_weights_and_oversampling_raise_recall(table):
    plain = table.row("xgboost").failed.recall
    assert table.row("xgboost_weighted").failed.recall > plain
    assert table.row("xgboost_random_oversampling").failed.recall > plain


def test_the_limit_as_a_column_spells_out_the_rule(jobs, table):
    told = table_one(jobs, recipes=["xgboost"], with_limit=True)
    assert "time_limit_s" in told.columns and "time_limit_s" not in table.columns
    assert told.row("xgboost").failed.f1 > table.row("xgboost").failed.f1 + 0.1


def test_columns_that_no_job_has_are_left_out(table):
    assert not {"mem_bytes", "node"} & set(table.columns)
    assert {"run_time_s", "cpu_time_s", "user_id", "submit_quarter"} <= set(table.columns)


def test_the_profile_is_a_column_and_is_learnt_from_training_rows_alone(jobs, table):
    assert "profile" in table.columns
    assert "profile" not in table_one(jobs, recipes=["decision_tree"], with_profile=False).columns
    cut = jobs["submit_time"].quantile(0.8, "nearest")
    strange = jobs.with_columns(elapsed_s=pl.when(pl.col("submit_time") >= cut).then(9e6).otherwise("elapsed_s"))
    rows = [table_one(log, split="time", recipes=["decision_tree"]).row("decision_tree", "train") for log in (jobs, strange)]
    assert rows[0] == rows[1]  # what later jobs are like changes nothing that was learnt before


def test_a_seed_repeats(jobs, table):
    again = table_one(jobs, seed=0, recipes=["xgboost"])
    assert again.row("xgboost") == table.row("xgboost")


def test_a_time_split_tests_later_jobs_and_trains_on_none_that_had_not_ended(jobs):
    table = table_one(jobs, split="time", recipes=["decision_tree"])
    cut = jobs["submit_time"].quantile(0.8, "nearest")
    assert table.row("decision_tree").jobs == jobs.filter(pl.col("submit_time") >= cut).height
    over = jobs.filter((pl.col("submit_time") < cut) & (pl.col("end_time") < cut)).height
    assert table.row("decision_tree", "train").jobs == over < 800


def test_jobs_under_two_minutes_and_dropped_states_are_left_out(jobs):
    short = table_one(jobs, recipes=["decision_tree"], shortest_s=120.0)
    kept = jobs.filter(pl.col("elapsed_s") >= 120).height
    assert sum(row.jobs for row in short.rows if row.model == "decision_tree") == kept < jobs.height
    with pytest.raises(UsageError, match="0 failed"):
        table_one(jobs, failure_states=["TIMEOUT"], dropped_states=["FAILED"], recipes=["decision_tree"])


def test_no_more_rows_are_taken_than_asked_for_and_progress_is_told(jobs):
    told = []
    table = table_one(jobs, recipes=["decision_tree"], max_rows=500, progress=lambda *step: told.append(step))
    assert sum(row.jobs for row in table.rows if row.model == "decision_tree") == 500
    assert told[0] == ("Decision tree", 0, 1) and told[-1] == ("", 1, 1)


def test_recipes_in_processes_give_what_one_process_gives(jobs):
    alone, apart = (table_one(jobs, recipes=["xgboost", "decision_tree"], engine=Engine(workers)) for workers in (1, 2))
    assert apart.rows == alone.rows


def test_the_shares_of_confidence_sum_to_one(table):
    shares = table.confidence("xgboost_active_learning").group_by("outcome").agg(pl.col("share").sum()).sort("outcome")
    assert shares["outcome"].to_list() == ["COMPLETED", "FAILED"]
    assert shares["share"].to_list() == pytest.approx([1.0, 1.0])


def test_the_rounds_of_active_learning_are_kept(table):
    assert set(table.histories) == {"xgboost_active_learning"}
    assert table.histories["xgboost_active_learning"].height > 2


def test_the_printed_table_has_our_names():
    assert all(RECIPES[name].title == row.title and row.model == name for name, row in SEED_TABLE_ONE.items())
    assert SEED_TABLE_ONE["xgboost_active_learning"].failed.f1 == 0.82


def test_columns_are_null_where_the_log_is_silent():
    row = {"cluster": "c", "job_id": 1, "submit_time": T0, "restart": 0, "req_cpus": 3, "elapsed_s": 10.0, "uid": 5}
    columns = seed_columns(job_frame([row])).to_dicts()[0]
    assert columns["cpu_time_s"] == 30.0 and columns["user_id"] == 1
    assert columns["wait_time_s"] is None and columns["mem_bytes"] is None and columns["gid"] is None
    assert (columns["submit_month"], columns["submit_day_of_week"], columns["submit_quarter"], columns["submit_hour"]) == (
        3,
        1,
        1,
        8,
    )


def test_unknown_names_are_refused_with_advice(jobs):
    with pytest.raises(UsageError, match="Did you mean 'xgboost_smote'"):
        table_one(jobs, recipes=["xgboost_smot"])
    with pytest.raises(UsageError, match="Known: random, time"):
        table_one(jobs, split="odd")


@pytest.fixture(scope="module")
def curie(public_logs):
    path = public_logs / "jobs/CEA-Curie-2011-2.1-cln.swf.gz"
    return read_all(open_source(str(path), None, ReadOptions()))[0]


ON_CURIE = {"failure_states": ["FAILED"], "dropped_states": ["CANCELLED"], "recipes": ["xgboost"], "shortest_s": 120.0}


@pytest.mark.realdata
def test_a_tenth_of_curie_is_foretold_under_the_random_split_and_not_under_the_time_split(curie):
    some = curie.gather_every(10)
    random = table_one(some, split="random", with_limit=True, **ON_CURIE)
    assert random.row("rule_run_limit").failed.f1 == pytest.approx(0.835, abs=0.01)
    assert random.row("xgboost").failed.f1 > 0.55 and random.row("xgboost").roc_auc > 0.93
    later = table_one(some, split="time", **ON_CURIE)
    assert later.row("xgboost").failed.f1 < 0.35 and later.row("xgboost").roc_auc < 0.75


@pytest.mark.slow
@pytest.mark.realdata
def test_curie_gives_the_known_figures_and_the_time_split_takes_them_away(curie):
    random = table_one(curie, split="random", with_limit=True, **ON_CURIE)
    assert random.row("rule_run_limit").failed.f1 == pytest.approx(0.852, abs=0.01)
    assert random.row("xgboost").failed.f1 == pytest.approx(0.81, abs=0.03)
    assert random.row("xgboost").roc_auc == pytest.approx(0.988, abs=0.005)
    later = table_one(curie, split="time", **ON_CURIE)
    assert later.row("xgboost").failed.f1 < 0.35 and later.row("xgboost").roc_auc < 0.75
