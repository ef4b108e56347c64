"""`stormpetrel actions`: what policies would do and did, arming them, the switch that stops everything, and cancelling a job."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from stormpetrel.answers.actions.acts import arm_policy, cancel_job, disarm_policy, latest_job, turn_switch
from stormpetrel.answers.actions.questions import actions_status, list_acts, named_policy, plan_policy, policy_line, show_act
from stormpetrel.answers.schemas.actions import (
    MOST_ACTS,
    ActionsStatus,
    ActLine,
    ActList,
    ActQuestion,
    CancelAct,
    LedgerLine,
    PolicyLine,
    PolicyTest,
    SwitchAct,
)
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, format_time, one_line, plain
from stormpetrel.faces.cli.site import open_site, site_folder
from stormpetrel.store.actions import turn_off_by_file

PolicyName = Annotated[
    str, typer.Argument(metavar="POLICY", help="The name of a policy; actions status shows it.", show_default=False)
]
Why = Annotated[str, typer.Option("--why", help="Why, for other administrators.", show_default=False)]
_NO_POLICY = "There is no policy: nothing is automatic. To add one, see [[actions.policies]] in the docs of site.toml."


def status(context: typer.Context, as_json: Json = False) -> None:
    """Show the switch, and for each policy whether it is armed, its ledger, and missing privileges."""
    with open_site(context) as site:
        zone, answer = site.settings.site.time_zone, actions_status(site, LOCAL, rights=True)
    emit(answer, lambda out: _print_status(out, answer, zone), as_json=as_json)


def list_actions(
    context: typer.Context,
    policy: Annotated[str | None, typer.Option("--policy", help="Of this policy only.", show_default=False)] = None,
    mode: Annotated[
        Literal["dry", "live", "person"] | None,
        typer.Option(
            "--mode", help="Only dry-run decisions, actions of armed policies, or actions of people.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST_ACTS, help="How many.")] = 50,
    as_json: Json = False,
) -> None:
    """List decisions and actions, the newest first, with the scheduler's output."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        answer = list_acts(site, LOCAL, ActQuestion(policy=policy, mode=mode, limit=limit))
    emit(answer, lambda out: _print_acts(out, answer, zone), as_json=as_json)


