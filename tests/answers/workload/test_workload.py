"""The workload: for whom, what is known of the generator, and which jobs are drawn."""

from __future__ import annotations

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.answers.workload.scores import scores_of
from stormpetrel.answers.workload.workload import make_workload_board, workload_answer, workload_board
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
