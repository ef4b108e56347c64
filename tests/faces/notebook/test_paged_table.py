from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.faces.notebook.paged_table import ORDERS, PagedTable
from stormpetrel.faces.notebook.predicting import predict
from tests.builders import T0
from tests.faces.notebook.hostile import HOSTILE, assert_is_text


@pytest.fixture(scope="module")
def predictions(model, jobs):
    return predict(model, jobs, details=True)


@pytest.fixture
def table(predictions):
    paged = PagedTable()
    paged.show(predictions)
    return paged


def test_the_likeliest_failures_come_first(table, predictions):
    assert table.page_rows["Risk"].to_list() == predictions["Risk"].top_k(10).sort(descending=True).to_list()
    assert table.html.value.count("<tr>") == 11


def test_pages_are_turned_and_end_at_both_ends(table, predictions):
    assert (table.back.disabled, table.forth.disabled) == (True, False)
    table.forth.click()
    assert "11 to 20 of" in table.place.value and not table.back.disabled
    for _ in range(table.pages + 3):
        table.forth.click()
    assert table.forth.disabled
    assert table.page_rows.height == predictions.height - 10 * (table.pages - 1)
    table.back.click()
    assert not table.forth.disabled and table.page_rows.height == 10


@pytest.mark.parametrize("order", ORDERS)
def test_another_order_starts_at_the_first_page(table, order):
    table.forth.click()
    table.order.value = "by user"
    table.order.value = order
    column, largest_first = ORDERS[order]
    shown = table.page_rows[column].drop_nulls()
    assert shown.is_sorted(descending=largest_first)
    assert table.back.disabled


def test_every_job_is_on_one_page(table, predictions):
    seen = [table.page_rows]
    while not table.forth.disabled:
        table.forth.click()
        seen.append(table.page_rows)
    assert pl.concat(seen).height == predictions.height
    assert pl.concat(seen)["Job ID"].n_unique() == predictions["Job ID"].n_unique()


def test_an_empty_table_says_so(predictions):
    paged = PagedTable()
    paged.show(predictions.clear())
    assert "no jobs" in paged.place.value and "Job ID" in paged.html.value
    assert paged.back.disabled and paged.forth.disabled


def test_hostile_names_are_shown_as_text(predictions):
    paged = PagedTable()
    paged.show(predictions.with_columns(pl.lit(HOSTILE).alias("User ID"), pl.lit(T0).alias("Start Time")))
    assert "&lt;img" in paged.html.value
    assert_is_text(paged.html.value)
