"""Programs that a campaign starts: each in a session of its own, with its words kept in files, and ended whatever happens.

words -> start -> RunningProgram -> stop. Nothing goes through a shell.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

POLL_S: Final = 0.1  # rarely enough that watching is not what an idle CPU is seen doing
_STOP_LIMIT_S: Final = 5.0
_KILL_LIMIT_S: Final = 10.0
_MOST_ARGUMENTS: Final = 4000  # letters of a program's output that are kept


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A program, and where its words go."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path  # its standard output
    complained: Path  # its standard error

    def ended(self) -> bool:
        """Whether it has ended; what it left running in its session is killed as soon as that is seen."""
        if self.process.returncode is not None:
            return True
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        _signal_group(self, signal.SIGKILL)  # before its id is given back, and could become somebody else's
        self.process.wait()
        return True

    @property
    def exit_code(self) -> int:
        """How it ended: 0 is well, below 0 is a signal."""
        return self.process.wait()

    def words(self) -> str:
        """What it printed."""
        return _start_of(self.output)

    def last_complaint(self) -> str:
        """The last line on its standard error, safe to show."""
        lines = [line for line in _end_of(self.complained).splitlines() if line.strip()]
        return "".join(letter for letter in (lines[-1] if lines else "") if letter.isprintable())[:300]


def start(
    name: str,
    words: Sequence[str],
    *,
    folder: Path,
    cpus: Sequence[int] = (),
    cgroups: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> RunningProgram:
    """Start a program on its CPUs and in its cgroups; its words go to files in `folder`."""
    place = ["--cpus", ",".join(map(str, cpus))] if cpus else []
    place += [word for cgroup in cgroups for word in ("--cgroup", str(cgroup))]
    output, complained = folder / f"{name}.out", folder / f"{name}.err"
    with output.open("wb") as out, complained.open("wb") as err:
        process = subprocess.Popen(
            [*python_module("stormpetrel.rehearse.placed"), *place, "--", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **(env or {})},
            cwd=folder,
            start_new_session=True,  # a Ctrl-C of the terminal reaches us alone: we end the others in order
        )
    return RunningProgram(name, process, output, complained)


def python_module(module: str) -> list[str]:
    """The words that run a module of ours in a Python of its own; nothing is imported from the folder it stands in."""
    return [sys.executable, "-P", "-m", module]


def stop(programs: Iterable[RunningProgram]) -> None:
    """Ask all programs and what they started to end, at once; those that do not are killed."""
    running = [program for program in programs if not program.ended()]
    for number, limit_s in ((signal.SIGTERM, _STOP_LIMIT_S), (signal.SIGKILL, _KILL_LIMIT_S)):
        for program in running:
            _signal_group(program, number)
        give_up = time.monotonic() + limit_s
        while running and time.monotonic() < give_up:
            running = [program for program in running if not program.ended()]
            time.sleep(POLL_S if running else 0)


def interruptions_end_in_order() -> AbstractContextManager[None]:
    """Let a polite kill and a closed terminal count as a Ctrl-C, so that what was started is ended on the way out."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    return _handled(_interrupt, [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN])  # nohup


def undisturbed() -> AbstractContextManager[None]:
    """A second Ctrl-C must not interrupt the cleaning up after the first; it takes seconds at most."""
    return _handled(signal.SIG_IGN, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None] | signal.Handlers, numbers: Iterable[int]) -> Iterator[None]:
    """Signals that are handled so within the block, and as before after it."""
    before = {}
    for number in numbers:
        with suppress(ValueError):  # not in the main thread: whoever is there takes care of signals
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _signal_group(program: RunningProgram, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.process.pid, number)  # the leader of a session of its own: its id is the group's


def _start_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_ARGUMENTS).decode(errors="replace")
    except OSError:
        return ""


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_ARGUMENTS))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
