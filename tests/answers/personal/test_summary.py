"""A person's own page: own jobs only, others as a whole, what to change."""

from __future__ import annotations

import re

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.personal.summary import personal_summary, summary_of_site
from stormpetrel.answers.schemas.personal import PersonalQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, UsageError
from tests.answers.personal.sites import NOW, people_site


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with people_site(tmp_path_factory.mktemp("people") / "site") as site:
        live = LiveSite(site)
        live.refresh()
        yield live


def test_failures_stand_beside_those_of_people_alike(live):
    mine = personal_summary(live, Viewer("ada", is_admin=False))
    assert (mine.jobs, mine.failed_jobs, mine.failed_share) == (10, 4, 0.4)
    assert mine.peers is not None and (mine.peers.failed_share, mine.peers.fewest) == (0.1, 6)
    assert mine.peers.levels == {"account+application": 1.0}
    (fit,) = mine.applications
    assert (fit.application, fit.jobs, fit.failed_jobs, fit.peers_failed_share) == ("fit", 10, 4, 0.1)


def test_waste_and_use_add_up(live):
    mine = personal_summary(live, Viewer("ada", is_admin=False))
    assert mine.lost_core_hours == pytest.approx(4 * 4 / 6) and mine.core_hours == pytest.approx(10 * 4 / 6)
    assert mine.used.cpu == pytest.approx(0.5) and mine.used.time == pytest.approx(1 / 6)


def test_energy_stands_beside_the_core_hours_and_says_how_it_is_known(live):
    mine = personal_summary(live, Viewer("ada", is_admin=False))
    assert mine.energy is not None and mine.energy.known == "estimated"
    assert mine.kwh > mine.lost_kwh >= 6 * mine.lost_core_hours / 1000 and mine.lost_co2_kg is None
    assert sum(line.lost_kwh for line in mine.applications) == pytest.approx(mine.lost_kwh)


def test_what_to_change_comes_from_the_latest_failed_job_of_an_application(live):
    (change,) = personal_summary(live, Viewer("ada", is_admin=False)).changes
    assert change.application == "fit" and change.state == "OUT_OF_MEMORY" and "memory" in f"{change.why} {change.sentence}"
    assert change.line is not None and change.line.startswith("#SBATCH --mem=")


def test_nobody_else_is_named(live):
    text = personal_summary(live, Viewer("ada", is_admin=False), PersonalQuestion(weeks="52")).model_dump_json()
    assert not re.search(r"\bbo\d*\b", text) and personal_summary(live, Viewer("ada", is_admin=False)).user == "ada"


def test_an_administrators_own_page_has_the_own_jobs_and_others_pages_are_open_to_administrators_alone(live):
    assert personal_summary(live, Viewer("bo1", is_admin=True)).jobs == 10
    assert personal_summary(live, Viewer("bo1", is_admin=True), PersonalQuestion(user="ada")).failed_jobs == 4
    with pytest.raises(AccessError):
        personal_summary(live, Viewer("bo1", is_admin=False), PersonalQuestion(user="ada"))


def test_where_nobody_is_logged_in_it_is_nobodys_page(live):
    with pytest.raises(UsageError, match="Nobody is logged in"):
        personal_summary(live, LOCAL)


def test_who_has_no_jobs_gets_a_page_that_says_so(live):
    empty = personal_summary(live, Viewer("nobody", is_admin=False))
    assert (empty.jobs, empty.failed_share, empty.peers, empty.applications, empty.changes) == (0, None, None, [], [])
    assert "nobody to compare with" in empty.notes[0]


def test_the_same_is_told_of_a_site_that_is_not_in_memory(live):
    live_answer = personal_summary(live, Viewer("ada", is_admin=False), PersonalQuestion(weeks="12"))
    assert summary_of_site(live.site, "ada", weeks=12, now=NOW) == live_answer
    assert live_answer.jobs == 10
