"""Acting on a real Slurm: the sick node that the watch finds is drained, jobs are cancelled, held and requeued elsewhere, caps
and the switch hold, and a job is cancelled by its owner and by nobody else.

Predictions are fed where the real ones would take two minutes to come; everything after them is real.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.answers.actions.acts import arm_policy, cancel_job, turn_switch
from stormpetrel.answers.actions.questions import actions_status
from stormpetrel.answers.schemas.actions import CancelAct, SwitchAct
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.records.actions.acts import Act, Mode
from stormpetrel.records.findings import FindingKind, SubjectKind
from stormpetrel.records.jobs import JobRef
from stormpetrel.sources.acting import run_command
from stormpetrel.sources.slurm import acting as slurm_acting
from stormpetrel.store.site import Site
from stormpetrel.watch import job_findings
from stormpetrel.watch.actions.acting import Acting, settle_ledger
from stormpetrel.watch.actions.checks import check_actions
from stormpetrel.watch.logs import Log
from stormpetrel.watch.reading import LiveReader
from stormpetrel.watch.running import WatchOptions, WatchRunner
from tests.builders import make_site
from tests.parts import find_program, wait_until
from tests.parts.acting_site import feed_prediction
from tests.parts.alarm_findings import finding
from tests.parts.inbox import Inbox
from tests.parts.raised_incidents import raise_incidents
from tests.parts.slurm import RealSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

OTHER = "daemon"  # a user of any machine
EVERYBODY = {"users": ["*"], "per_hour": 5}


@pytest.fixture(autouse=True)
def _this_slurm(slurm, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])


@pytest.fixture
def run(slurm) -> Iterator[Run]:
    """Jobs that are gone after the test."""
    jobs = Run(slurm)
    yield jobs
    jobs.end()


class Run:
    """Submits jobs, and cancels them in the end."""

    def __init__(self, slurm: RealSlurm) -> None:
        self.slurm, self.jobs = slurm, []

    def submit(self, *words: str, user: str = "") -> int:
        job = self.slurm.submit("--time=60", "--mem=10", "--requeue", *words, "--wrap=sleep 600", user=user)
        self.jobs.append(job)
        return job

    def running(self, *words: str, user: str = "") -> int:
        job = self.submit(*words, user=user)
        wait_until(lambda: self.state(job) == "RUNNING", "it runs", limit_s=60)
        return job

    def state(self, job: int) -> str:
        return self.slurm.command("squeue", "-h", "-a", "-t", "all", "-j", str(job), "-o", "%T").strip()

    def end(self) -> None:
        if self.jobs:
            run_command(["scancel", *map(str, self.jobs)], 30)


def site_with(
    tmp_path: Path, *policies: dict[str, Any], armed: bool = True, sections: dict[str, Any] | None = None, **actions: Any
) -> Site:
    """A site beside the cluster whose policies are armed, unless they are to run dry."""
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat(timespec="seconds")
    section = {"policies": list(policies), "per_hour": 100, **actions}
    slurm = {"since": since, "pause_s": 0.0, "timeout_s": 60.0}
    watch = {"retrain_hours": 0.0, "address": ""}
    site = make_site(tmp_path / "site", slurm=slurm, actions=section, watch=watch, **sections or {})
    for policy in policies if armed else ():
        arm_policy(site, LOCAL, policy["name"], without_dry_run=True)
    return site


def turn(site: Site) -> list[Act]:
    """One turn of the thread that acts; what it did, the newest first."""
    Acting(site, Log(io.StringIO()), every_s=1.0).step()
    return list(site.actions.list(modes=[Mode.LIVE]))


def ref_of(site: Site, job: int) -> JobRef:
    LiveReader(site).read()
    return JobRef.of(site.jobs.read_jobs().filter(pl.col("job_id") == job).collect().row(-1, named=True))


def predict(site: Site, job: int, moment: str, risk: float) -> JobRef:
    """Feed what a model would say of a job now."""
    ref = ref_of(site, job)
    feed_prediction(site, ref, moment, risk)
    return ref


def test_the_sick_node_that_the_watch_finds_is_drained_and_can_be_resumed(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(job_findings, "SETTLED", timedelta(seconds=1))
    # Five: how sure the rule is depends on the order in which jobs end, and of one burst by three people it may not be.
    people = ("", *(slurm.add_user(name) for name in (OTHER, "games", "news", "uucp")))
    healthy, sick = slurm.nodes
    script = 'test "$SLURMD_NODENAME" != ' + sick
    for number in range(12):  # the same work on both nodes by turns: on one of them it is lost
        node = (sick, healthy)[number % 2]
        for user in people:
            slurm.submit("--job-name=fit", "--mem=10", "--time=5", f"--nodelist={node}", f"--wrap={script}", user=user)
    drain = {"name": "drain", "action": "drain", "nodes": ["n*"], "per_hour": 1}
    with site_with(tmp_path, drain) as site:
        runner = WatchRunner(site, WatchOptions(address="", poll_s=0.5), Log(io.StringIO()))

        def has_acted() -> bool:
            runner.turn()
            runner.others.step_once()
            return bool(site.actions.list(modes=[Mode.LIVE]))

        try:
            wait_until(has_acted, "the watch finds the sick node and acts", limit_s=90)
            (act,) = site.actions.list(modes=[Mode.LIVE])
            assert (act.node, act.state, act.evidence["kind"]) == (sick, "done", "node_eats_jobs")
            shown = slurm.command("scontrol", "-o", "show", "node", sick)
            assert "DRAIN" in shown and f"stormpetrel: incident {act.evidence['incident']}, policy drain" in shown
            assert [entry.action for entry in site.audit.recent(2)] == ["action drain", "policy armed"]
        finally:
            runner.end()
            slurm.command("scontrol", "update", f"NodeName={sick}", "State=RESUME")


def test_at_two_minutes_above_tau_jobs_are_cancelled_up_to_the_cap_and_not_twice(tmp_path, run):
    cancel = {"name": "cancel", "action": "cancel", "tau": 0.9, "users": ["*"], "per_hour": 1}
    with site_with(tmp_path, cancel) as site:
        riskiest, risky, calm = (run.running() for _ in range(3))
        for job, risk in ((riskiest, 0.99), (risky, 0.95), (calm, 0.5)):
            predict(site, job, "2min", risk)
        acts = turn(site)
        run.slurm.wait_for_state(riskiest, "CANCELLED")
        assert [run.state(job) for job in (risky, calm)] == ["RUNNING", "RUNNING"]
        assert sorted((JobRef.parse(act.subject).job_id, act.state.value) for act in acts) == [
            (riskiest, "done"), (risky, "held_back"),
        ]  # fmt: skip
        done = next(act for act in acts if act.state == "done")
        assert [(step.words[1:], step.code) for step in done.steps] == [((str(riskiest),), 0)]
        assert {act.key: act.state for act in turn(site)} == {act.key: act.state for act in acts}


def test_dry_nothing_is_done_and_the_ledger_says_what_it_would_have_saved(tmp_path, run):
    cancel = {"name": "cancel", "action": "cancel", "tau": 0.9, **EVERYBODY}
    with site_with(tmp_path, cancel, armed=False) as site:
        bad = run.slurm.submit("--time=60", "--mem=10", "--wrap=sleep 12; exit 1")
        good = run.slurm.submit("--time=60", "--mem=10", "--wrap=sleep 12")
        for job in (bad, good):
            wait_until(lambda job=job: run.state(job) == "RUNNING", "it runs", limit_s=60)
            predict(site, job, "2min", 0.99)
        assert turn(site) == [], "nothing is done"
        assert {act.state for act in site.actions.list(modes=[Mode.DRY])} == {"dry"}
        for job, state in ((bad, "FAILED"), (good, "COMPLETED")):
            run.slurm.wait_for_state(job, state)
        LiveReader(site).read()
        assert settle_ledger(site, site.now()) == 2
        (policy,) = actions_status(site, LOCAL, rights=True).policies
        assert (policy.dry.right, policy.dry.wrong, policy.missing_right) == (1, 1, "")
        assert policy.dry.saved_core_hours > 0 and policy.dry.lost_core_hours > 0


def test_the_owner_of_a_risky_job_gets_a_mail_and_slurm_is_only_asked(tmp_path, run):
    with Inbox() as inbox:
        route = {
            "name": "post", "kind": "email", "host": "127.0.0.1", "port": inbox.port, "tls": "none",
            "sender": "petrel@example.org", "recipients": ["admins@example.org"],
        }  # fmt: skip
        notify = {"name": "mail", "action": "notify", "through": "mail", "moment": "2min", "tau": 0.9, **EVERYBODY}
        address = {"mail_route": "post", "mail_address": "{user}@example.org"}
        with site_with(tmp_path, notify, sections={"notify": {"routes": [route]}}, **address) as site:
            job = run.running()
            predict(site, job, "2min", 0.99)
            (act,) = turn(site)
            assert act.state == "done" and run.state(job) == "RUNNING"
    assert [mail["Subject"] for mail in inbox.mails] == [f"Your job {job} is likely to fail (risk 99 %)"]


@pytest.mark.parametrize("by", ["database", "file"])
def test_when_the_switch_is_off_nothing_is_done(tmp_path, run, by):
    with site_with(tmp_path, {"name": "cancel", "action": "cancel", "tau": 0.9, **EVERYBODY}, cancel_by="owners") as site:
        job = run.running()
        ref = predict(site, job, "2min", 0.99)
        if by == "file":
            (site.folder / "ACTIONS_OFF").touch()
        else:
            turn_switch(site, LOCAL, SwitchAct(on=False, why="upgrade"))
        assert turn(site) == [] and run.state(job) == "RUNNING"
        refused = cancel_job(site, LOCAL, ref, CancelAct(confirm=str(job)), is_operator=True)
        assert refused.state == "off" and run.state(job) == "RUNNING"
        turn_switch(site, LOCAL, SwitchAct(on=True))
        assert [act.state for act in turn(site)] == ["done"]


def test_a_waiting_job_is_held_so_that_its_owner_can_release_it(tmp_path, run):
    with site_with(tmp_path, {"name": "hold", "action": "hold", "tau": 0.9, **EVERYBODY}) as site:
        run.slurm.add_user(OTHER)
        job = run.submit("--begin=now+1hour", user=OTHER)
        predict(site, job, "submit", 0.99)
        assert [act.state for act in turn(site)] == ["done"]
        reason = ("squeue", "-h", "-j", str(job), "-o", "%r")
        assert run.slurm.command(*reason).strip() == "JobHeldUser"
        as_owner = ("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "--")
        run.slurm.command(*as_owner, "scontrol", "release", str(job))
        assert run.slurm.command(*reason).strip() != "JobHeldUser"


def test_the_owner_of_a_risky_job_reads_so_in_its_output(tmp_path, run):
    with site_with(tmp_path, {"name": "tell", "action": "notify", "tau": 0.9, **EVERYBODY}) as site:
        job = run.running()
        predict(site, job, "start", 0.97)
        assert [act.state for act in turn(site)] == ["done"]
        output = run.slurm.folder / "work" / f"{job}.out"
        wait_until(lambda: output.exists() and "likely to fail (risk 97%)" in output.read_text(), "it stands there", limit_s=30)


def test_a_job_on_a_sick_node_is_requeued_elsewhere(tmp_path, run):
    sick = run.slurm.nodes[1]
    with site_with(tmp_path, {"name": "away", "action": "requeue", **EVERYBODY}) as site:
        there, elsewhere = run.running(f"--nodelist={sick}"), run.running(f"--nodelist={run.slurm.nodes[0]}")
        ref_of(site, there)
        now = site.now()
        raise_incidents(site, finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, sick), when=now, known=now))
        (act,) = turn(site)
        assert (act.state, act.why, [step.code for step in act.steps]) == ("done", "", [0, 0, 0])
        wait_until(lambda: run.state(there) == "PENDING", "it waits again", limit_s=30)
        shown = run.slurm.command("scontrol", "-o", "show", "job", str(there))
        assert f"ExcNodeList={sick}" in shown and "Reason=JobHeld" not in shown
        assert run.state(elsewhere) == "RUNNING"


def test_the_owner_of_a_job_may_cancel_it_and_another_user_may_not(tmp_path, run):
    run.slurm.add_user(OTHER)
    with site_with(tmp_path, cancel_by="owners") as site:
        job = run.running(user=OTHER)
        ref, sure = ref_of(site, job), CancelAct(confirm=str(job))
        with pytest.raises(AccessError, match="people with a name"):  # serve.login is none
            cancel_job(site, Viewer(OTHER, is_admin=False), ref, sure)
    with make_site(tmp_path / "named", slurm=site.settings.slurm.model_dump(), serve={"login": "token"},
                   actions={"cancel_by": "owners"}) as site:  # fmt: skip
        ref_of(site, job)
        with pytest.raises(NotThereError):
            cancel_job(site, Viewer("games", is_admin=False), ref, sure)
        assert run.state(job) == "RUNNING"
        assert cancel_job(site, Viewer(OTHER, is_admin=False), ref, sure).state == "done"
        run.slurm.wait_for_state(job, "CANCELLED")
        assert [(entry.user, entry.action) for entry in site.audit.recent(1)] == [(OTHER, "action cancel")]


def test_without_the_right_slurms_refusal_is_kept_and_the_doctor_says_which_right_is_missing(tmp_path, run, monkeypatch):
    run.slurm.add_user(OTHER)
    for name in ("scontrol", "scancel", "squeue", "sacctmgr", "sacct"):  # as a user without any right
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\nexec setpriv --reuid={OTHER} --regid={OTHER} --clear-groups -- {find_program(name)} "$@"\n'
        )
        script.chmod(0o755)
    monkeypatch.setattr(slurm_acting, "own_user_name", lambda: OTHER)
    monkeypatch.setattr(slurm_acting.os, "geteuid", lambda: 1)
    with site_with(tmp_path, {"name": "cancel", "action": "cancel", "tau": 0.9, **EVERYBODY}) as site:
        job = run.running()
        predict(site, job, "2min", 0.99)
        site.settings = site.settings.model_copy(
            update={"slurm": site.settings.slurm.model_copy(update={"sacct": str(tmp_path / "sacct")})}
        )
        (act,) = turn(site)
        assert act.state == "failed" and "denied" in act.why and run.state(job) == "RUNNING"
        (told,) = [one.what for one in check_actions(site) if one.level == "problem"]
        assert "needs AdminLevel=Operator in Slurm, and daemon has None" in told
