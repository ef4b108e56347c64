"""What policies would do and did: the switch, policies with their ledgers, acts with commands and answers.

Site + Viewer -> actions_status -> ActionsStatus; + ActQuestion -> list_acts -> ActList; + key -> show_act -> ActLine;
+ name -> plan_policy -> PolicyTest. Administrators see all; a user sees the acts on own jobs.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.schemas.actions import (
    ActionsStatus,
    ActLine,
    ActList,
    ActQuestion,
    ActStep,
    LedgerLine,
    PlannedCase,
    PolicyLine,
    PolicyTest,
    SwitchLine,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError, SourceError, UsageError
from stormpetrel.records.actions.acts import Act, ActState, Arming, Mode, Switch
from stormpetrel.records.actions.policies import OF_RISK, Action, Policy
from stormpetrel.records.jobs import JobRef
from stormpetrel.watch.actions.acting import KnownNow, decide, dry_run_left
from stormpetrel.watch.actions.catch import actor_for, order_of, plan_of
from stormpetrel.watch.actions.checks import missing_right, needed_right
from stormpetrel.watch.incident_keeper import silences_of

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.actions import LedgerTotals
    from stormpetrel.store.site import Site

_HOUR_S: Final = 3600.0
_MOMENTS: Final = {"submit": "at submission", "start": "at the start", "2min": "two minutes in"}
_MOST_PLANNED: Final = 10  # cases of a test that the scheduler is asked about


def actions_status(site: Site, viewer: Viewer, *, rights: bool = False) -> ActionsStatus:
    """Return the switch and every policy with its ledger; with `rights` the scheduler is asked what we may do."""
    viewer.require(READ)
    viewer.require_admin()
    section = site.settings.actions
    return ActionsStatus(
        switch=switch_line(site.actions.switch()),
        cancel_by=section.cancel_by,
        per_hour=section.per_hour,
        in_last_hour=site.actions.in_last_hour(site.now()),
        policies=[policy_line(site, policy, rights=rights) for policy in section.policies],
    )


def list_acts(site: Site, viewer: Viewer, question: ActQuestion) -> ActList:
    """Return acts, the newest first; a user those on own jobs."""
    viewer.require(READ)
    user = None if viewer.is_admin else viewer.user
    modes = tuple(Mode) if question.mode is None else (Mode(question.mode),)
    acts = site.actions.list(policy=question.policy, modes=modes, user=user, limit=question.limit)
    return ActList(acts=[act_line(site, act) for act in acts])


def show_act(site: Site, viewer: Viewer, key: str) -> ActLine:
    """Return one act in full; NotThereError where there is none, or it is about somebody else's job."""
    viewer.require(READ)
    act = site.actions.get(key)
    if not viewer.is_admin and act.user != viewer.user:
        raise NotThereError(f"There is no act {key[:80]!r}.", hint="See which there are: stormpetrel actions list")
    return act_line(site, act, with_undo=True)


def plan_policy(site: Site, viewer: Viewer, name: str) -> PolicyTest:
    """Return what a policy would do now, with the commands; the scheduler is asked, and nothing is done. Administrators only."""
    viewer.require(READ)
    viewer.require_admin()
    policy, now = named_policy(site, name), site.now()
    acts = decide(policy, KnownNow(site), silences_of(site, now), now, Mode.LIVE)
    planned = [_planned(site, act) for act in acts[:_MOST_PLANNED]]
    line = policy_line(site, policy, rights=True)
    return PolicyTest(policy=line, cases=planned, more=max(0, len(acts) - _MOST_PLANNED))


def named_policy(site: Site, name: str) -> Policy:
    """Return the policy of a name; NotThereError where there is none."""
    policy = site.settings.actions.policy(name)
    if policy is None:
        known = ", ".join(policy.name for policy in site.settings.actions.policies)
        hint = f"Known: {known}." if known else "Add one to site.toml: [[actions.policies]]"
        raise NotThereError(f"There is no policy {name[:64]!r}.", hint=hint)
    return policy


