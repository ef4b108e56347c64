"""What people do about acting: turn the switch, arm and disarm a policy, cancel a job.

Site + Viewer + SwitchAct -> turn_switch -> SwitchLine; + name -> arm_policy, disarm_policy -> PolicyLine; + JobRef -> cancel_job
-> ActLine. Each stands in the audit trail. Caps and allow-lists are for policies; the switch holds for people as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from stormpetrel.answers.actions.questions import act_line, named_policy, policy_line, switch_line, to_arm
from stormpetrel.answers.overview.overview import not_there
from stormpetrel.answers.schemas.actions import ActLine, CancelAct, PolicyLine, SwitchAct, SwitchLine
from stormpetrel.answers.viewer import ACT, MANAGE, READ
from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.records.actions.acts import Act, ActState, Mode
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.jobs import JobRef, job_number, jobs_with_id
from stormpetrel.records.states import FINISHED
from stormpetrel.store.actions import Caps
from stormpetrel.watch.actions.catch import Catch

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def turn_switch(site: Site, viewer: Viewer, act: SwitchAct) -> SwitchLine:
    """Stop everything at once, or let policies and people act again; administrators only."""
    viewer.require(MANAGE)
    user = viewer.signature(site)
    switch = site.actions.turn(on=act.on, by=user, why=act.why, now=site.now())
    site.audit.record(user, f"actions {'on' if act.on else 'off'}", {"why": act.why} if act.why else {})
    return switch_line(switch)


def arm_policy(site: Site, viewer: Viewer, name: str, *, without_dry_run: bool = False) -> PolicyLine:
    """Let a policy act from now on; UsageError where its dry run is not over, unless `without_dry_run` says so, and without an
    allow-list in any case.
    """
    viewer.require(MANAGE)
    policy, now = named_policy(site, name), site.now()
    arming = site.actions.armings(site.settings.actions.policies, now)[name]
    missing = to_arm(policy, arming, policy_line(site, policy).dry.settled, now)
    if missing and (policy.names_nobody or not without_dry_run):
        hint = (
            ""
            if policy.names_nobody
            else f"See its ledger: stormpetrel actions ledger {name}. To arm it all the same: --without-dry-run"
        )
        raise UsageError(missing, hint=hint)
    user = viewer.signature(site)
    site.actions.arm(replace(arming, armed=now, by=user, without_dry_run=bool(missing)))
    about = {"policy": name, "digest": policy.digest, "without_dry_run": bool(missing)}
    site.audit.record(user, "policy armed", about)
    return policy_line(site, policy)


def disarm_policy(site: Site, viewer: Viewer, name: str) -> PolicyLine:
    """Let a policy run dry again; what is under way is brought to its end."""
    viewer.require(MANAGE)
    policy = named_policy(site, name)
    arming = site.actions.armings(site.settings.actions.policies, site.now())[name]
    site.actions.arm(replace(arming, armed=None, by="", without_dry_run=False))
    site.audit.record(viewer.signature(site), "policy disarmed", {"policy": name})
    return policy_line(site, policy)


def cancel_job(site: Site, viewer: Viewer, ref: JobRef, act: CancelAct, *, is_operator: bool = False) -> ActLine:
    """Cancel one job: its owner, or an administrator, with its id once more; NotThereError where it is not the viewer's.

    `is_operator` is whoever runs the command line: the scheduler itself sees who that is, and decides.
    """
    viewer.require(ACT)
    job = _own_job(site, viewer, ref)
    if not is_operator:
        _require_cancel(site, viewer)
    if job["state"] in {str(state) for state in FINISHED}:
        raise NotThereError(f"Job {ref.job} has ended: {job['state']}.", hint="There is nothing to cancel.")
    if act.confirm.strip() != ref.job:
        raise AccessError(f"Job {ref.job} is not confirmed.", hint=f"Repeat its id: {ref.job}")
    now, user = site.now(), viewer.signature(site)
    order = Act(
        key=f"person:{ref}:{now.isoformat()}"[:400], policy="", digest="", mode=Mode.PERSON, action=Action.CANCEL,
        cluster=ref.cluster, subject=str(ref), user=job["user"] or "", by=user, decided=now, evidence={}, state=ActState.INTENDED,
        source=job["source"] or "",
    )  # fmt: skip
    return act_line(site, Catch(site).perform(order, Caps()))


def latest_job(site: Site, viewer: Viewer, text: str) -> tuple[JobRef, str]:
    """Return the latest of the viewer's jobs with an id as people write it, and its user; NotThereError where there is none."""
    viewer.require(READ)
    number = job_number(text)
    rows = site.jobs.read_jobs().filter((pl.col("job_id") == number) | (pl.col("job_id_raw") == number), viewer.sees()).collect()
    matches = jobs_with_id(rows, text).sort("submit_time", descending=True)
    if matches.is_empty():
        raise NotThereError(f"There is no job {text[:40]!r} in the site.", hint="Has the watch, or an ingest, read it yet?")
    row = matches.row(0, named=True)
    return JobRef.of(row), row["user"] or ""


def may_cancel(site: Site, viewer: Viewer) -> bool:
    """Whether a viewer is shown the button: he may cancel the jobs that are his to cancel."""
    try:
        viewer.require(ACT)
        _require_cancel(site, viewer)
    except AccessError:
        return False
    return not site.read_only


def _require_cancel(site: Site, viewer: Viewer) -> None:
    who = site.settings.actions.cancel_by
    if who == "nobody":
        raise AccessError(
            "Jobs are not cancelled from here.", hint="An administrator can allow it: actions.cancel_by in site.toml."
        )
    if site.settings.serve.login == "none":
        raise AccessError(
            "Jobs are cancelled by people with a name, and nobody has to log in here.",
            hint='Set serve.login = "token" or "proxy" in site.toml, or use: stormpetrel actions cancel JOBID',
        )
    if who == "admins":
        viewer.require_admin()


def _own_job(site: Site, viewer: Viewer, ref: JobRef) -> dict[str, Any]:
    rows = site.jobs.rows_of_refs([ref]).filter(viewer.owns())
    if rows.is_empty():
        raise not_there(ref)
    return rows.row(0, named=True)
