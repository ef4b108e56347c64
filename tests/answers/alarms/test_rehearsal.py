"""The rehearsal as faces get it."""

import threading
from unittest.mock import MagicMock

import pytest

from stormpetrel.answers.alarms import rehearsal
from stormpetrel.answers.alarms.rehearsal import last_rehearsal, rehearse_live, rehearse_site
from stormpetrel.answers.schemas.alarms import RehearsalQuestion
from stormpetrel.answers.viewer import LOCAL, SCOPES, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.rehearse.site.coverage import Trial
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.rehearse.site.rehearsal import Rehearsal
from stormpetrel.rehearse.site.shadow import ShadowPace
from tests.builders import T0, make_site

USER = Viewer("ada", is_admin=False, scopes=frozenset(SCOPES))


@pytest.fixture
def site(tmp_path, monkeypatch):
    fault = Injection("node_down", "mild", T0, T0, frozenset({"jobs"}))
    trials = (Trial(fault, 60.0, None), Trial(fault, 30.0, 90.0))
    done = Rehearsal(T0, T0.replace(month=4), trials, 0.5, ("There are no CPU windows.",), walks=2)
    monkeypatch.setattr(rehearsal, "rehearse", lambda *_, **__: done)
    with make_site(tmp_path / "site") as site:
        yield site


def test_the_keys_are_those_of_the_design_page(site):
    answer = rehearse_site(site, LOCAL, RehearsalQuestion()).model_dump(mode="json")
    assert {"faults", "false_pages_per_week", "holes"} <= set(answer)
    cell = answer["faults"]["node_down"]["mild"]
    assert (cell["recall"], cell["delay_s"], cell["n"], cell["paged"]) == (1.0, 45.0, 2, 0.5)
    assert answer["false_pages_per_week"] == 0.5 and answer["holes"] == ["There are no CPU windows."]


def test_what_it_came_to_is_kept_for_the_page(site):
    assert last_rehearsal(site, LOCAL) is None
    answer = rehearse_site(site, LOCAL, RehearsalQuestion(seed=7))
    assert last_rehearsal(site, LOCAL) == answer and answer.seed == 7
    assert last_rehearsal(site, LOCAL, live=True) is None


def test_a_report_of_another_version_is_none(site):
    rehearse_site(site, LOCAL, RehearsalQuestion())
    (site.folder / "rehearsal" / "history.json").write_text('{"faults": 3}')
    assert last_rehearsal(site, LOCAL) is None


def test_users_neither_rehearse_nor_see_it(site):
    for ask in (lambda: rehearse_site(site, USER, RehearsalQuestion()), lambda: last_rehearsal(site, USER)):
        with pytest.raises(AccessError):
            ask()


def test_beside_the_live_stream_faults_of_earlier_runs_are_counted_on(site, monkeypatch):
    def one_look(_site, _plan, _pace, note, *, stop):
        shadow = MagicMock(missing=("There is no live stream of CPU windows here.",))
        shadow.false_pages_per_week.return_value = 0.25
        note(shadow, [Trial(Injection("node_down", "mild", T0, T0, frozenset({"jobs"})), 60.0, None)], T0)

    monkeypatch.setattr(rehearsal, "run_shadow", one_look)
    pace, heard = ShadowPace(1.0, 1), []
    for _ in range(2):
        answer = rehearse_live(site, LOCAL, RehearsalQuestion(), pace, stop=threading.Event(), note=heard.append)
    assert answer.live and answer.faults["node_down"]["mild"].n == 2 == len(heard)
    assert last_rehearsal(site, LOCAL, live=True) == answer and last_rehearsal(site, LOCAL) is None


def test_a_look_beside_the_live_stream_writes_nothing_but_its_report(tmp_path):
    with make_site(tmp_path / "site") as site:
        answer = rehearse_live(site, LOCAL, RehearsalQuestion(), ShadowPace(0.2, 1), stop=threading.Event())
        assert answer.faults == {} and any("CPU windows" in hole for hole in answer.holes)
        assert sorted(path.name for path in (site.folder / "rehearsal").iterdir()) == ["live.json"]
