"""Signals: the second half of a scheduler's exit status (`0:9`) -> words. Linux has the signals 1 to 64, and no others are named.

The names are those of the compute nodes' Linux, whatever system reads the log.
"""

from __future__ import annotations

from typing import Final

# Slurm reports a job that was killed for its memory by a signal of its own, 253: cut to the seven bits of a wait status, 125.
SLURM_OUT_OF_MEMORY: Final = 125
_LAST: Final = 64
_NAMES: Final = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT",
    "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
)  # fmt: skip
_MEANINGS: Final = {
    6: "aborted by the program itself",
    9: "killed, often for its memory",
    11: "memory access error in the program",
    15: "told to stop by the system or a person",
}


def signal_words(signal: int, exit_code: int = 0) -> str:
    """The signal that ended a job: `signal 9 (SIGKILL: killed, often for its memory)`, `killed for memory (Slurm's 0:125)`.

    A number that is no signal is told as the scheduler wrote it.
    """
    if signal == SLURM_OUT_OF_MEMORY:
        return f"killed for memory (Slurm's {exit_code}:{signal})"
    if not 1 <= signal <= _LAST:
        return f"exit status {exit_code}:{signal} ({signal} is no signal)"
    if signal > len(_NAMES):
        return f"signal {signal}"
    meaning = f": {_MEANINGS[signal]}" if signal in _MEANINGS else ""
    return f"signal {signal} (SIG{_NAMES[signal - 1]}{meaning})"
