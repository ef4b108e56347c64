"""What is kept of acting: once each, counted against the caps over all processes, and a switch that works without a database."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.errors import NotThereError, StateAwayError
from stormpetrel.records.actions.acts import Act, ActState, Arming, Mode, Outcome
from stormpetrel.records.actions.policies import Action, Policy
from stormpetrel.store.actions import OFF_FILE, Caps, file_says_off, turn_off_by_file
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import T0, make_site

POLICY = Policy(name="p", action="cancel", users=["*"])


def act(key="a", **more):
    values = {
        "policy": "p", "digest": POLICY.digest, "mode": Mode.LIVE, "action": Action.CANCEL, "cluster": "c", "user": "ada",
        "subject": "7-1-0-c", "by": "policy:p", "decided": T0, "evidence": {"risk": 0.9}, "state": ActState.INTENDED,
    }  # fmt: skip
    return Act(key=key, **(values | more))


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as made:
        yield made


def test_an_act_is_noted_once_whoever_decides_it_again(site):
    assert site.actions.intend(act(), Caps(), T0) == ActState.INTENDED
    assert site.actions.intend(act(), Caps(), T0) is None


def test_what_is_kept_comes_back_as_it_was(site):
    site.actions.intend(act(), Caps(), T0)
    assert site.actions.get("a") == act()
    with pytest.raises(NotThereError):
        site.actions.get("b")


def test_a_cap_holds_and_what_it_held_back_is_noted_when_there_is_room(site):
    caps = Caps(policy=1, total=5)
    assert [site.actions.intend(act(key), caps, T0) for key in "ab"] == [ActState.INTENDED, ActState.HELD_BACK]
    assert site.actions.intend(act("b"), caps, T0 + timedelta(minutes=59)) == ActState.HELD_BACK
    assert site.actions.intend(act("b"), caps, T0 + timedelta(minutes=61)) == ActState.INTENDED


def test_all_policies_share_a_cap_and_a_clock_that_goes_back_gives_no_room(site):
    assert site.actions.intend(act("a"), Caps(5, 1), T0) == ActState.INTENDED
    assert site.actions.intend(act("b", policy="q"), Caps(5, 1), T0) == ActState.HELD_BACK
    assert site.actions.intend(act("c"), Caps(1, 5), T0 - timedelta(days=1)) == ActState.HELD_BACK


def test_what_was_refused_counts_against_no_cap_and_what_may_have_been_done_does(site):
    for key, state in (("a", ActState.REFUSED), ("b", ActState.INTERRUPTED)):
        site.actions.intend(act(key), Caps(), T0)
        site.actions.update(replace(act(key), state=state))
    assert site.actions.in_last_hour(T0) == 1


def test_the_cap_holds_over_all_processes_that_want_to_act_at_once(site):
    def want(number):
        with open_site(site.folder) as own:
            return own.actions.intend(act(f"act{number}"), Caps(3, 100), T0)

    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(want, range(12)))
    assert states.count(ActState.INTENDED) == 3


def test_the_switch_stops_what_is_decided_after_it(site):
    site.actions.turn(on=False, by="root", why="upgrade", now=T0)
    assert site.actions.intend(act(), Caps(), T0) == ActState.OFF
    assert (site.actions.switch().by, site.actions.switch().why) == ("root", "upgrade")
    site.actions.turn(on=True, by="root", why="", now=T0)
    assert site.actions.switch().is_on and not file_says_off(site.folder)


def test_the_file_alone_says_off_also_when_the_database_is_away(site, monkeypatch):
    turn_off_by_file(site.folder)
    assert site.actions.intend(act(), Caps(), T0) == ActState.OFF

    def is_away():
        raise StateAwayError("The database does not answer.")

    monkeypatch.setattr(site.state, "transaction", is_away)
    assert (site.folder / OFF_FILE).exists() and not site.actions.switch().is_on


def test_a_policy_that_was_changed_is_not_armed_any_more_nor_when_it_is_changed_back(site):
    changed = POLICY.model_copy(update={"tau": 0.5})
    site.actions.list_policies([POLICY], T0)
    site.actions.arm(Arming("p", POLICY.digest, T0, armed=T0, by="root"))
    assert site.actions.list_policies([POLICY], T0, drop_others=True)["p"].armed == T0
    assert site.actions.list_policies([changed], T0, drop_others=True)["p"].armed is None
    assert site.actions.armings([POLICY], T0)["p"].armed is None


def test_a_dry_run_is_kept_once_each_and_no_faster_than_its_cap(site):
    dry = [act(key, mode=Mode.DRY, state=ActState.DRY) for key in "abc"]
    assert [one.key for one in site.actions.keep_dry(dry, 2, T0)] == ["a", "b"]
    assert site.actions.keep_dry(dry, 2, T0) == []
    assert [one.key for one in site.actions.keep_dry(dry, 2, T0 + timedelta(hours=2))] == ["c"]


def test_the_ledger_adds_up_what_was_settled_of_the_policy_as_it_is(site):
    dry = [act(key, mode=Mode.DRY, state=ActState.DRY) for key in "abc"] + [act("d", mode=Mode.DRY, digest="older")]
    site.actions.keep_dry(dry, 10, T0)
    site.actions.settle([replace(dry[0], settled=T0, outcome=Outcome.RIGHT, saved_core_s=7200.0, right_jobs=1)])
    site.actions.settle([replace(dry[1], settled=T0, outcome=Outcome.WRONG, lost_core_s=3600.0, wrong_jobs=1)])
    totals = site.actions.totals(POLICY, Mode.DRY)
    assert (totals.cases, totals.settled, totals.right, totals.wrong) == (3, 2, 1, 1)
    assert (totals.saved_core_s, totals.lost_core_s) == (7200.0, 3600.0)
    assert [one.key for one in site.actions.unsettled(10)] == ["c", "d"]


def test_old_acts_are_let_go_of_but_none_that_is_under_way(site):
    for key, state in (("a", ActState.DONE), ("b", ActState.RUNNING)):
        site.actions.intend(act(key), Caps(), T0)
        site.actions.update(replace(act(key), state=state))
    assert site.actions.prune(T0 + timedelta(days=1)) == 1
    assert [one.key for one in site.actions.unfinished()] == ["b"]


def test_a_forgotten_user_is_in_no_act(site):
    site.actions.intend(act("a"), Caps(), T0)
    site.actions.intend(act("b", user="bob", by="ada"), Caps(), T0)
    forget(site, "ada")
    (left,) = site.actions.list()
    assert (left.key, left.by) == ("b", "[forgotten]")
