""""""

from __future__ import annotations

import json
from collections.abc import Iterator

import ipywidgets
import polars as pl
import pytest
from plotly.graph_objects import FigureWidget

from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.faces.notebook import EarlyWarning, widget
from stormpetrel.faces.notebook.predicting import predict
from stormpetrel.faces.notebook.widget import ORDERS, PagedTable
from stormpetrel.store.site import create_site
from tests.builders import T0
from tests.faces.notebook.hostile import HOSTILE, assert_is_text, write_hostile_log


def widgets_in(box: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """A widget and everything in it."""
    yield box
    for child in getattr(box, "children", ()):
        yield from widgets_in(child)


def html_in(box: ipywidgets.Widget) -> str:
    return "\n".join(part.value for part in widgets_in(box) if isinstance(part, ipywidgets.HTML))


@pytest.fixture
def early_warning(practice_site):
    return EarlyWarning(practice_site)


def press_all(early_warning: EarlyWarning) -> None:
    for step in early_warning.steps[:4]:
        step.button.click()


def test_there_are_five_steps_with_a_button_each(early_warning):
    assert [step.button.description for step in early_warning.steps] == [
        "Load data to predict",
        "Prepare data",
        "Get the latest model",
        "Start prediction",
        "Search ID",
    ]
    assert [f"Step {n}:" in step.title.value for n, step in enumerate(early_warning.steps, 1)] == [True] * 5


def test_a_notebook_shows_it(early_warning):
    bundle = early_warning._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_only_core_widgets_are_used_until_a_figure_is_drawn(early_warning):
    press_all(early_warning)
    assert {part._model_module for part in widgets_in(early_warning.box)} == {"@jupyter-widgets/controls"}


def test_the_buttons_do_the_five_steps(early_warning):
    press_all(early_warning)
    messages = [step.message.value for step in early_warning.steps]
    assert "Data loaded." in messages[0] and "jobs of" in messages[0]
    assert "Data prepared." in messages[1] and "jobs were kept" in messages[1]
    assert "Model loaded: version 1, trained until" in messages[2]
    assert "Prediction done:" in messages[3]
    assert "<table>" in html_in(early_warning.load.shown) and "Risk (%)" in html_in(early_warning.start.shown)
    early_warning.job_id.value = early_warning.table.page_rows["Job ID"][0]  # as Enter does
    assert "Search query submitted" in early_warning.search.message.value
    shown = html_in(early_warning.search.shown)
    assert "Risk of failing" in shown and "Advice" in shown
    assert any(isinstance(part, FigureWidget) for part in early_warning.search.shown.children)


def test_the_progress_bar_is_there_while_a_step_runs_and_gone_afterwards(early_warning):
    seen: list[tuple[str, int]] = []
    bar = early_warning.start.progress
    bar.observe(lambda change: seen.append((bar.layout.visibility, change["new"])), "value")
    press_all(early_warning)
    assert [value for _, value in seen] == [10, 40, 70, 100]
    assert {visibility for visibility, _ in seen} == {"visible"}
    assert bar.layout.visibility == "hidden" and not early_warning.start.button.disabled


def test_the_search_button_and_enter_do_the_same(early_warning):
    press_all(early_warning)
    early_warning.job_id.value = early_warning.table.page_rows["Job ID"][1]
    by_enter = html_in(early_warning.search.shown)
    early_warning.search.button.click()
    assert html_in(early_warning.search.shown) == by_enter


def test_without_anywidget_the_waterfall_is_a_table_of_bars(practice_site, monkeypatch):
    monkeypatch.setattr(widget, "find_spec", lambda name: None if name == "anywidget" else object())
    early_warning = EarlyWarning(practice_site)
    press_all(early_warning)
    early_warning.job_id.value = early_warning.table.page_rows["Job ID"][0]
    assert {part._model_module for part in widgets_in(early_warning.box)} == {"@jupyter-widgets/controls"}
    assert "average job" in html_in(early_warning.search.shown)


def test_without_the_extra_it_says_what_to_install(practice_site, monkeypatch):
    monkeypatch.setattr(widget, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"The notebook needs the extra 'notebook'.*stormpetrel\[notebook\]"):
        EarlyWarning(practice_site)


def test_a_span_that_is_not_in_the_list_is_refused(practice_site):
    with pytest.raises(UsageError, match="last_days is 3"):
        EarlyWarning(practice_site, last_days=3)


def test_steps_out_of_order_say_which_comes_first(early_warning):
    early_warning.prepare.button.click()
    assert "step 1" in early_warning.prepare.message.value
    early_warning.start.button.click()
    assert "step 1" in early_warning.start.message.value
    early_warning.load.button.click()
    early_warning.start.button.click()
    assert "step 3" in early_warning.start.message.value
    early_warning.get_model.button.click()
    early_warning.search.button.click()
    assert "No job ID was entered." in early_warning.search.message.value


def test_preparation_may_be_left_out(early_warning):
    for step in (early_warning.load, early_warning.get_model, early_warning.start):
        step.button.click()
    assert "Prediction done" in early_warning.start.message.value


def test_loading_again_forgets_what_was_shown_of_the_jobs_before(early_warning):
    press_all(early_warning)
    early_warning.job_id.value = early_warning.table.page_rows["Job ID"][0]
    early_warning.span.value = "last day"
    early_warning.load.button.click()
    assert early_warning.predictions is None and early_warning.insight is None
    assert html_in(early_warning.search.box).count("Risk of failing") == 0
    assert early_warning.start.shown.children == ()


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [("999999999", "There is no job 999999999 among these"), ("abc", "is not a job id"), (HOSTILE, "is not a job id")],
)
def test_a_wrong_id_is_a_sentence_with_a_hint_and_not_a_trace(early_warning, wanted, sentence):
    press_all(early_warning)
    early_warning.job_id.value = wanted
    message = early_warning.search.message.value
    assert sentence in message and "Traceback" not in message
    assert early_warning.search.shown.children == ()
    assert_is_text(message)


