"""Entities as numbers: few jobs are looked up one by one, many by a query, and both get the same numbers."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.jobs import entities
from stormpetrel.jobs.entities import EntityCodes
from stormpetrel.jobs.needs.past_use import SPACES, _with_keys
from tests.jobs.logs import jobs_of_ada


def test_few_jobs_get_the_numbers_that_many_get(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of_ada(200, 20)
    past = _with_keys(jobs.head(150), {}, "memory")
    asked = _with_keys(jobs.tail(100).with_columns(user=pl.when(pl.int_range(pl.len()) % 3 > 0).then("user")), {}, "memory")
    codes = EntityCodes(SPACES)
    codes.of(past, take_in=True)
    by_query = codes.of(asked, take_in=False)
    monkeypatch.setattr(entities, "_FEW", 1000)
    one_by_one = codes.of(asked, take_in=False)
    assert one_by_one.dtype == by_query.dtype and (one_by_one == by_query).all()
    assert (by_query > 0).any() and (by_query == -1).any(), "known entities and missing ones are among them"
    assert codes.of(asked.clear(), take_in=False).shape == (0, len(SPACES))
