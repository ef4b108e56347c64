"""The safety catch: every act of a policy or a person goes through here, and is noted before it is done.

Act -> Catch.perform -> intended (switch, caps, once) -> planned (is it still the same job?) -> each command noted, given, its
answer kept -> Act. Killed anywhere, `resume` finishes what does no harm twice and gives nothing else a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.errors import SourceError, UsageError
from stormpetrel.records.actions.acts import Act, ActState, Mode, Order, Step, is_user_name
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.jobs import JobRef
from stormpetrel.sources.acting import Actor, CommandAnswer, Plan, run_command
from stormpetrel.sources.htcondor.acting import CondorActor
from stormpetrel.sources.slurm.acting import SlurmActor
from stormpetrel.store.actions import Caps
from stormpetrel.store.site import Site
from stormpetrel.watch.actions.owner_mail import MAIL, is_by_mail, mail_plan, send_to_owner

_KILLED: Final = "The process was ended after this command was given: whether it was done is not known."
_STILL_WANTED: Final = timedelta(minutes=10)  # what was noted and not begun for longer is not begun
_PERSONS_TAKE: Final = timedelta(minutes=5)  # another process may be at a person's act
_SUBMITTED: Final = "submit"


class Catch:
    """Acts on the schedulers of one site, if it may."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def perform(self, act: Act, caps: Caps) -> Act:
        """Do what was decided, once, if switch and caps let it; return what became of it."""
        state = self._site.actions.intend(act, caps, self._site.now())
        kept = self._site.actions.get(act.key)
        return self._carry_out(kept) if state == ActState.INTENDED else kept

    def resume(self, is_armed: Callable[[Act], bool]) -> list[Act]:
        """Bring to an end what a killed process has left behind; return what became of each."""
        now = self._site.now()
        left = [act for act in self._site.actions.unfinished() if act.mode == Mode.LIVE or now - act.decided > _PERSONS_TAKE]
        return [self._resume(act, is_armed(act), now) for act in left]

    def _resume(self, act: Act, is_armed: bool, now: datetime) -> Act:
        if not any(step.begun for step in act.steps):
            is_wanted = act.mode == Mode.LIVE and is_armed and now - act.decided <= _STILL_WANTED * self._site.pace()
            return self._carry_out(act) if is_wanted else self._end(act, ActState.EXPIRED, "It was not begun in time.")
        known = tuple(
            replace(step, ended=now, answer=_KILLED) if step.begun and not step.ended and not step.repeatable else step
            for step in act.steps
        )
        return self._give(replace(act, steps=known))

    def _carry_out(self, act: Act) -> Act:
        try:
            plan = plan_of(self._site, act)
        except UsageError as error:
            return self._end(act, ActState.REFUSED, error.what)
        except SourceError as error:
            return self._end(act, ActState.HELD_BACK, error.what)
        if plan.refusal:
            return self._end(act, ActState.REFUSED, plan.refusal)
        if not self._site.actions.switch().is_on:
            return self._end(act, ActState.OFF, "Acting was switched off before it was begun.")
        steps = tuple(Step(command.words, command.repeatable) for command in plan.commands)
        return self._give(replace(act, state=ActState.RUNNING, steps=steps))

    def _give(self, act: Act) -> Act:
        """Give the commands that have not been given; what follows a failed one only where it does no harm.

        Once the first is given the act is brought to its end, whatever the switch says: a job must not stay held half-way.
        """
        for number, step in enumerate(act.steps):
            if step.ended or (number and _has_failed(act) and not step.repeatable):
                continue
            act = self._with_step(act, number, replace(step, begun=step.begun or self._site.now()))
            answer = self._answer(act, step)
            ended = replace(act.steps[number], ended=self._site.now(), code=answer.code, answer=answer.text)
            act = self._with_step(act, number, ended)
            if number == 0 and not answer.ok and answer.code is not None:
                break
        return self._end(act, *_fate(act))

    def _answer(self, act: Act, step: Step) -> CommandAnswer:
        if step.words[0] == MAIL:
            return send_to_owner(self._site, act, step.words[1])
        return run_command(step.words, self._site.settings.actions.timeout_s)

    def _with_step(self, act: Act, number: int, step: Step) -> Act:
        changed = replace(act, steps=(*act.steps[:number], step, *act.steps[number + 1 :]))
        self._site.actions.update(changed)
        return changed

    def _end(self, act: Act, state: ActState, why: str) -> Act:
        ended = replace(act, state=state, why=why, ended=self._site.now())
        self._site.actions.update(ended)
        if state == ActState.HELD_BACK:  # tried again every few seconds: that is no news
            return ended
        subject = ended.node if ended.action == Action.DRAIN else JobRef.parse(ended.subject).job
        about = {"act": ended.key, "subject": subject, "state": state.value}
        self._site.audit.record(ended.by, f"action {ended.action}", about | ({"why": why} if why else {}))
        return ended


