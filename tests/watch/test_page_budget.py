"""The budget of a live site does not depend on when a watch was started."""

from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.records.incidents import ActKind, IncidentAct
from stormpetrel.watch import page_budget
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.page_budget import DailyBudgets, site_history
from stormpetrel.watch.past.replay import Replay
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at

BEGAN = 60.0  # days after the first record


@pytest.fixture
def replays(monkeypatch):
    """What a replay of the eight weeks before the first watch is asked for; it raises a batch every second day."""
    asked = []

    def replay(site, *, since, until, count_jobs):
        asked.append((since, until))
        keeper = IncidentKeeper(site)
        with make_site(site.folder.parent / f"past{len(asked)}") as past:
            keeper = IncidentKeeper(past)
            for day in range(5, 60, 2):
                keeper.take("jobs", [batch(f"old{day}", day, score=float(day))], "", at(day))
            return Replay(tuple(past.incidents.list()), since, until, (since, until))

    monkeypatch.setattr(page_budget, "replay", replay)
    monkeypatch.setattr(page_budget, "recorded_span", lambda _site: (at(0), at(BEGAN)))
    return asked


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", alarms={"pages_per_week": 2.0}) as site:
        yield site


def batch(user, day, *, score, hour=0.0):
    when = at(day) + timedelta(hours=hour)
    return replace(batch_finding(user, when=when, deciding_score=score), known_at=when)


def decisions(site, *, restart_before):
    """Which of some batches over two days are sent, where the watch starts again before some of them."""
    keeper, sent = IncidentKeeper(site, DailyBudgets(site)), []
    for number in range(16):
        if number in restart_before:
            keeper = IncidentKeeper(site, DailyBudgets(site))
        one = batch(f"new{number}", BEGAN, hour=3.0 * number, score=10.0 + 3.0 * number)
        raised = max(keeper.take("jobs", [one], "", one.known_at), key=lambda incident: incident.id)
        sent.append((raised.page, raised.held_back))
    return sent


def test_a_watch_that_starts_again_sends_what_one_that_goes_on_sends(tmp_path, replays):
    ends = []
    for number, restarts in enumerate([(), (3,), range(16)]):
        with make_site(tmp_path / f"site{number}", alarms={"pages_per_week": 2.0}) as site:
            ends.append(decisions(site, restart_before=restarts))
    assert ends[0] == ends[1] == ends[2]
    assert len(set(ends[0])) == 3  # sent, below the threshold, and held back by the cap


def test_the_past_is_replayed_once_however_often_a_watch_starts(site, replays):
    for hour in range(4):
        DailyBudgets(site).current(at(BEGAN) + timedelta(hours=hour))
    DailyBudgets(site).current(at(BEGAN + 3))
    assert replays == [(at(BEGAN) - timedelta(weeks=8), at(BEGAN))]


def test_what_was_not_committed_was_not_sent(site, replays, monkeypatch):
    keeper = IncidentKeeper(site, DailyBudgets(site))
    urgent = [finding(when=at(BEGAN), users=(f"u{number}",), jobs=(f"{number}",)) for number in range(2)]
    monkeypatch.setattr(site.incidents, "next_number", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        keeper.take("jobs", urgent[:1], "", at(BEGAN))
    monkeypatch.undo()
    monkeypatch.setattr(page_budget, "recorded_span", lambda _site: (None, None))
    (incident,) = keeper.take("jobs", urgent[1:], "", at(BEGAN))
    budget = DailyBudgets(site).current(at(BEGAN))
    assert incident.page and budget.has_room(at(BEGAN), by_rule=False)


def test_what_people_confirmed_is_no_part_of_the_calm_history_of_the_next_day(site, replays):
    keeper = IncidentKeeper(site, DailyBudgets(site))
    keeper.take("jobs", [batch("ann", BEGAN, score=50.0)], "", at(BEGAN))
    (number,) = [one.id for one in site.incidents.list()]
    before = site_history(site, at(BEGAN + 1))
    site.incidents.add_act(IncidentAct(number, at(BEGAN), "root", ActKind.CONFIRM, ""))
    after = site_history(site, at(BEGAN + 1))
    assert number in [one.id for one in before.past] and number not in [one.id for one in after.past]


def test_a_first_watch_learns_beside_the_loop_and_says_when_it_is_done(site, replays):
    budgets = DailyBudgets(site)
    assert not budgets.is_ready(at(BEGAN))
    wait_until(lambda: budgets.is_ready(at(BEGAN)), "the past is replayed", limit_s=30)
    assert len(replays) == 1 and DailyBudgets(site).is_ready(at(BEGAN + 1))


def test_where_nothing_is_promised_nothing_is_learnt(tmp_path, replays):
    with make_site(tmp_path / "none", alarms={"pages_per_week": 0.0}) as site:
        budgets = DailyBudgets(site)
        assert budgets.is_ready(at(BEGAN)) and budgets.current(at(BEGAN)) is None and replays == []
