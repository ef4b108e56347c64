"""Who may arm, switch and cancel: administrators; of own jobs their owners, with a login and a confirmation."""

from datetime import timedelta

import pytest

from stormpetrel.answers.actions.acts import arm_policy, cancel_job, disarm_policy, latest_job, may_cancel, turn_switch
from stormpetrel.answers.actions.questions import actions_status, list_acts, plan_policy, show_act
from stormpetrel.answers.schemas.actions import ActQuestion, CancelAct, SwitchAct
from stormpetrel.answers.viewer import LOCAL, SCOPES, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.records.actions.acts import Arming
from tests.parts.acting_site import CANCEL, acting_site, flag, job_ref, turn

ADA, EVE = (Viewer(user, is_admin=False) for user in ("ada", "eve"))
ROOT = Viewer("root", is_admin=True)
SURE = CancelAct(confirm="7")


@pytest.fixture
def world(tmp_path):
    with acting_site(tmp_path) as world:
        yield world


def test_a_policy_is_armed_only_after_its_dry_run_or_by_saying_so(world):
    site, _ = world
    with pytest.raises(UsageError, match=r"has run dry for 0.0 of 168 hours and 0 of 5 cases are settled"):
        arm_policy(site, LOCAL, "cancel")
    line = arm_policy(site, LOCAL, "cancel", without_dry_run=True)
    assert line.armed and line.without_dry_run and site.audit.recent()[0].action == "policy armed"
    assert not disarm_policy(site, LOCAL, "cancel").armed


def test_a_policy_whose_dry_run_is_over_is_armed_without_more(tmp_path):
    with acting_site(tmp_path, policies=[CANCEL | {"dry_hours": 1.0, "dry_cases": 0}]) as (site, _):
        (policy,) = site.settings.actions.policies
        site.actions.arm(Arming("cancel", policy.digest, site.now() - timedelta(hours=2)))
        line = arm_policy(site, LOCAL, "cancel")
        assert line.armed and not line.without_dry_run


def test_a_policy_without_an_allow_list_is_never_armed(tmp_path):
    with acting_site(tmp_path, policies=[CANCEL | {"users": []}]) as (site, _), pytest.raises(UsageError, match="no allow-list"):
        arm_policy(site, LOCAL, "cancel", without_dry_run=True)


def test_a_policy_that_is_not_there_is_named(world):
    with pytest.raises(NotThereError, match="Known: cancel"):
        arm_policy(world[0], LOCAL, "drain")


def test_an_owner_cancels_his_own_job_and_it_is_in_the_audit_trail(world):
    site, slurm = world
    receipt = cancel_job(site, ADA, job_ref(site), SURE)
    assert (receipt.state, receipt.by, slurm.calls()) == ("done", "ada", ["scancel 7"])
    assert [(entry.user, entry.action) for entry in site.audit.recent()] == [("ada", "action cancel")]


def test_an_administrator_cancels_any_job(world):
    assert cancel_job(world[0], ROOT, job_ref(world[0]), SURE).state == "done"


def test_a_job_of_somebody_else_is_not_there(world):
    site, slurm = world
    with pytest.raises(NotThereError):
        cancel_job(site, EVE, job_ref(site), SURE)
    assert slurm.calls() == []


def test_a_job_is_cancelled_only_with_its_id_once_more(world):
    site, slurm = world
    with pytest.raises(AccessError, match="not confirmed"):
        cancel_job(site, ADA, job_ref(site), CancelAct(confirm="8"))
    assert slurm.calls() == []


@pytest.mark.parametrize(
    ("cancel_by", "login", "viewer", "refusal"),
    [
        ("nobody", "token", ROOT, "not cancelled from here"),
        ("owners", "none", LOCAL, "people with a name"),
        ("admins", "token", ADA, "Only administrators"),
    ],
)
def test_where_the_site_does_not_allow_it_nobody_cancels(tmp_path, cancel_by, login, viewer, refusal):
    with acting_site(tmp_path, cancel_by=cancel_by, serve={"login": login}) as (site, slurm):
        with pytest.raises(AccessError, match=refusal):
            cancel_job(site, viewer, job_ref(site), SURE)
        assert slurm.calls() == [] and not may_cancel(site, viewer)


def test_without_the_scope_to_act_nobody_cancels(world):
    reader = Viewer("ada", is_admin=False, scopes=frozenset(SCOPES) - {"act"})
    with pytest.raises(AccessError, match="'act'"):
        cancel_job(world[0], reader, job_ref(world[0]), SURE)
    assert may_cancel(world[0], ADA) and not may_cancel(world[0], reader)


def test_the_switch_holds_for_people_too(world):
    site, slurm = world
    turn_switch(site, ROOT, SwitchAct(on=False, why="upgrade"))
    assert cancel_job(site, ADA, job_ref(site), SURE).state == "off" and slurm.calls() == []
    with pytest.raises(AccessError):
        turn_switch(site, ADA, SwitchAct(on=True))


def test_the_status_says_what_the_dry_run_came_to_and_what_is_missing(world):
    site, slurm = world
    slurm.write("level.txt", "None\n")
    flag(site)
    turn(site)
    status = actions_status(site, ROOT, rights=False)
    (policy,) = status.policies
    assert (policy.when, policy.allow_list, policy.dry.cases) == ("two minutes in, risk 0.9 or more", "users *", 1)
    assert policy.needs == "Slurm: AdminLevel=Operator" and "cannot be armed yet" in policy.to_arm
    with pytest.raises(AccessError):
        actions_status(site, ADA)


def test_a_plan_shows_the_commands_and_gives_none(world):
    site, slurm = world
    flag(site)
    (case,) = plan_policy(site, ROOT, "cancel").cases
    assert case.subject == "7" and case.commands[0][1:] == ["7"] and slurm.calls() == []


def test_a_user_sees_the_acts_on_own_jobs_only(world):
    site, _ = world
    flag(site)
    turn(site)
    (act,) = list_acts(site, ADA, ActQuestion()).acts
    assert list_acts(site, EVE, ActQuestion()).acts == [] and show_act(site, ADA, act.key).user == "ada"
    with pytest.raises(NotThereError):
        show_act(site, EVE, act.key)


def test_the_latest_job_of_an_id_is_found(world):
    assert latest_job(world[0], LOCAL, "7")[1] == "ada"
    with pytest.raises(NotThereError):
        latest_job(world[0], LOCAL, "7; reboot")
