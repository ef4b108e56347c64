"""Entities as numbers: few jobs are looked up one by one, many by a query, and both get the same numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.history.entities import EntityCodes
from stormpetrel.jobs.needs import past_use
from stormpetrel.jobs.wait import queue_state
from tests.jobs.logs import jobs_of_ada

SIZES = {  # limits and sizes that are rounded, and what a log may hold where it should not
    "time_limit_s": [None, 0.0, 0.5, 1.5, 2.5, 61.3, 2.0**10.5, 86400.0, float("nan"), -1.0],
    "req_cpus": [None, 0, 1, 2, 3, 5, 6, 11, 12, 1000],
    "req_nodes": [None, 1, 1, None, 2, 3, 7, 8, 9, 100],
    "req_mem_bytes": [None, 0, 1, 1 << 30, (1 << 40) + 1, 3, None, 5, 7, 9],
}


def odd_jobs() -> pl.DataFrame:
    """Jobs with missing users, names of other alphabets, odd sizes, and hints about their input."""
    jobs = jobs_of_ada(200, 20)
    rows = jobs.height
    texts = {
        "user": [None, "ada", "eve", "ada"], "job_name": ["relax", "Größe-7", None, "fit_12.sh"], "account": [None, "physics"],
        "partition": ["cpu", None, "gpu"], "qos": ["normal", None],
        "extra": [None, {"tag": "s1"}, {"tag": "-", "input": "x"}, {"sample": ""}, {"tag": None, "input": "y"},
                  {"executable": "3"}],
    }  # fmt: skip
    odd = {name: [values[(7 * k // 5) % len(values)] for k in range(rows)] for name, values in (SIZES | texts).items()}
    return jobs.with_columns(pl.Series(name, values, dtype=jobs.schema[name]) for name, values in odd.items())


@pytest.mark.parametrize("stand_in", [{}, {"asked_cpus": "cpus"}])
@pytest.mark.parametrize("resource", past_use.RESOURCES)
def test_few_jobs_get_the_numbers_of_past_use_that_many_get(resource: str, stand_in: dict[str, str]) -> None:
    jobs = odd_jobs()
    codes = EntityCodes(past_use.SPACES)
    codes.of(past_use._with_keys(jobs.head(150), stand_in, resource), take_in=True)
    by_query = codes.of(past_use._with_keys(jobs.tail(100), stand_in, resource), take_in=False)
    one_by_one = codes.of_few(past_use._keys_of_few(jobs.tail(100), stand_in, resource))
    assert one_by_one.dtype == by_query.dtype and (one_by_one == by_query).all()
    assert (by_query > 0).any() and (by_query == -1).any(), "known entities and missing ones are among them"
    assert codes.of_few(past_use._keys_of_few(jobs.clear(), stand_in, resource)).shape == (0, len(past_use.SPACES))


def test_few_jobs_get_the_numbers_of_the_queue_that_many_get() -> None:
    jobs = odd_jobs()
    codes = EntityCodes(queue_state.SPACES)
    codes.of(queue_state._with_keys(jobs.head(150), {}), take_in=True)
    by_query = codes.of(queue_state._with_keys(jobs.tail(100), {}), take_in=False)
    assert (codes.of_few(queue_state._keys_of_few(jobs.tail(100), {})) == by_query).all()


@pytest.mark.parametrize("resource", past_use.RESOURCES)
def test_the_request_of_a_few_jobs_is_that_of_many(resource: str) -> None:
    jobs = odd_jobs()
    whole, few = past_use.use_table(jobs, resource), past_use.request_table(jobs, resource)
    np.testing.assert_array_equal(few.request, whole.request)
    np.testing.assert_array_equal(few.cores, whole.cores)
    waits, asked = queue_state.wait_table(jobs), queue_state.request_table(jobs)
    np.testing.assert_array_equal(asked.cores, waits.cores)
    np.testing.assert_array_equal(asked.limit_s, waits.limit_s)