def plan_of(site: Site, act: Act) -> Plan:
    """Return what is to be done for an act, after the scheduler was asked about the job or node; SourceError, UsageError."""
    plan = actor_for(site, act.source, act.cluster).plan(order_of(site, act))
    return mail_plan(site, act) if not plan.refusal and is_by_mail(site, act) else plan


def order_of(site: Site, act: Act) -> Order:
    """Return what a scheduler is to do for an act; UsageError where it names something that cannot be."""
    if act.action == Action.DRAIN:
        return Order(act.action, node=act.node, text=reason_of(act))
    ref = JobRef.parse(act.subject)
    user = "" if site.settings.store.pseudonymise_users or not is_user_name(act.user) else act.user
    waiting = act.evidence.get("moment") == _SUBMITTED
    return Order(
        act.action, ref.job_id, ref.array_task, ref.submit_time, user, act.node, text=reason_of(act), waiting=waiting
    )  # fmt: skip


def reason_of(act: Act) -> str:
    """Why something is done, as one line for people: it stands in the scheduler."""
    if "incident" in act.evidence:
        return f"stormpetrel: incident {act.evidence['incident']}, policy {act.policy}"
    if "risk" not in act.evidence:
        return "stormpetrel: requested by a person"
    risk = f"{float(act.evidence['risk']):.0%}"
    if act.action == Action.NOTIFY:
        job = JobRef.parse(act.subject).job
        return f"stormpetrel: this job is likely to fail (risk {risk}). Why, and what to change: stormpetrel why {job}"
    return f"stormpetrel: risk {risk}, policy {act.policy}"


def actor_for(site: Site, source: str, cluster: str) -> Actor:
    """Return the scheduler of a job by where its record came from, or that of the nodes; SourceError where it is not there."""
    section = site.settings.actions
    kind = section.scheduler
    if source.startswith("condor") or (kind == "auto" and not source and _has_condor_only(site)):
        kind = "htcondor"
    if kind == "htcondor":
        return CondorActor(site.settings.htcondor, timeout_s=section.timeout_s)
    return SlurmActor(site.settings.slurm, cluster=cluster, timeout_s=section.timeout_s)


def _has_condor_only(site: Site) -> bool:
    try:
        SlurmActor(site.settings.slurm)
    except SourceError:
        return bool(site.settings.htcondor.condor_q or site.settings.htcondor.event_log)
    return False


def _has_failed(act: Act) -> bool:
    return any(step.ended and step.code != 0 for step in act.steps)


def _fate(act: Act) -> tuple[ActState, str]:
    """What became of an act, by its answers."""
    wrong = next((step for step in act.steps if step.ended and step.code != 0), None)
    if wrong is None:
        return ActState.DONE, ""
    if wrong.code is None:
        return ActState.INTERRUPTED, wrong.answer
    return ActState.FAILED, wrong.answer or f"It ended with code {wrong.code}."
