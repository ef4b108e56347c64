"""Acting on a scheduler: what every one that can be acted on keeps to, and the one door through which commands go.

Order -> Actor.plan -> Plan (commands, or why not) -> run_command -> CommandAnswer. No shell sees an argument.
"""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from stormpetrel.records.actions.acts import Order
from stormpetrel.records.actions.policies import Action

_MOST_ANSWER: Final = 2000  # bytes of an answer that are kept
_OF_ONES_OWN: Final = ("SQUEUE_", "SCANCEL_", "SCONTROL_")  # what a shell may set for its own user's eyes


@dataclass(frozen=True, slots=True)
class Command:
    """One command of an act; `repeatable` where it does no harm if it is given again after a kill."""

    words: tuple[str, ...]
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The commands of an order, in their order; or in a sentence why nothing is to be done."""

    commands: tuple[Command, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What a command said; `code` is None where it did not end in time: whether it was done is not known."""

    code: int | None
    text: str

    @property
    def ok(self) -> bool:
        """Whether it was done."""
        return self.code == 0


class Actor(Protocol):
    """A scheduler that can be acted on."""

    name: str  # as people call it

    def plan(self, order: Order) -> Plan:
        """Ask the scheduler about the job or node, and say what to do; SourceError where it does not answer."""

    def undo(self, order: Order) -> str:
        """The command by which a person takes it back; empty where it cannot be."""

    def needed_right(self, action: Action) -> str:
        """The right that an action on other people's jobs, or on nodes, needs."""

    def missing_right(self, action: Action) -> str:
        """Why we may not do this, and what to do about it, in a sentence; empty where we may."""


def run_command(words: Sequence[str], timeout_s: float, *, most: int = _MOST_ANSWER, keep_lines: bool = False) -> CommandAnswer:
    """Give a command, without a shell; what it prints is cut, its time is limited, and its children end with it.

    `keep_lines` leaves the lines of the answer apart, for one that is read by us; for people it is one line.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_ONES_OWN)}
    environment = {**inherited, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(
                list(words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        except OSError as error:
            return CommandAnswer(127, f"{words[0]} cannot be run: {error.strerror}")
        with process:
            try:
                code: int | None = process.wait(timeout=timeout_s)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                code = None
        out.seek(0)
        text = out.read(most).decode("utf-8", "replace")
    if keep_lines:
        return CommandAnswer(code, text)
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    late = f"It did not answer within {timeout_s:.0f} s. " if code is None else ""
    return CommandAnswer(code, late + " ".join(shown.split()))


def own_user_name() -> str:
    """The name of the user whom the scheduler sees; the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())
