"""The figures of capacity hold what they are drawn from."""

from __future__ import annotations

import pytest

from stormpetrel.events.capacity import plan_capacity
from stormpetrel.events.load_weeks import load_of_jobs
from stormpetrel.figures.capacity import load_figure, wait_figure
from tests.events.loads import end_of, steady_jobs


@pytest.fixture(scope="module")
def plan():
    return plan_capacity(load_of_jobs(steady_jobs(26, growth=0.02, load=0.62), now=end_of(27), zone="UTC"), cores=400)


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_the_load_is_drawn_with_trend_band_capacity_and_where_it_hurts(plan):
    drawn = traces(load_figure(plan))
    assert list(drawn["load"].y) == plan.record.weeks["load"].to_list()[: len(drawn["load"].y)]
    assert len(drawn["trend"].x) == 25 + 26 and drawn["trend"].y[24] == pytest.approx(float(plan.trend.at(0.0)))
    assert drawn["capacity"].y[0] == 400 * 168
    assert drawn["the queue hurts"].x[0] == plan.hurts_from[0]


def test_without_a_trend_only_the_weeks_are_drawn():
    short = plan_capacity(load_of_jobs(steady_jobs(5), now=end_of(6), zone="UTC"))
    assert "trend" not in traces(load_figure(short)) and "load" in traces(load_figure(short))


def test_waits_are_drawn_by_utilisation_with_the_knee(plan):
    figure = wait_figure(plan)
    assert len(traces(figure)["median"].x) == plan.waits.low.size
    assert figure.layout.shapes[0].x0 == pytest.approx(100 * plan.knee.utilisation)
