"""The frame of every workload: how long, where, from which seed, and what it did.

words of the command line -> work until the time is over -> one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

Did = dict[str, int | float | str]
_MOST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Shift:
    """One run of a workload: until when it works, in which folder, from which seed."""

    began_s: float  # time.monotonic()
    ends_s: float  # time.monotonic()
    scratch: Path
    seed: int

    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.ends_s


def run_workload(kind: str, work: Callable[[Shift], Did], arguments: list[str] | None = None) -> None:
    """Run a workload as a program: do the work, then print what was done; the work removes its own files."""
    parser = argparse.ArgumentParser(prog=kind, description=work.__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="how long to work")
    parser.add_argument("--scratch", type=Path, required=True, help="folder for its files")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= _MOST_SECONDS:
        parser.error(f"--seconds {options.seconds:g}: expected more than 0 and at most {_MOST_SECONDS:,.0f}")
    signal.signal(signal.SIGTERM, _leave)  # so that the files are removed on the way out
    began_s = time.monotonic()
    try:
        did = work(Shift(began_s, began_s + options.seconds, options.scratch, options.seed))
    except OSError as error:
        sys.exit(f"{kind}: {error}")
    sys.stdout.write(json.dumps({"kind": kind, "seconds": round(time.monotonic() - began_s, 3), **did}) + "\n")


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)