def show(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of an action; actions list shows it.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show one action in full: its reasons, every command with its output, and how to revert it."""
    with open_site(context) as site:
        zone, answer = site.settings.site.time_zone, show_act(site, LOCAL, key)
    emit(answer, lambda out: _print_act(out, answer, zone), as_json=as_json)


def ledger(context: typer.Context, name: PolicyName, as_json: Json = False) -> None:
    """Show what a policy's dry run would have saved and lost, in core-hours, and what is missing to arm it."""
    with open_site(context) as site:
        answer = policy_line(site, named_policy(site, name))
    emit(answer, lambda out: _print_ledger(out, answer), as_json=as_json)


def arm(
    context: typer.Context,
    name: PolicyName,
    without_dry_run: Annotated[
        bool, typer.Option("--without-dry-run", help="Arm it before its dry run is over; this is recorded and shown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Arm a policy after its dry run; a change of its settings disarms it."""
    with open_site(context, to_write=True) as site:
        answer = arm_policy(site, LOCAL, name, without_dry_run=without_dry_run)
    text = f"Policy '{name}' is armed: it acts while the watch runs.\nTo stop everything at once: stormpetrel actions off"
    emit(answer, text, as_json=as_json)


def disarm(context: typer.Context, name: PolicyName, as_json: Json = False) -> None:
    """Disarm a policy: it returns to its dry run, decides and does nothing."""
    with open_site(context, to_write=True) as site:
        answer = disarm_policy(site, LOCAL, name)
    emit(answer, f"Policy '{name}' runs dry.", as_json=as_json)


def off(context: typer.Context, why: Why = "", as_json: Json = False) -> None:
    """Stop all actions at once, for policies and people, also when the database is down."""
    turn_off_by_file(site_folder(context))
    try:
        with open_site(context, to_write=True) as site:
            answer = turn_switch(site, LOCAL, SwitchAct(on=False, why=why))
    except StormpetrelError as error:
        text = f"Acting is off: the file ACTIONS_OFF says so. It is not in the audit trail: {error.what}"
        emit({"on": False, "problem": error.what}, text, as_json=as_json)
        return
    emit(answer, "Acting is off. To switch it on again: stormpetrel actions on", as_json=as_json)


def on(context: typer.Context, why: Why = "", as_json: Json = False) -> None:
    """Allow armed policies and people to act again."""
    with open_site(context, to_write=True) as site:
        answer = turn_switch(site, LOCAL, SwitchAct(on=True, why=why))
    emit(answer, "Acting is on: policies that are armed act while the watch runs.", as_json=as_json)


def show_plan(context: typer.Context, name: PolicyName, as_json: Json = False) -> None:
    """Show what a policy would do now, with its commands and the privilege it needs; nothing is executed."""
    with open_site(context) as site:
        answer = plan_policy(site, LOCAL, name)
    emit(answer, lambda out: _print_test(out, answer), as_json=as_json)


def cancel(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOBID", help="The id of the job, or ID_TASK.", show_default=False)],
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Cancel a job with your own privileges at the scheduler; it is recorded, and the switch applies."""
    with open_site(context, to_write=True) as site:
        ref, owner = latest_job(site, LOCAL, job)
        if not is_confirmed and not typer.confirm(f"Cancel job {ref.job} of {plain(owner or 'nobody')}?", err=True):
            raise UsageError("Nothing was done.", hint="Answer y, or add --yes.")
        answer = cancel_job(site, LOCAL, ref, CancelAct(confirm=ref.job), is_operator=True)
    emit(answer, _fate(answer), as_json=as_json)
    if answer.state != "done":
        raise typer.Exit(1)


def _print_status(out: Console, answer: ActionsStatus, zone: str) -> None:
    switch = answer.switch
    by = f" by {plain(switch.by)}" if switch.by else ""
    since = f", since {format_time(switch.at, zone)}{by}" if switch.at else ""
    why = f": {one_line(switch.why)}" if switch.why else ""
    out.print(f"Acting is {'on' if switch.on else 'OFF'}{since}{why}.")
    out.print(f"In the last hour {answer.in_last_hour} of {answer.per_hour} acts of policies.")
    out.print(f"Who may cancel jobs from the dashboard: {answer.cancel_by}.")
    if not answer.policies:
        out.print(_NO_POLICY)
    for policy in answer.policies:
        state = "ARMED" if policy.armed else "dry"
        out.print(f"\n{policy.name}: {policy.action}, {state}; {policy.when}; {policy.allow_list or 'on nobody'}")
        out.print(f"  dry: {_ledger_text(policy.dry)}")
        if policy.live.cases:
            out.print(f"  acts: {policy.live.cases}, in the last hour {policy.in_last_hour} of {policy.per_hour}")
        if policy.missing_right:
            out.print(f"  {plain(policy.missing_right)}")
        elif policy.needs:
            out.print(f"  It needs {policy.needs}, which we have.")
        if policy.to_arm:
            out.print(f"  {policy.to_arm}")


def _print_acts(out: Console, answer: ActList, zone: str) -> None:
    if not answer.acts:
        out.print("No decisions and no actions so far.")
    for act in answer.acts:
        why = f": {one_line(act.why)}" if act.why else ""
        about = f"job {act.job}" if act.job else f"node {plain(act.node or '')}"
        outcome = f", would have been {act.outcome}" if act.outcome else ""
        out.print(f"{format_time(act.decided, zone)}  {act.action} {about} by {plain(act.by)}: {act.state}{outcome}{why}")
        out.print(f"    {plain(act.key)}")


def _print_act(out: Console, act: ActLine, zone: str) -> None:
    about = f"job {act.job} of {plain(act.user)}" if act.job else f"node {plain(act.node or '')}"
    out.print(f"{act.action} {about}, decided {format_time(act.decided, zone)} by {plain(act.by)} ({act.mode})")
    out.print("known then: " + ", ".join(f"{name} {plain(str(value))}" for name, value in act.evidence.items()))
    out.print(_fate(act))
    for step in act.steps:
        code = "no answer" if step.code is None else f"code {step.code}"
        out.print(f"  {plain(' '.join(step.command))}\n    {code if step.begun else 'not given'} {one_line(step.answer)}")
    if act.outcome:
        out.print(
            f"It would have been {act.outcome}: {_hours_text(act.saved_core_hours, act.lost_core_hours, act.redo_core_hours)}."
        )
    if act.undo:
        out.print(f"To take it back: {plain(act.undo)}")


def _print_ledger(out: Console, policy: PolicyLine) -> None:
    out.print(f"{policy.name}: {policy.action}; {policy.when}; {policy.allow_list or 'nobody'}")
    out.print(f"dry run: {_ledger_text(policy.dry)}")
    if policy.live.cases:
        out.print(f"acts: {policy.live.cases:,}")
    out.print("It is armed." if policy.armed else policy.to_arm or f"It can be armed: stormpetrel actions arm {policy.name}")


def _print_test(out: Console, answer: PolicyTest) -> None:
    policy = answer.policy
    out.print(plain(policy.missing_right or "") or f"It needs {policy.needs}, which we have.")
    if not answer.cases:
        out.print("Now it would do nothing.")
    for case in answer.cases:
        out.print(f"{plain(case.subject)}: {plain(case.refusal) or 'would be given'}")
        for words in case.commands:
            out.print(f"  {plain(' '.join(words))}")
    if answer.more:
        out.print(f"and {answer.more:,} more")


def _ledger_text(ledger: LedgerLine) -> str:
    if not ledger.cases:
        return "no cases yet"
    hours = _hours_text(ledger.saved_core_hours, ledger.lost_core_hours, ledger.redo_core_hours)
    jobs = f" (jobs that failed: {ledger.right_jobs:,}, that completed: {ledger.wrong_jobs:,})"
    cases = f"{ledger.cases:,} case{'' if ledger.cases == 1 else 's'}"
    return f"{cases}, {ledger.settled:,} settled: {ledger.right:,} right, {ledger.wrong:,} wrong{jobs}; {hours}"


def _hours_text(saved: float, lost: float, redo: float) -> str:
    return f"{saved:,.1f} core-hours saved, {lost:,.1f} lost, {redo:,.1f} to be run again"


def _fate(act: ActLine) -> str:
    about = f"Job {act.job}" if act.job else f"Node {plain(act.node or '')}"
    why = f": {one_line(act.why)}" if act.why else ""
    return f"{about}, {act.action}: {act.state.replace('_', ' ')}{why}"
