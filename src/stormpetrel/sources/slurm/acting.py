"""Acting on a Slurm through scontrol and scancel.

Order -> SlurmActor.plan -> Plan. Before anything is done squeue is asked whether the job is still the one that was meant: ids
wrap and repeat, and a job may have ended or been requeued meanwhile.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceUnavailableError
from stormpetrel.records.actions.acts import Order
from stormpetrel.records.actions.policies import Action
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.sources.acting import Command, Plan, own_user_name, run_command
from stormpetrel.sources.slurm.cluster import find_scontrol
from stormpetrel.sources.slurm.nodes import node_states_in

# state, submission, user, nodes, excluded nodes: none of them holds a text of a user
_FORMAT: Final = "%T|%V|%u|%N|%x"
_NO_NODES: Final = ("", "(null)", "n/a")
_WANTED: Final = {  # states in which a job can be acted on
    Action.NOTIFY: ("RUNNING",),
    Action.HOLD: ("PENDING",),
    Action.CANCEL: ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"),
    Action.REQUEUE: ("RUNNING",),
}
_MOST_READ: Final = 1024**2
_OPERATOR: Final = "AdminLevel=Operator"
_ADMINISTRATOR: Final = "AdminLevel=Administrator"
_RANK: Final = {"none": 0, "operator": 1, "administrator": 2, "admin": 2}
_WORDS: Final = {
    Action.NOTIFY: "Notifying the owner of a job",
    Action.HOLD: "Holding other people's jobs",
    Action.CANCEL: "Cancelling other people's jobs",
    Action.REQUEUE: "Requeueing other people's jobs",
    Action.DRAIN: "Draining a node",
}


class SlurmActor:
    """One cluster of a Slurm that can be acted on; SourceUnavailableError where its commands are not there."""

    name = "Slurm"

    def __init__(self, slurm: SlurmSection, *, cluster: str = "", timeout_s: float = 20.0) -> None:
        scontrol = find_scontrol(slurm)
        folder = str(Path(scontrol).parent) if scontrol else None
        programs = {name: shutil.which(name, path=folder) for name in ("scancel", "squeue", "sacctmgr")} if folder else {}
        if scontrol is None or not programs.get("scancel") or not programs.get("squeue"):
            raise SourceUnavailableError(
                "There is no scontrol, scancel and squeue to act with.",
                hint="Set slurm.sacct or slurm.scontrol to those of a whole Slurm; slurmrestd is read, and not acted through.",
            )
        self._timeout_s = timeout_s
        self._scontrol, self._scancel = scontrol, str(programs["scancel"])
        self._squeue, self._sacctmgr = str(programs["squeue"]), programs.get("sacctmgr")
        self._where = (f"--clusters={cluster}",) if cluster in slurm.clusters else ()

    def plan(self, order: Order) -> Plan:
        """Ask squeue or scontrol about the job or node, and say which commands are to be given."""
        return self._plan_node(order) if order.action == Action.DRAIN else self._plan_job(order)

    def undo(self, order: Order) -> str:
        """The command that takes an act back; empty where it cannot be."""
        if order.action == Action.DRAIN:
            return f"scontrol update NodeName={order.node} State=RESUME"
        return f"scontrol release {order.job}" if order.action == Action.HOLD else ""

    def needed_right(self, action: Action) -> str:
        """What slurmctld asks for (measured at 22.05); an owner needs none for his own jobs."""
        return _ADMINISTRATOR if action in (Action.DRAIN, Action.NOTIFY) else _OPERATOR

    def missing_right(self, action: Action) -> str:
        """Why we may not do this; empty where we are root, SlurmUser, or have the level."""
        needed = self.needed_right(action)
        level = self._level()
        if level is None or _RANK[level] >= _RANK[needed.partition("=")[2].lower()]:
            return ""
        user = own_user_name()
        return (
            f"{_WORDS[action]} needs {needed} in Slurm, and {user} has {level.capitalize()}: "
            f"run sacctmgr modify user where name={user} set {needed}."
        )

    def _plan_job(self, order: Order) -> Plan:
        answer = self._query(
            self._squeue, *(self._where or ("--local",)), "--all", "--array", "--states=all", "--noheader",
            f"--jobs={order.job}", f"--format={_FORMAT}",
        )  # fmt: skip
        lines = [line.split("|") for line in answer.split() if line.count("|") == _FORMAT.count("|")]
        if len(lines) != 1:
            return Plan(refusal=f"Slurm lists no job {order.job} any more.")
        state, submitted, user, nodes, excluded = lines[0]
        if order.submit_time is not None and submitted != str(int(order.submit_time.timestamp())):
            return Plan(refusal=f"The job that Slurm calls {order.job} was submitted at another time: it is another one by now.")
        if order.user and user != order.user:
            return Plan(refusal=f"The job that Slurm calls {order.job} is of another user: it is another one by now.")
        wanted = ("PENDING",) if order.waiting else _WANTED[order.action]
        if state not in wanted:
            return Plan(refusal=f"Job {order.job} is {state} by now.")
        if order.action == Action.REQUEUE and order.node not in expand_nodes(nodes):
            return Plan(refusal=f"Job {order.job} does not run on {order.node}.")
        return Plan(self._commands(order, excluded))

    def _commands(self, order: Order, excluded: str) -> tuple[Command, ...]:
        scontrol = (self._scontrol, *self._where)
        match order.action:
            case Action.CANCEL:
                return (Command((self._scancel, *self._where, order.job)),)
            case Action.HOLD:  # by a user's hold: the owner can release it
                return (Command((*scontrol, "uhold", order.job), repeatable=True),)
            case Action.NOTIFY if order.waiting:  # nobody listens yet: it stands in `scontrol show job`
                return (Command((*scontrol, "update", f"JobId={order.job}", f"AdminComment={order.line}"), repeatable=True),)
            case Action.NOTIFY:
                return (Command((*scontrol, "notify", order.job, order.line)),)
            case _:
                away = order.node if excluded in _NO_NODES else f"{excluded},{order.node}"
                # Held in between: it must not start again on the same node before that is excluded.
                return (
                    Command((*scontrol, "requeuehold", order.job)),
                    Command((*scontrol, "update", f"JobId={order.job}", f"ExcNodeList={away}"), repeatable=True),
                    Command((*scontrol, "release", order.job), repeatable=True),
                )

    def _plan_node(self, order: Order) -> Plan:
        answer = self._query(self._scontrol, *self._where, "--all", "--oneliner", "show", "node", order.node, lines=True)
        node = next((state for state in node_states_in(answer) if state.name == order.node), None)
        if node is None:
            return Plan(refusal=f"Slurm knows no node {order.node}.")
        if "DRAIN" in node.states:
            return Plan(refusal=f"{order.node} is drained already ({node.reason or 'no reason is kept'}).")
        words = (self._scontrol, *self._where, "update", f"NodeName={order.node}", "State=DRAIN", f"Reason={order.line}")
        return Plan((Command(words, repeatable=True),))

    def _level(self) -> str | None:
        """Our AdminLevel in small letters; administrator for root and SlurmUser; None where it cannot be found out."""
        config = self._query(self._scontrol, *self._where, "show", "config", lines=True)
        slurm_user = re.search(r"SlurmUser\s*=\s*\S*?\((\d+)\)", config)
        if os.geteuid() == 0 or (slurm_user and int(slurm_user[1]) == os.geteuid()):
            return "administrator"
        if not self._sacctmgr:
            return None
        words = ("--noheader", "--parsable2", "show", "user", f"name={own_user_name()}", "format=AdminLevel")
        level = self._query(self._sacctmgr, *words).strip().lower()
        return level if level in _RANK else "none"

    def _query(self, *words: str, lines: bool = False) -> str:
        """What a command that changes nothing says; SourceUnavailableError where it does not answer."""
        answer = run_command(words, self._timeout_s, most=_MOST_READ, keep_lines=lines)
        if answer.code != 0 and "Invalid job id" not in answer.text and "not found" not in answer.text:
            raise SourceUnavailableError(
                f"{words[0]} failed: {answer.text[:300] or answer.code}.", hint="Try the same by hand; nothing was done."
            )
        return answer.text
