"""The rehearsal as faces get it."""

import pytest

from stormpetrel.answers.alarms import rehearsal
from stormpetrel.answers.alarms.rehearsal import last_rehearsal, rehearse_site
from stormpetrel.answers.schemas.rehearsal import RehearsalQuestion
from stormpetrel.answers.viewer import LOCAL, SCOPES, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.rehearse.site.coverage import Trial
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.rehearse.site.rehearsal import Rehearsal
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