def test_a_site_without_a_model_says_how_to_train_one(tmp_path):
    create_site(tmp_path / "site").close()
    early_warning = EarlyWarning(tmp_path / "site")
    early_warning.get_model.button.click()
    assert "stormpetrel jobs train" in early_warning.get_model.message.value


def test_a_site_without_jobs_says_how_to_get_some(tmp_path):
    create_site(tmp_path / "site").close()
    early_warning = EarlyWarning(tmp_path / "site")
    early_warning.load.button.click()
    assert "There is no job to show" in early_warning.load.message.value
    assert "stormpetrel ingest jobs --live" in early_warning.load.message.value
    assert early_warning.jobs is None


def test_a_folder_that_is_no_site_is_a_sentence(tmp_path):
    early_warning = EarlyWarning(tmp_path)
    early_warning.load.button.click()
    early_warning.get_model.button.click()
    assert "no site" in early_warning.load.message.value
    assert "is not a site" in early_warning.get_model.message.value


def test_an_empty_log_is_a_sentence(practice_site, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    early_warning = EarlyWarning(practice_site, log=tmp_path / "empty.txt")
    early_warning.load.button.click()
    assert "sp-wrong" in early_warning.load.message.value and "empty.txt" in early_warning.load.message.value


def test_what_nobody_thought_of_is_a_sentence_too(early_warning, monkeypatch):
    def broken(*_args, **_more):
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr(widget, "load_jobs", broken)
    early_warning.load.button.click()
    assert "ZeroDivisionError" in early_warning.load.message.value
    assert not early_warning.load.button.disabled
    assert_is_text(early_warning.load.message.value)


def test_a_hostile_log_is_shown_as_text_everywhere(practice_site, tmp_path):
    early_warning = EarlyWarning(practice_site, log=write_hostile_log(tmp_path / "sacct.txt"), last_days=None)
    press_all(early_warning)
    early_warning.job_id.value = "505"
    html = html_in(early_warning.box)
    assert html.count("&lt;img") >= 3  # the jobs, the predictions, the job
    assert_is_text(html)
    (figure,) = [part for part in widgets_in(early_warning.box) if isinstance(part, FigureWidget)]
    assert "<img" not in json.dumps(figure.to_plotly_json(), default=str)


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
