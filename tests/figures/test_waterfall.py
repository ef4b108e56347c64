"""The waterfall: from the average job's risk to this one's, in points of risk or in log-odds."""

import json

import pytest

from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.reasons import risk_at

REASONS = [("hour: 3", 0.1), ("rate: 90 %", 1.5), ("cpus: 4", -0.6), ("limit: 1 h", 0.05)]


def test_the_waterfall_ranks_its_steps_and_names_the_risks_at_its_ends():
    text = waterfall_figure(REASONS, base=-2.0, risk=risk_at(-0.95), top=2).layout.yaxis.ticktext
    assert text == ("average job (12 %)", "rate: 90 %", "cpus: 4", "2 other reasons", "this job (28 %)")


@pytest.mark.parametrize("top", [1, 2, 10])
def test_its_steps_are_points_that_lead_to_the_risk(top):
    (bars,) = waterfall_figure(REASONS, base=-2.0, risk=risk_at(-0.95), top=top).data
    assert sum(bars.x[:-1]) == pytest.approx(100 * risk_at(-0.95)) == pytest.approx(bars.x[-1])


def test_its_steps_are_log_odds_where_these_are_asked_for():
    (bars,) = waterfall_figure(REASONS, base=-2.0, risk=risk_at(-0.95), top=2, log_odds=True).data
    assert list(bars.x[:3]) == [-2.0, 1.5, -0.6] and sum(bars.x[:-1]) == pytest.approx(-0.95)


def test_a_waterfall_that_adds_up_has_no_bar_for_others():
    (bars,) = waterfall_figure([("rate: 90 %", 1.0)], base=-2.0, risk=risk_at(-1.0)).data
    assert len(bars.x) == 3


def test_labels_are_whole_and_their_markup_is_text():
    words = "failure rate of this user's jobs that ask for the same resources as <b>this</b> one, last 12 hours: 70 %"
    figure = waterfall_figure([(words, 1.0)], base=-2.0, risk=0.3)
    assert "70 %" in figure.layout.yaxis.ticktext[1] and "<b>" not in json.dumps(figure.to_plotly_json(), default=str)