def policy_line(site: Site, policy: Policy, *, rights: bool = False) -> PolicyLine:
    """Return a policy as a model."""
    now = site.now()
    arming = site.actions.armings([policy], now)[policy.name]
    dry = site.actions.totals(policy, Mode.DRY)
    is_armed = arming.armed is not None
    return PolicyLine(
        name=policy.name,
        action=policy.action,
        when=_when(policy),
        allow_list=_allow_list(policy),
        per_hour=policy.per_hour,
        in_last_hour=site.actions.in_last_hour(now, policy.name),
        armed=is_armed,
        armed_at=arming.armed,
        armed_by=arming.by,
        without_dry_run=arming.without_dry_run,
        listed=arming.listed,
        to_arm="" if is_armed else to_arm(policy, arming, dry.settled, now),
        needs=needed_right(site, policy),
        missing_right=missing_right(site, policy) if rights else None,
        dry=_ledger(dry),
        live=_ledger(site.actions.totals(policy, Mode.LIVE)),
    )


def to_arm(policy: Policy, arming: Arming, settled: int, now: datetime) -> str:
    """Return what is missing before a policy can be armed, in a sentence; empty: nothing."""
    if policy.names_nobody:
        which = "nodes" if policy.kind == Action.DRAIN else "partitions, users, accounts or nodes"
        return f"Policy '{policy.name}' has no allow-list: name {which} in site.toml; * stands for all."
    return dry_run_left(policy, arming, settled, now)


def act_line(site: Site, act: Act, *, with_undo: bool = False) -> ActLine:
    """Return an act as a model."""
    is_job = act.action != Action.DRAIN
    return ActLine(
        key=act.key,
        policy=act.policy,
        mode=act.mode.value,
        action=act.action.value,
        job=JobRef.parse(act.subject).job if is_job else None,
        ref=act.subject if is_job else None,
        node=act.node or None,
        user=act.user,
        by=act.by,
        decided=act.decided,
        evidence=act.evidence,
        state=act.state.value,
        why=act.why,
        steps=[
            ActStep(command=list(step.words), begun=step.begun, ended=step.ended, code=step.code, answer=step.answer)
            for step in act.steps
        ],
        settled=act.settled,
        outcome=None if act.outcome is None else act.outcome.value,
        saved_core_hours=act.saved_core_s / _HOUR_S,
        lost_core_hours=act.lost_core_s / _HOUR_S,
        redo_core_hours=act.redo_core_s / _HOUR_S,
        undo=_undo(site, act) if with_undo and act.state == ActState.DONE else "",
    )


def switch_line(switch: Switch) -> SwitchLine:
    """Return the switch as a model."""
    return SwitchLine(on=switch.is_on, by=switch.by, at=switch.at, why=switch.why)


def _planned(site: Site, act: Act) -> PlannedCase:
    subject = act.node if act.action == Action.DRAIN else JobRef.parse(act.subject).job
    try:
        plan = plan_of(site, act)
    except (SourceError, UsageError) as error:
        return PlannedCase(subject=subject, commands=[], refusal=error.what)
    return PlannedCase(subject=subject, commands=[list(command.words) for command in plan.commands], refusal=plan.refusal)


def _undo(site: Site, act: Act) -> str:
    try:
        return actor_for(site, act.source, act.cluster).undo(order_of(site, act))
    except (SourceError, UsageError):
        return ""


def _when(policy: Policy) -> str:
    if policy.kind in OF_RISK:
        risk = f"risk {policy.tau:g} or more" if policy.tau else "flagged by the model"
        return f"{_MOMENTS[policy.decided_at]}, {risk}"
    return f"a node is suspected: {', '.join(kind.replace('_', ' ') for kind in policy.kinds)}"


def _allow_list(policy: Policy) -> str:
    lists: dict[str, Any] = {name: getattr(policy, name) for name in ("partitions", "users", "accounts", "nodes")}
    return "; ".join(f"{name} {' '.join(values)}" for name, values in lists.items() if values)


def _ledger(totals: LedgerTotals) -> LedgerLine:
    return LedgerLine(
        cases=totals.cases,
        settled=totals.settled,
        right=totals.right,
        wrong=totals.wrong,
        saved_core_hours=totals.saved_core_s / _HOUR_S,
        lost_core_hours=totals.lost_core_s / _HOUR_S,
        redo_core_hours=totals.redo_core_s / _HOUR_S,
        right_jobs=totals.right_jobs,
        wrong_jobs=totals.wrong_jobs,
    )
