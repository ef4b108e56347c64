"""What verdicts have changed is counted from the incidents that they kept off the list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.alarms.incidents import day_text, list_incidents, show_incident, verdict_effects
from stormpetrel.answers.schemas.alarms import IncidentQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.records.incidents import ActKind, IncidentAct
from stormpetrel.watch.incident_keeper import IncidentKeeper
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def site(tmp_path):
    """Bob's batch was dismissed ten days ago; since then one of his was like it, and one of another user was not."""
    with make_site(tmp_path / "site", site={"time_zone": "UTC"}) as site:
        take(site, batch_finding("bob", when=NOW - 11 * DAY))
        site.incidents.add_act(IncidentAct(1, NOW - 10 * DAY, "anna", ActKind.DISMISS, "his own test"))
        take(site, batch_finding("bob", when=NOW - 2 * timedelta(hours=1)), batch_finding("cat", when=NOW))
        yield site


def take(site, *findings):
    keeper = IncidentKeeper(site)
    for one in findings:
        keeper.take("jobs", [one], "", one.known_at)


def test_the_list_says_how_many_alarms_there_were_fewer_since_a_verdict(site):
    answer = list_incidents(site, LOCAL)
    assert [line.id for line in answer.incidents] == [3] and answer.quiet == 1
    (effect,) = answer.verdicts.verdicts
    assert (answer.verdicts.fewer_alarms, effect.incident, effect.user, effect.incidents) == (1, 1, "anna", [2])
    day = f"{NOW - 10 * DAY:%Y-%m-%d}"
    assert effect.words == f"since anna's word of {day} on incident 1: 1 fewer alarm"


def test_an_incident_that_is_not_listed_says_which_one_it_is_like_and_who_dismissed_that(site):
    assert [line.id for line in list_incidents(site, LOCAL, IncidentQuestion(state="quiet")).incidents] == [2]
    shown = show_incident(site, LOCAL, 2)
    assert shown.like == 1
    assert shown.held_back_words == f"It is like incident 1, dismissed by anna on {NOW - 10 * DAY:%Y-%m-%d}."


def test_a_verdict_that_is_withdrawn_has_no_effect(site):
    site.incidents.add_act(IncidentAct(1, NOW, "anna", ActKind.WITHDRAW))
    assert verdict_effects(site, LOCAL).fewer_alarms == 0


def test_users_are_told_nothing_of_verdicts(site):
    assert verdict_effects(site, Viewer("bob", is_admin=False)).verdicts == []


@pytest.mark.parametrize(("ago", "words"), [(0, "today"), (1, "yesterday"), (3, "on Sunday"), (20, "on 2026-10-29")], ids=str)
def test_a_day_is_called_as_people_do(ago, words):
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)  # a Wednesday
    assert day_text(now - ago * DAY, now, "UTC") == words
