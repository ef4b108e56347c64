"""A program put in its place before it starts: on its CPUs, in its cgroup, and bound to end with the campaign.

`python -m stormpetrel.rehearse.placed --cgroup FOLDER --cpus 0,1 -- PROGRAM WORDS…` becomes that program. It is done here and not
after the start, because a child of the program could otherwise be born in the wrong place.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

CANNOT_PLACE: Final = 126
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> None:
    """Take the place, then become the program."""
    parser = argparse.ArgumentParser(prog="placed")
    parser.add_argument("--cpus", default="", help="CPUs to stay on, such as 0,1")
    parser.add_argument("--cgroup", type=Path, action="append", default=[], help="folder of a cgroup to join")
    parser.add_argument("program", nargs="+", help="what to run, after --")
    options = parser.parse_args(arguments)
    try:
        _die_with_parent()
        for cgroup in options.cgroup:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        if options.cpus:  # after the CPU set, which would widen it again
            os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
        os.execvp(options.program[0], options.program)  # noqa: S606  words of our own, no shell
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.program[0]} cannot be started on CPUs {options.cpus or 'of any kind'}: {error}\n")
        sys.exit(CANNOT_PLACE)


def _die_with_parent() -> None:
    """Where a campaign is killed outright, the system ends its jobs."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
