"""A workload as a table of rows, and back: nothing of the log's names, everything of its types."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.rows.row_table import INTERVAL, Clock, RowLayout, Table, learn_rows
from stormpetrel.synth.workload import Workload
from tests.synth.made_workloads import made_workload, workload_at


def there_and_back(workload: Workload) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    layout, table = learn_rows(workload, rng)
    return RowLayout.of_record(layout.record()).jobs(table, rng, Clock(layout.start_s))


def test_rows_come_back_as_the_jobs_they_were_but_for_their_users():
    workload = made_workload(300)
    back = there_and_back(workload)
    assert back.drop("user", "submit_time").equals(workload.jobs[1:].drop("user", "submit_time"))
    assert back["submit_time"].diff().drop_nulls().equals(workload.jobs["submit_time"][1:].diff().drop_nulls())


def test_users_get_new_names_and_small_ones_are_told_apart_no_more():
    names = ["alice"] * 50 + ["bob"] * 20 + [f"guest{k}" for k in range(5)]
    workload = workload_at(np.arange(75.0), user=names, cores=list(range(75)))
    layout, table = learn_rows(workload, np.random.default_rng(0))
    assert table.sizes["user"] == 3  # two users and all others
    text = str(layout.record())
    assert "alice" not in text and "guest" not in text and set(there_and_back(workload)["user"]) >= {"user0001", "user0002"}


def test_a_missing_number_stays_missing_and_does_not_bend_the_others():
    gpus = [None if k % 3 else 4 + k % 2 for k in range(90)]
    workload = workload_at(np.arange(90.0), gpus=gpus, cores=[1, 2, 3] * 30)
    _layout, table = learn_rows(workload, np.random.default_rng(0))
    assert set(table.numbers["gpus"]) == {4, 5}
    assert there_and_back(workload)["gpus"].to_list() == gpus[1:]


def test_constant_columns_and_columns_of_the_log_come_back_with_their_types():
    own = {"site": ["A"] * 40, "colour": ["red", None] * 20, "licences": list(range(40)), "share": np.linspace(0, 1, 40)}
    workload = workload_at(np.arange(40.0), cores=[7] * 40, **own)
    back = there_and_back(workload)
    assert back.schema == workload.jobs.schema
    assert back.drop("submit_time").equals(workload.jobs[1:].drop("submit_time"))


def test_arrays_get_new_numbers_and_keep_together():
    workload = workload_at(np.arange(6.0), array=[None, 900, 900, 901, None, 901], cores=[1, 2, 3, 4, 5, 6])
    assert there_and_back(workload)["array"].to_list() == [1, 1, 2, None, 3]


def test_what_a_network_invents_is_brought_within_what_the_log_has_seen():
    workload = workload_at(np.cumsum([0, 5, 7, 9] * 10), cores=[1, 2, 4, 8] * 10, runtime_s=[1.25, 2.5, 3.75, 4.0] * 10)
    layout, _ = learn_rows(workload, np.random.default_rng(0))
    wild = {INTERVAL: [-3.0, np.nan, 1e9], "cores": [0.2, 3.4, 1e6], "runtime_s": [-1.0, 2.123456, np.inf]}
    jobs = layout.jobs(
        Table({name: np.array(values) for name, values in wild.items()}, {}, {}), np.random.default_rng(0), Clock(0)
    )
    assert jobs["cores"].to_list() == [1, 3, 8]
    assert jobs["runtime_s"].to_list() == [1.25, 2.12, 4.0]
    assert jobs["submit_time"].is_sorted() and jobs["submit_time"].dt.epoch("s").to_list() == [0, 0, 9]


def test_run_times_keep_to_the_limit_where_the_log_does():
    limits, states = [60.0, 120.0] * 20, ["COMPLETED", "TIMEOUT"] * 20
    workload = workload_at(np.arange(40.0), time_limit_s=limits, runtime_s=[30.0, 121.0] * 20, state=states)
    layout, table = learn_rows(workload, np.random.default_rng(0))
    longer = Table({**table.numbers, "runtime_s": np.full(39, 121.0)}, table.codes, table.sizes)
    jobs = layout.jobs(longer, np.random.default_rng(0), Clock(0))
    assert jobs.filter(state="COMPLETED")["runtime_s"].max() == 60 and jobs.filter(state="TIMEOUT")["runtime_s"].min() == 121


def test_a_damaged_record_is_refused():
    layout, _ = learn_rows(made_workload(100), np.random.default_rng(0))
    record = layout.record()
    record["numbers"][0]["low"] = float("nan")
    with pytest.raises(ValueError, match="range"):
        RowLayout.of_record(record)
