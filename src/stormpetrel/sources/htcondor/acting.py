"""Acting on an HTCondor pool through condor_hold, condor_rm, condor_qedit, condor_vacate_job and condor_drain.

Order -> CondorActor.plan -> Plan. Judged by answers that were written down, not by a live pool: docs/actions.md says so.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from stormpetrel.config import HtcondorSection
from stormpetrel.errors import SourceUnavailableError
from stormpetrel.records.actions.acts import Order
from stormpetrel.records.actions.policies import Action
from stormpetrel.sources.acting import Command, CommandAnswer, Plan, own_user_name, run_command

_ATTRIBUTES: Final = ("JobStatus", "QDate", "Owner", "RemoteHost")
_IDLE, _RUNNING, _HELD, _SUSPENDED = "1", "2", "5", "7"
_STATUS: Final = {"1": "idle", "2": "running", "3": "removed", "4": "completed", "5": "held", "6": "leaving", "7": "suspended"}
_WANTED: Final = {
    Action.NOTIFY: (_RUNNING,),
    Action.HOLD: (_IDLE,),
    Action.CANCEL: (_IDLE, _RUNNING, _HELD, _SUSPENDED),
    Action.REQUEUE: (_RUNNING,),
}
_NOTICE: Final = "StormpetrelNotice"  # an attribute of the job: condor_q -af StormpetrelNotice
_PROGRAMS: Final = ("condor_q", "condor_status", "condor_hold", "condor_rm", "condor_qedit", "condor_vacate_job", "condor_drain")
_LONGEST_REQUIREMENTS: Final = 8000
_MOST_READ: Final = 256 * 1024


class CondorActor:
    """The pool that condor_q reaches; SourceUnavailableError where its commands are not there."""

    name = "HTCondor"

    def __init__(self, condor: HtcondorSection, *, timeout_s: float = 20.0) -> None:
        queue = shutil.which(condor.condor_q or "condor_q")
        folder = str(Path(queue).parent) if queue else None
        programs = {name: shutil.which(name, path=folder) for name in _PROGRAMS} if folder else {}
        missing = next((name for name in _PROGRAMS if not programs.get(name)), None)
        if missing:
            raise SourceUnavailableError(f"There is no {missing} to act with.", hint="Set htcondor.condor_q to the real one.")
        self._programs = {name: str(path) for name, path in programs.items()}
        self._folder, self._timeout_s = folder, timeout_s

    def plan(self, order: Order) -> Plan:
        """Ask condor_q or condor_status about the job or node, and say which commands are to be given."""
        if order.action == Action.DRAIN:
            return self._plan_node(order)
        job = _job(order)
        words = (self._programs["condor_q"], "-allusers", job, "-autoformat:,", *_ATTRIBUTES)
        lines = [line.split(",", 3) for line in self._query(*words).splitlines() if line.count(",") >= len(_ATTRIBUTES) - 1]
        if len(lines) != 1:
            return Plan(refusal=f"HTCondor lists no job {job} any more.")
        status, queued, owner, remote = (part.strip() for part in lines[0])
        if order.submit_time is not None and queued != str(int(order.submit_time.timestamp())):
            return Plan(refusal=f"The job that HTCondor calls {job} was queued at another time: it is another one by now.")
        if order.user and owner != order.user:
            return Plan(refusal=f"The job that HTCondor calls {job} is of another user: it is another one by now.")
        if status not in ((_IDLE,) if order.waiting else _WANTED[order.action]):
            return Plan(refusal=f"Job {job} is {_STATUS.get(status, 'in another state')} by now.")
        if order.action == Action.REQUEUE:
            return self._plan_requeue(order, job, remote)
        return Plan(self._commands(order, job))

    def undo(self, order: Order) -> str:
        """The command that takes an act back; empty where it cannot be."""
        if order.action == Action.DRAIN:
            return f"condor_drain -cancel {order.node}"
        return f"condor_release {_job(order)}" if order.action == Action.HOLD else ""

    def needed_right(self, action: Action) -> str:
        """What HTCondor asks for; an owner needs none for his own jobs."""
        return "ADMINISTRATOR of the pool" if action == Action.DRAIN else "an entry in QUEUE_SUPER_USERS"

    def missing_right(self, action: Action) -> str:
        """Why we may not do this; empty where we may, or where HTCondor does not tell."""
        user = own_user_name()
        if action == Action.DRAIN:
            if (ping := self._program("condor_ping")) is None:
                return ""
            answer = self._run(ping, "-quiet", "-type", "master", "ADMINISTRATOR")
            return "" if answer.ok else f"Draining a node needs the right ADMINISTRATOR in HTCondor, and {user} has it not."
        if os.geteuid() == 0 or (config := self._program("condor_config_val")) is None:
            return ""
        answer = self._run(config, "QUEUE_SUPER_USERS")
        if not answer.ok or user in answer.text.replace(",", " ").split():
            return ""
        return f"Acting on other people's jobs needs {user} in QUEUE_SUPER_USERS of HTCondor; it names {answer.text[:80]}."

    def _commands(self, order: Order, job: str) -> tuple[Command, ...]:
        match order.action:
            case Action.CANCEL:
                return (Command((self._programs["condor_rm"], "-reason", order.line, job)),)
            case Action.HOLD:
                return (Command((self._programs["condor_hold"], "-reason", order.line, job), repeatable=True),)
            case _:
                return (Command((self._programs["condor_qedit"], job, _NOTICE, f'"{order.line}"'), repeatable=True),)

    def _plan_requeue(self, order: Order, job: str, remote: str) -> Plan:
        if remote.rpartition("@")[2] != order.node:
            return Plan(refusal=f"Job {job} does not run on {order.node}.")
        requirements = self._query(self._programs["condor_q"], "-allusers", job, "-autoformat:r", "Requirements").strip()
        if not requirements or "\n" in requirements or len(requirements) > _LONGEST_REQUIREMENTS:
            return Plan(refusal=f"The Requirements of job {job} cannot be read whole.")
        elsewhere = f'({requirements}) && (TARGET.Machine =!= "{order.node}")'
        # First where it may not go, then away: it must not start again on the same node.
        return Plan(
            (
                Command((self._programs["condor_qedit"], job, "Requirements", elsewhere), repeatable=True),
                Command((self._programs["condor_vacate_job"], job)),
            )
        )

    def _plan_node(self, order: Order) -> Plan:
        words = (self._programs["condor_status"], order.node, "-autoformat:,", "Machine", "State")
        slots = [line.split(",") for line in self._query(*words).splitlines() if line.count(",") == 1]
        states = {state.strip() for machine, state in slots if machine.strip() == order.node}
        if not states:
            return Plan(refusal=f"HTCondor knows no machine {order.node}.")
        if states <= {"Drained"}:
            return Plan(refusal=f"{order.node} is drained already.")
        return Plan((Command((self._programs["condor_drain"], "-graceful", "-reason", order.line, order.node)),))

    def _program(self, program: str) -> str | None:
        return shutil.which(program, path=self._folder)

    def _run(self, *words: str) -> CommandAnswer:
        return run_command(words, self._timeout_s, most=_MOST_READ, keep_lines=True)

    def _query(self, *words: str) -> str:
        answer = self._run(*words)
        if not answer.ok:
            raise SourceUnavailableError(
                f"{words[0]} failed: {' '.join(answer.text.split())[:300] or answer.code}.",
                hint="Try the same by hand; nothing was done.",
            )
        return answer.text


def _job(order: Order) -> str:
    return f"{order.job_id}.{order.array_task or 0}"
