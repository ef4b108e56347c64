from __future__ import annotations

import json
from html import unescape

import pytest

from stormpetrel.answers.jobs.one_job import verdict_answer
from stormpetrel.answers.schemas import predictions as schemas
from stormpetrel.faces.notebook.waterfall import PLOTLY_MIME, figure_bundle, themed, waterfall_html, waterfall_of
from stormpetrel.figures.quality import roc_figure
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.predictor import Verdict
from stormpetrel.jobs.reasons import Reason, points_of_risk
from tests.faces.notebook.hostile import HOSTILE, assert_is_text

LONG = "failure rate of this user's jobs that ask for the same resources as this one, last 12 hours: 70%"


def made_verdict(*parts: tuple[str, float], base: float = -1.5) -> schemas.Verdict:
    odds = base + sum(part for _, part in parts)
    risk = 1 / (1 + 2.718281828459045**-odds)
    points = points_of_risk([part for _, part in parts], base, risk)
    reasons = tuple(Reason("x", words, part, 1.0, float(point)) for (words, part), point in zip(parts, points, strict=True))
    return verdict_answer(Verdict(Moment.SUBMIT, risk, risk > 0.5, 0.5, True, {}, reasons, base, None), most_reasons=None)


def test_the_figure_goes_from_the_average_job_to_this_one():
    verdict = made_verdict(("many failed", 2.0), ("short limit", -0.25))
    (bars,) = waterfall_of(verdict).data
    assert bars.x[0] == pytest.approx(100 * verdict.base_risk) and bars.x[-1] == pytest.approx(100 * verdict.risk)
    assert list(bars.x[1:3]) == pytest.approx([reason.points for reason in verdict.reasons])


def test_labels_are_whole_since_their_values_stand_at_the_end():
    figure = waterfall_of(made_verdict((LONG, 1.0)))
    assert unescape(figure.layout.yaxis.ticktext[1]).replace("<br>", " ") == LONG


def test_labels_show_markup_as_text():
    figure = waterfall_of(made_verdict((HOSTILE, 1.0)))
    assert "<img" not in json.dumps(figure.to_plotly_json(), default=str)


def test_the_table_of_bars_tells_the_same_and_needs_no_script():
    html = waterfall_html(made_verdict((HOSTILE, 1.0), *((f"reason {n}", -0.1) for n in range(12))), top=3)
    assert_is_text(html)
    assert "▲ +14 points" in html and "▽ −1 point" in html and "10 other reasons" in html
    assert "average job (18 %)" in html


def test_bars_stay_within_their_column():
    html = waterfall_html(made_verdict(("up", 3.0), ("down", -5.0)))
    widths = [float(part.split("%")[0]) for part in html.split("width:")[2:]]
    assert all(0 <= width <= 100 for width in widths)


def test_a_figure_has_no_background_of_its_own():
    figure = themed(roc_figure({}))
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0, 0, 0, 0)"


def test_a_front_end_that_cannot_draw_gets_html_and_one_without_html_gets_text():
    bundle = figure_bundle(waterfall_of(made_verdict(("a", 1.0))), "<div>bars</div>", "bars")
    assert set(bundle) == {PLOTLY_MIME, "text/html", "text/plain"}
