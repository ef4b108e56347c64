"""The thread that acts: dry until it is armed, and the ledger of the dry run is settled as jobs end."""

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.answers.actions.acts import arm_policy, disarm_policy
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.records.actions.acts import ActState, Mode
from stormpetrel.watch.actions import acting
from stormpetrel.watch.actions.acting import KnownNow, settle_ledger
from stormpetrel.watch.loop import Watch
from tests.parts.acting_site import CANCEL, acting_site, flag, tell, turn
from tests.parts.watched_site import TRAINED, copy_site, move_clock


@pytest.fixture
def world(tmp_path):
    with acting_site(tmp_path) as world:
        yield world


def test_a_policy_that_is_listed_runs_dry_and_does_nothing(world):
    site, slurm = world
    flag(site)
    turn(site)
    turn(site)
    assert [(act.mode, act.state) for act in site.actions.list()] == [("dry", "dry")] and slurm.calls() == []


def test_an_armed_policy_acts_once_and_a_disarmed_one_no_more(world):
    site, slurm = world
    arm_policy(site, LOCAL, "cancel", without_dry_run=True)
    flag(site)
    turn(site)
    turn(site)
    assert slurm.calls() == ["scancel 7"] and [act.state for act in site.actions.list(modes=[Mode.LIVE])] == ["done"]
    disarm_policy(site, LOCAL, "cancel")
    flag(site, risk=0.99)
    turn(site)
    assert slurm.calls() == ["scancel 7"]


def test_the_dry_run_is_settled_when_its_job_has_ended(world):
    site, _ = world
    flag(site)
    turn(site)
    assert settle_ledger(site, site.now()) == 0
    (act,) = site.actions.list()
    tell(site, "FAILED", KnownNow(site).running_jobs()["submit_time"][0], hours=1.0)
    assert settle_ledger(site, site.now()) == 0  # it ends in an hour: that is not known yet
    assert settle_ledger(site, site.now() + timedelta(hours=2)) == 1
    totals = site.actions.totals(site.settings.actions.policies[0], Mode.DRY)
    assert (totals.right, totals.wrong) == (1, 0)
    held_s = (act.decided - KnownNow(site).site.jobs.read_jobs().collect()["start_time"][0]).total_seconds()
    assert totals.saved_core_s == pytest.approx(4 * (3600 - held_s), abs=1)


def test_a_policy_of_a_simulated_site_has_a_ledger_after_some_hours(tmp_path, prepared, sacct, monkeypatch):
    monkeypatch.setattr(acting, "_SETTLE_EVERY_S", 0.0)
    hold = {"name": "hold", "action": "hold", "tau": 0.05, "users": ["*"], "per_hour": 1000}
    tell_all = {"name": "tell", "action": "notify", "tau": 0.01, "users": ["*"], "per_hour": 1000}
    with copy_site(prepared, tmp_path / "site", sacct=sacct, actions={"policies": [hold, tell_all]}) as site:
        watch = Watch(site)
        for minutes in range(10, 130, 10):
            move_clock(site, TRAINED + timedelta(minutes=minutes))
            watch.step()
            turn(site)
        move_clock(site, TRAINED + timedelta(days=2))
        watch.step()
        turn(site)
        told = site.actions.totals(site.settings.actions.policies[1], Mode.DRY)
        judged = site.predictions.read().filter(pl.col("moment") == "start").collect()
        assert 0 < told.settled == told.right + told.wrong + neither(site) <= judged.height
        assert told.saved_core_s == told.lost_core_s == 0.0  # to be told costs and saves nothing
        assert {act.state for act in site.actions.list()} == {ActState.DRY}


def neither(site):
    return sum(act.outcome == "neither" for act in site.actions.list(policy="tell"))


def test_a_scheduler_that_is_away_for_long_fills_neither_the_audit_trail_nor_the_list(world):
    site, slurm = world
    arm_policy(site, LOCAL, "cancel", without_dry_run=True)
    slurm.script("squeue", "exit 1")
    flag(site)
    for _ in range(3):
        turn(site)
    assert [act.state for act in site.actions.list()] == ["held_back"]
    assert [entry.action for entry in site.audit.recent()] == ["policy armed"]


def test_what_a_policy_knows_is_read_again_when_a_table_has_changed(world):
    site, _ = world
    known = KnownNow(site)
    assert known.judged_jobs(site.now()).is_empty()
    flag(site)
    assert known.judged_jobs(site.now())["risk"].to_list() == pytest.approx([0.95])


def test_the_cap_of_a_dry_run_is_that_of_the_policy(tmp_path):
    with acting_site(tmp_path, policies=[CANCEL | {"per_hour": 1}, CANCEL | {"name": "again"}]) as (site, _):
        flag(site)
        turn(site)
        assert {act.policy for act in site.actions.list()} == {"cancel", "again"}
