"""Needs: past use with honest time, the model, and its evaluation beside the baselines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.evaluation import evaluate_needs
from stormpetrel.jobs.needs.features import narrowest
from stormpetrel.jobs.needs.past_use import PastUse, use_table
from stormpetrel.jobs.needs.training import train_needs
from stormpetrel.records.jobs import job_frame

T0 = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


def tasks(n: int, *, gap_s: float = 60.0, run_s: float = 30.0, request_gib: int | None = 64) -> pl.DataFrame:
    """n tasks of two applications that use about 2 and 8 GiB of the 64 that they ask for."""
    rng = np.random.default_rng(3)
    rows: list[dict[str, object]] = []
    for k in range(n):
        submit = T0 + timedelta(seconds=k * gap_s)
        used = int((2 if k % 2 else 8) * GIB * rng.uniform(0.9, 1.0))
        rows.append(
            {
                "cluster": "c", "job_id": k + 1, "submit_time": submit, "restart": 0, "user": "ada", "job_name": f"app{k % 2}",
                "start_time": submit, "end_time": submit + timedelta(seconds=run_s), "state": "COMPLETED", "elapsed_s": run_s,
                "req_mem_bytes": None if request_gib is None else request_gib * GIB, "max_rss_bytes": used, "cpus": 1,
                "time_limit_s": 3600.0,
            }
        )  # fmt: skip
    return job_frame(rows)


def test_use_counts_from_the_end_of_a_job_on():
    jobs = tasks(3, gap_s=10.0, run_s=15.0)  # the first ends after the second was submitted, before the third
    readings = PastUse("memory").sweep(jobs, use_table(jobs, "memory"))
    known = narrowest(readings, "max")
    assert np.isnan(known[:2]).all() and np.exp(known[2]) == pytest.approx(jobs["max_rss_bytes"][0], rel=1e-4)


def test_reading_now_says_the_same_as_the_sweep():
    jobs = tasks(40)
    past, whole = PastUse("memory"), PastUse("memory")
    past.sweep(jobs.head(39), use_table(jobs.head(39), "memory"))
    readings = whole.sweep(jobs, use_table(jobs, "memory"))
    now = jobs["submit_time"][39].timestamp()
    np.testing.assert_allclose(past.read(jobs.tail(1), [now])[0], readings[39], rtol=1e-5)


def test_a_time_out_is_cut_off():
    jobs = tasks(2).with_columns(elapsed_s=pl.lit(3600.0), state=pl.Series(["TIMEOUT", "COMPLETED"]))
    assert use_table(jobs, "time").cut_off.tolist() == [True, True]


def test_busy_cpus_are_cpu_time_over_run_time_and_short_runs_say_nothing():
    jobs = tasks(3, run_s=100.0).with_columns(
        cpu_time_s=pl.Series([150.0, 400.0, 5.0]), req_cpus=pl.lit(4), elapsed_s=pl.Series([100.0, 100.0, 30.0])
    )
    table = use_table(jobs, "cpus")
    np.testing.assert_allclose(table.used, [1.5, 4.0, np.nan])
    assert table.request.tolist() == [4.0] * 3 and table.cut_off.tolist() == [False, True, False]


def with_gpus(jobs: pl.DataFrame, busy: list[float | None], gpus: int = 4) -> pl.DataFrame:
    return jobs.with_columns(req_gpus=pl.lit(gpus, dtype=pl.Int64), busy_gpus=pl.Series(busy, dtype=pl.Float64))


def test_idle_gpus_are_known_and_more_than_asked_for_is_all_of_them():
    jobs = with_gpus(tasks(3, run_s=100.0), [0.0, 9.0, None])
    table = use_table(jobs, "gpus")
    np.testing.assert_allclose(table.used, [0.01, 4.0, np.nan])
    assert table.cut_off.tolist() == [False, True, False]
    without = use_table(jobs.with_columns(req_gpus=pl.lit(None, dtype=pl.Int64)), "gpus")
    assert np.isnan(without.used).all()


def test_whole_gpus_are_given_and_fewer_where_most_idle():
    busy = [0.6 if k % 2 else 1.4 for k in range(400)]
    result = evaluate_needs(with_gpus(tasks(400, run_s=100.0), list(busy)), "gpus")
    request = result.baselines["request"]
    assert result.model.waste_ratio is not None and request.waste_ratio is not None
    assert result.model.waste_ratio < request.waste_ratio / 2 and (result.model.under_share or 0.0) <= 0.05
    assert set(result.rows["given"].to_list()) <= {1.0, 2.0, 3.0, 4.0}


def test_memory_of_gpus_has_quantiles_although_nobody_asks_for_it():
    jobs = with_gpus(tasks(400, run_s=100.0), [0.5] * 400)
    rng = np.random.default_rng(0)
    result = evaluate_needs(
        jobs.with_columns(gpu_mem_bytes=pl.Series((rng.uniform(4, 6, 400) * GIB).astype(np.int64))), "gpu_memory"
    )
    assert 0.8 <= result.coverage["p90"] <= 1.0 and "nothing to compare" in result.notes[0]


def test_a_log_that_tells_no_use_of_gpus_is_refused_at_once():
    with pytest.raises(NotEnoughJobsError, match="0 ended jobs tell how much gpus"):
        train_needs(tasks(400), "gpus")


def test_fewer_cpus_are_given_where_most_of_them_idle():
    jobs = tasks(400, run_s=100.0).with_columns(cpu_time_s=pl.lit(180.0), req_cpus=pl.lit(16, dtype=pl.Int64))
    result = evaluate_needs(jobs, "cpus")
    request = result.baselines["request"]
    assert result.model.waste_ratio is not None and request.waste_ratio is not None
    assert result.model.waste_ratio < request.waste_ratio / 2 and (result.model.under_share or 0.0) <= 0.05


def test_tasks_are_given_less_than_they_ask_for_and_enough():
    result = evaluate_needs(tasks(400), "memory")
    request = result.baselines["request"]
    assert result.model.waste_ratio is not None and request.waste_ratio is not None
    assert result.model.waste_ratio < request.waste_ratio / 2 and (result.model.under_share or 0.0) <= 0.05


def test_tasks_without_run_times_count_alike():
    jobs = tasks(400).with_columns(elapsed_s=pl.lit(None, dtype=pl.Float64))
    result = evaluate_needs(jobs, "memory")
    assert result.model.waste_ratio is not None and result.baselines["request"].waste_ratio is not None
    assert result.model.waste_ratio < result.baselines["request"].waste_ratio / 2
    assert any("how long it ran" in note for note in result.notes)


def test_rows_hold_what_the_figures_are_made_of():
    result = evaluate_needs(tasks(300), "memory")
    assert result.rows.columns == ["job", "given", "used", "request", "run_s", "cores"]
    assert (
        result.model.n == result.rows.height and (result.rows["given"] < result.rows["used"]).mean() == result.model.under_share
    )


def test_a_log_without_requests_is_judged_without_that_baseline():
    result = evaluate_needs(tasks(300, request_gib=None), "memory")
    assert result.baselines["request"].n == 0 and result.model.n > 0 and "nothing to compare" in result.notes[0]


def test_a_tiny_log_is_refused_in_a_sentence():
    with pytest.raises(NotEnoughJobsError, match="too few"):
        evaluate_needs(tasks(20), "memory")


def test_a_saved_model_forecasts_the_same(tmp_path):
    jobs = tasks(200)
    model = train_needs(jobs, "memory")
    model.save(tmp_path / "m")
    table = use_table(jobs, "memory")
    readings = PastUse("memory").sweep(jobs, table)
    again = type(model).load(tmp_path / "m")
    assert again.policy == model.policy
    np.testing.assert_array_equal(again.forecast(readings, table, jobs).amounts, model.forecast(readings, table, jobs).amounts)
