"""Preparation of a job frame."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.jobs.preparation import (
    UNKNOWN,
    Normaliser,
    PreparationSettings,
    label_distribution,
    prepare,
)
from stormpetrel.records.jobs import job_frame
from tests.builders import T0

GIB = 2**30


def job(job_id=1, **values):
    start = T0 + timedelta(seconds=60)
    return {
        "cluster": "c", "job_id": job_id, "submit_time": T0, "restart": 0, "user": "ada", "group": "lab", "state": "COMPLETED",
        "start_time": start, "end_time": start + timedelta(seconds=600), "cpus": 4, "nodes": 1, "mem_bytes": 8 * GIB,
        "req_cpus": 4, "req_nodes": 1, "req_mem_bytes": 8 * GIB, "time_limit_s": 3600.0, **values,
    }  # fmt: skip


def prepared(*jobs, **settings):
    return prepare(job_frame(list(jobs)), PreparationSettings(**settings))


def dropped(counts):
    return sum(count for name, count in counts.items() if name.startswith("dropped_"))


def test_times_and_sizes_are_worked_out():
    row = prepared(job()).frame.row(0, named=True)
    assert (row["run_time_s"], row["wait_time_s"], row["cpu_time_s"]) == (600.0, 60.0, 2400.0)
    assert (row["cpu"], row["mem_gb"], row["node"], row["failed"], row["outcome"]) == (4.0, 8.0, 1.0, False, "COMPLETED")


def test_sizes_come_out_of_the_tres_string_where_columns_are_null():
    bare = job(cpus=None, nodes=None, mem_bytes=None, alloc_tres="billing=4,cpu=16,gres/gpu=1,mem=16G,node=2")
    row = prepared(bare, job(2)).frame.row(0, named=True)
    assert (row["cpu"], row["mem_gb"], row["node"], row["imputed"]) == (16.0, 16.0, 2.0, [])


def test_the_calendar_is_the_sites():
    late = job(submit_time=datetime(2024, 12, 31, 23, 30, tzinfo=UTC))
    in_utc = prepared(late).frame.select(pl.col("^submit_[mdwqh].*$")).row(0)
    in_berlin = prepared(late, time_zone="Europe/Berlin").frame.select(pl.col("^submit_[mdwqh].*$")).row(0)
    assert in_utc == (12, 2, 1, 4, 23)
    assert in_berlin == (1, 3, 1, 1, 0)


def test_missing_numbers_become_the_median_and_words_their_own_category():
    jobs = [job(k, mem_bytes=k * GIB) for k in (1, 2, 3)] + [job(4, mem_bytes=None, user=None)]
    result = prepared(*jobs)
    row = result.frame.row(3, named=True)
    assert (row["mem_gb"], row["user"], row["imputed"]) == (2.0, UNKNOWN, ["mem_gb", "user"])
    assert (result.counts["imputed_mem_gb"], result.counts["imputed_user"], result.counts["imputed_cpu"]) == (1, 1, 0)


def test_later_jobs_are_imputed_with_the_medians_of_training():
    train = prepared(job(1, mem_bytes=2 * GIB))
    later = prepare(job_frame([job(2, mem_bytes=None), job(3, mem_bytes=90 * GIB)]), medians=train.medians)
    assert later.frame["mem_gb"].to_list() == [2.0, 90.0]


def test_every_row_is_kept_or_counted_under_one_reason():
    jobs = [job(1), job(2, mem_bytes=None, user=None), job(3, user=None), job(4, end_time=T0 + timedelta(seconds=90), user=None)]
    result = prepared(*jobs, missing="drop", min_run_s=120)
    assert result.counts == {"rows": 4, "kept": 1, "dropped_no_mem_gb": 1, "dropped_no_user": 1, "dropped_too_short": 1}
    assert result.counts["rows"] == result.frame.height + dropped(result.counts)


def test_a_column_that_the_log_lacks_drops_nothing_and_stays_null():
    jobs = [job(k, mem_bytes=None, req_mem_bytes=None) for k in range(3)]
    for missing in ("drop", "impute"):
        result = prepared(*jobs, missing=missing)
        assert (result.counts["kept"], result.frame["mem_gb"].null_count()) == (3, 3)
        assert result.absent == ("mem_gb", "req_mem_gb")


def test_a_job_that_has_not_ended_gets_no_made_up_run_time():
    running = job(2, state="RUNNING", end_time=None, elapsed_s=30.0)
    pending = job(3, state="PENDING", start_time=None, end_time=None, cpus=None)
    frame = prepared(job(1), running, pending).frame
    assert frame["run_time_s"].to_list() == [600.0, None, None]
    assert frame["wait_time_s"].to_list() == [60.0, 60.0, None]
    assert frame["cpu"].to_list() == [4.0, 4.0, None]
    assert frame["failed"].to_list() == [False, None, None]


def in_the_queue(number=1):
    return job(number, state="CANCELLED", start_time=None, end_time=T0 + timedelta(seconds=300))


def test_a_job_cancelled_in_the_queue_is_left_out_and_counted():
    found = prepared(in_the_queue(1), job(2))
    assert found.frame["job_id"].to_list() == [2]
    assert found.counts["dropped_never_started"] == 1
    assert found.counts["rows"] == found.counts["kept"] + 1


def test_a_job_cancelled_in_the_queue_that_is_kept_ran_for_no_time_and_waited_until_then():
    row = prepared(in_the_queue(), keep_never_started=True).frame.row(0, named=True)
    assert (row["run_time_s"], row["wait_time_s"], row["failed"], row["outcome"]) == (0.0, 300.0, None, "NEVER_STARTED")


def test_earlier_jobs_of_a_user_are_counted_before_short_ones_are_excluded():
    short = T0 + timedelta(seconds=61)
    jobs = [job(k, submit_time=T0 + timedelta(seconds=min(k, 2)), **({"end_time": short} if k == 0 else {})) for k in range(4)]
    frame = prepared(*jobs, job(9, user="bob"), min_run_s=120).frame
    assert dict(frame.select("job_id", "user_jobs_before").iter_rows()) == {1: 1, 2: 2, 3: 2, 9: 0}


def test_allocations_stand_for_requests_only_when_asked_to():
    silent = job(req_cpus=None, req_nodes=None, req_mem_bytes=None)
    assert prepared(silent).frame["req_cpu"].to_list() == [None]
    assert prepared(silent, allocation_as_request=True).frame.select("req_cpu", "req_node", "req_mem_gb").row(0) == (
        4.0,
        1.0,
        8.0,
    )


def test_an_empty_frame_is_prepared():
    for missing in ("drop", "impute"):
        result = prepared(missing=missing)
        assert (result.frame.height, result.counts["rows"], result.absent) == (0, 0, ())
        assert "imputed" in result.frame.columns


def test_both_ways_of_treating_missing_values_give_the_same_columns():
    assert prepared(job(), missing="drop").frame.schema == prepared(job()).frame.schema


@pytest.mark.parametrize("wrong", [{"missing": "guess"}, {"time_zone": "Mars/Olympus"}])
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong.values()))):
        PreparationSettings(**wrong)


def test_labels_are_counted_with_their_share():
    jobs = job_frame([job(k, state=state) for k, state in enumerate(["COMPLETED"] * 6 + ["TIMEOUT"] * 3 + ["CANCELLED"])])
    table = label_distribution(jobs)
    assert table.columns == ["state", "label", "count", "share"]
    assert table.drop("share").rows() == [("COMPLETED", "Completed", 6), ("TIMEOUT", "Failed", 3), ("CANCELLED", "Other", 1)]
    assert table["share"].to_list() == pytest.approx([0.6, 0.3, 0.1])


def test_jobs_that_never_started_are_a_label_of_their_own():
    table = label_distribution(job_frame([job(1), in_the_queue(2), job(3, state="CANCELLED")]))
    assert ("NEVER_STARTED", "Never started", 1) in table.drop("share").rows()
    assert ("CANCELLED", "Other", 1) in table.drop("share").rows()


def test_normalised_columns_have_mean_zero_and_constant_ones_are_zeros():
    values = np.array([[1.0, 7.0, np.nan], [100.0, 7.0, np.nan], [10_000.0, 7.0, np.nan]])
    scaled = Normaliser().fit(values).transform(values)
    assert np.allclose(scaled[:, :2].mean(axis=0), 0) and np.isclose(scaled[:, 0].std(), 1)
    assert np.allclose(scaled[:, 1], 0) and np.isnan(scaled[:, 2]).all()


def test_a_normaliser_survives_saving_and_refuses_a_damaged_copy():
    values = np.array([[1.0, 3.0], [5.0, 8.0]])
    normaliser = Normaliser().fit(values)
    again = Normaliser.from_dict(json.loads(json.dumps(normaliser.to_dict())))
    assert np.array_equal(again.transform(values), normaliser.transform(values))
    with pytest.raises(ModelFormatError, match="scale"):
        Normaliser.from_dict({"mean": [0.0]})
