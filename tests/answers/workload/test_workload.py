"""The workload: for whom, what is known of the generator, and which jobs are drawn.

A scorecard as lines: which figure, its ideal, its floor, and whether that is near.
"""

from __future__ import annotations

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.answers.workload.workload import make_workload_board, scores_of, workload_answer, workload_board
from stormpetrel.errors import AccessError
from stormpetrel.lifecycle.workload_models import site_workload
from tests.answers.workload_sites import CARD, GENERATOR, GROUP, put_generator, put_workload
from tests.builders import make_site

ADA = Viewer("ada", is_admin=False)


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_workload(site)
        yield LiveSite(site)


def test_without_a_generator_there_is_a_state_and_nothing_to_draw(live):
    state = workload_answer(live, LOCAL)
    assert state.generator is None and not state.fitting.running
    assert workload_board(live, LOCAL).value.real is None


def test_the_state_is_what_the_registry_knows(live):
    training = put_generator(live.site)
    fitted = workload_answer(live, LOCAL).generator
    assert (fitted.training, fitted.generator, fitted.table_version) == (training.name, GENERATOR, 3)
    assert fitted.jobs == site_workload(live.site).height and [group.name for group in fitted.groups] == [GROUP]
    assert fitted.scorecard == CARD and fitted.not_scored == ""
    assert fitted.scores == scores_of(CARD)


def test_as_many_new_jobs_as_real_ones_are_drawn_from_the_same_moment_on(live):
    put_generator(live.site)
    board = make_workload_board(live, "", None)
    assert board.real.height == board.synthetic.height == site_workload(live.site).height
    assert abs((board.synthetic.start() - board.real.start()).total_seconds()) < 3600
    assert not set(board.real.jobs["user"]) & set(board.synthetic.jobs["user"])


def test_jobs_are_made_anew_only_for_another_generator(live):
    put_generator(live.site)
    board = make_workload_board(live, "", None)
    assert make_workload_board(live, "", board) is board
    put_generator(live.site)
    assert make_workload_board(live, "", board).training == "synth-2"


@pytest.mark.parametrize("viewer", [ADA, Viewer("root", is_admin=True, scopes=frozenset({"predict"}))])
def test_who_is_no_administrator_or_may_not_read_is_refused(live, viewer):
    for ask in (workload_answer, workload_board):
        with pytest.raises(AccessError):
            ask(live, viewer)


def test_two_live_sites_share_neither_jobs_nor_a_fitting(live):
    other = LiveSite(live.site)
    other.workload.fitting.begin()
    assert workload_answer(other, LOCAL).fitting.running and not workload_answer(live, LOCAL).fitting.running
    assert workload_board(live, LOCAL) is not workload_board(other, LOCAL)


def lines(card=CARD):
    return {line.measure: line for line in scores_of(card)}


def test_a_figure_stands_beside_its_ideal_and_its_floor():
    found = lines()["Distribution: interval"]
    assert (found.value, found.ideal, found.floor, found.verdict) == (0.04, 0.0, 0.03, "near")
    assert found.times_floor == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("measure", "verdict"),
    [
        ("Distribution: nodes", "off"),  # three times the floor
        ("Distribution: outcome", "near"),  # no floor, but so small that nobody could tell
        ("Lag-1 autocorrelation", "off"),
        ("Dispersion of hourly counts", "near"),  # nearer than the floor
        ("Exact copies", "off"),  # twenty times what chance gives
        ("Told apart, three in a row", "near"),
        ("Nearest-record ratio", "near"),  # further away than unseen jobs is no fault
        ("Membership attack", "off"),
    ],
)
def test_near_is_what_real_weeks_reach_among_themselves(measure, verdict):
    assert lines()[measure].verdict == verdict


def test_what_was_not_measured_is_left_out_and_the_order_of_jobs_comes_before_other_columns():
    measures = list(lines())
    assert "Told apart, job by job" not in measures
    assert measures.index("Lag-1 autocorrelation") < measures.index("Distribution: nodes")


@pytest.mark.parametrize("card", [{}, {"columns": 3, "floor": "x"}, {"lag1": {"real": float("nan"), "synthetic": True}}])
def test_a_scorecard_that_is_none_has_no_lines(card):
    assert scores_of(card) == []
