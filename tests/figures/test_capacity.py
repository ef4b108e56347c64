"""The figures of capacity hold what they are drawn from."""

from __future__ import annotations

import pytest

from stormpetrel.answers.cluster.capacity import capacity_of
from stormpetrel.answers.schemas.cluster import CapacityQuestion
from stormpetrel.figures.capacity import load_figure, wait_figure
from tests.events.loads import end_of, load_of_jobs, steady_jobs


def answer_about(jobs, weeks, cores=None):
    record = load_of_jobs(jobs, now=end_of(weeks), zone="UTC")
    return capacity_of(record, CapacityQuestion(cores=cores), in_full=True, as_of=end_of(weeks), zone="UTC")


@pytest.fixture(scope="module")
def answer():
    return answer_about(steady_jobs(26, growth=0.02, load=0.62), 27, cores=400)


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_the_load_is_drawn_with_trend_band_capacity_and_where_it_hurts(answer):
    drawn = traces(load_figure(answer))
    assert list(drawn["load"].y) == [week.load for week in answer.weeks][: len(drawn["load"].y)]
    assert len(drawn["trend"].x) == 25 + 26 and drawn["trend"].y[24] == pytest.approx(answer.utilisation * 400 * 168)
    assert drawn["trend"].y[25] == pytest.approx(drawn["trend"].y[24] * (1 + answer.growth))
    assert drawn["capacity"].y[0] == 400 * 168
    assert drawn["the queue hurts"].x[0] == answer.hurts_from


def test_without_a_trend_only_the_weeks_are_drawn():
    short = answer_about(steady_jobs(5), 6)
    assert "trend" not in traces(load_figure(short)) and "load" in traces(load_figure(short))


def test_waits_are_drawn_by_utilisation_with_the_knee(answer):
    figure = wait_figure(answer)
    assert len(traces(figure)["median"].x) == len(answer.waits)
    assert figure.layout.shapes[0].x0 == pytest.approx(100 * answer.knee)
