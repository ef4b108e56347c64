"""Acts: what was decided about one job or node, by whom, what was done, and what came of it.

Order -> what a scheduler is to do. Act -> the row of the state that says so before, and what became of it after. Times are UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from stormpetrel.errors import UsageError
from stormpetrel.records.actions.policies import Action

# A name and nothing else: no list, no range, no option, no assignment.
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?", re.ASCII)
_EVERY_NODE: Final = "all"  # scontrol's word for all of them
_MOST_JOB_ID: Final = 2**53
_LONGEST_TEXT: Final = 200


class Mode(StrEnum):
    """For whom something was decided."""

    DRY = "dry"  # a policy that may not act: nothing is done
    LIVE = "live"  # a policy that is armed
    PERSON = "person"


class ActState(StrEnum):
    """Where an act stands."""

    DRY = "dry"  # decided, and on purpose not done
    HELD_BACK = "held_back"  # by a cap, or a scheduler that is away: tried again while the reason lasts
    INTENDED = "intended"  # noted, and not begun
    RUNNING = "running"  # a command was given, its answer is not known
    DONE = "done"
    FAILED = "failed"  # the scheduler said no
    REFUSED = "refused"  # we did not ask it to: the job is another one, has ended, or the right is missing
    OFF = "off"  # the switch was turned off in between
    EXPIRED = "expired"  # not begun for so long that the reason may be over
    INTERRUPTED = "interrupted"  # the process was killed after the command was given: it is not given twice


UNFINISHED: Final = (ActState.INTENDED, ActState.RUNNING)
# What counts against the caps: whatever was, may have been, or may yet be done.
COUNTED: Final = (ActState.INTENDED, ActState.RUNNING, ActState.DONE, ActState.FAILED, ActState.INTERRUPTED)


class Outcome(StrEnum):
    """What became of a job, as the ledger counts it."""

    RIGHT = "right"  # it failed, or the node went on losing jobs
    WRONG = "wrong"  # it completed, or the node went on well
    NEITHER = "neither"  # somebody cancelled it, or nothing ran there


@dataclass(frozen=True, slots=True)
class Order:
    """What a scheduler is to do; checked when it is made: a hostile name never becomes an argument."""

    action: Action
    job_id: int = 0
    array_task: int | None = None
    submit_time: datetime | None = None
    user: str = ""  # as the scheduler writes it; empty: not known (a site that keeps pseudonyms)
    node: str = ""  # to drain, or to stay away from
    text: str = ""  # for people: why
    waiting: bool = False  # it was decided about a job that has not started

    def __post_init__(self) -> None:
        if self.action == Action.DRAIN or self.action == Action.REQUEUE:
            check_node(self.node)
        if self.action != Action.DRAIN and not 0 < self.job_id < _MOST_JOB_ID:
            raise UsageError(f"{self.job_id} is no id of a job.", hint="Ids are whole numbers above 0.")
        if self.array_task is not None and not 0 <= self.array_task < _MOST_JOB_ID:
            raise UsageError(f"{self.array_task} is no task of an array.", hint="Tasks are whole numbers from 0 on.")

    @property
    def job(self) -> str:
        """The job as Slurm's commands want it: `12345`, or `12345_7`."""
        return f"{self.job_id}" if self.array_task is None else f"{self.job_id}_{self.array_task}"

    @property
    def line(self) -> str:
        """The text for people as one harmless line."""
        return harmless_line(self.text)


def check_node(name: str) -> None:
    """Refuse what is not the name of one node: a list, a range, an option, or the word for all."""
    if not _NODE.fullmatch(name) or name.lower() == _EVERY_NODE:
        raise UsageError(f"{name[:80]!r} is not the name of one node.", hint="Only single nodes are acted on.")


def is_user_name(name: str) -> bool:
    """Whether a text can be the name of a user."""
    return _USER.fullmatch(name) is not None


def harmless_line(text: str) -> str:
    """A text as one line of letters, digits and plain marks, at most 200: no scheduler and no terminal reads more in it."""
    return re.sub(r"[^A-Za-z0-9 .,:;()%/+_-]", "", " ".join(text.split()))[:_LONGEST_TEXT].strip()


@dataclass(frozen=True, slots=True)
class Step:
    """One command of an act. `begun` is None until it is given, `ended` until its answer is known."""

    words: tuple[str, ...]
    repeatable: bool = False
    begun: datetime | None = None
    ended: datetime | None = None
    code: int | None = None
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """What was decided about one job or node. `key` is the same whenever the same is decided again: it is done once.

    `evidence` says what was known when it was decided. What was saved and lost is set when a dry act is settled, by records of
    jobs that had ended by then.
    """

    key: str
    policy: str  # empty: a person's
    digest: str  # of the policy as it was
    mode: Mode
    action: Action
    cluster: str
    subject: str  # the reference of a job, or the name of a node
    user: str  # whose job it is, as in the site's tables; empty for a node
    by: str  # who decided: policy:NAME, or a person
    decided: datetime
    evidence: dict[str, float | int | str]
    state: ActState
    node: str = ""
    source: str = ""  # of the job's record: whose scheduler it is
    why: str = ""  # why it is in its state, as a sentence
    steps: tuple[Step, ...] = ()
    ended: datetime | None = None
    settled: datetime | None = None
    outcome: Outcome | None = None
    saved_core_s: float = 0.0
    lost_core_s: float = 0.0
    redo_core_s: float = 0.0
    right_jobs: int = 0
    wrong_jobs: int = 0


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether anything may be done at all; off holds for policies and people alike, from the next command on."""

    is_on: bool
    by: str = ""
    at: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Arming:
    """Since when a policy is listed as it is, and whether it is armed."""

    policy: str
    digest: str
    listed: datetime
    armed: datetime | None = None
    by: str = ""
    without_dry_run: bool = False
