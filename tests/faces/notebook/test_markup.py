from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.faces.notebook import markup
from tests.faces.notebook.hostile import HOSTILE, assert_is_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (12.5, "12.50"),
        (7, "7"),
        (datetime(2024, 3, 4, 5, 6, 7, tzinfo=UTC), "2024-03-04 05:06:07"),
        ("a & b", "a &amp; b"),
        ('"quoted"', "&quot;quoted&quot;"),
        ("bell\x07\u202eleft", "bell\ufffd\ufffdleft"),
    ],
)
def test_a_value_is_shown_as_text(value, shown):
    assert markup.escaped(value) == shown


def test_a_very_long_name_is_cut_before_it_is_escaped():
    assert markup.escaped("<" * 5000, longest=5) == "&lt;&lt;&lt;&lt;…"


@pytest.mark.parametrize(
    "html",
    [
        markup.table(pl.DataFrame({HOSTILE: [HOSTILE, None], "Prediction": ["Fail", HOSTILE]}), caption=HOSTILE),
        markup.heading(HOSTILE),
        markup.sentence(HOSTILE),
        markup.bullets([HOSTILE]),
        markup.done(HOSTILE, HOSTILE),
        markup.message(HOSTILE),
        markup.wrong(ModelError(HOSTILE, hint=HOSTILE)),
        markup.wrong(ValueError(HOSTILE)),
    ],
)
def test_nothing_from_outside_becomes_markup(html):
    assert "&lt;img" in html
    assert_is_text(html)


def test_a_prediction_is_marked_by_more_than_its_colour():
    html = markup.table(pl.DataFrame({"Prediction": ["Fail", "Complete"]}))
    assert 'class="sp-fail">Fail' in html and 'class="sp-complete">Complete' in html
    assert '.sp-fail::before { content: "▲ "' in markup.STYLE


def test_an_error_is_its_sentence_and_what_to_do_next():
    html = markup.wrong(ModelError("There is no model.", hint="Train one."))
    assert "There is no model." in html and "Train one." in html and "Traceback" not in html


def test_an_error_that_should_not_be_says_that_it_is_ours():
    html = markup.wrong(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError: division by zero" in html and "please report it" in html
