"""Job states: the words of Slurm, HTCondor, PBS, LSF and SWF on one vocabulary; signals and exit codes as text.

raw label -> JobState. The raw label is always kept with it (`state_raw`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    """How a job stands; the words are Slurm's where Slurm has one."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    DEADLINE = "DEADLINE"
    BOOT_FAIL = "BOOT_FAIL"
    REVOKED = "REVOKED"
    REQUEUED = "REQUEUED"
    RUNNING = "RUNNING"
    PENDING = "PENDING"
    SUSPENDED = "SUSPENDED"
    RESIZING = "RESIZING"
    HELD = "HELD"
    UNKNOWN = "UNKNOWN"
    VANISHED = "VANISHED"  # ours: it was open, and the scheduler does not know it any more


# A job in one of these is not over, or nobody can tell (UNKNOWN). In any other state this run is over: a job that was requeued or
# preempted may run again, one that vanished may turn up again, and records of ended jobs are corrected.
UNFINISHED = frozenset(
    {
        JobState.RUNNING,
        JobState.PENDING,
        JobState.SUSPENDED,
        JobState.RESIZING,
        JobState.HELD,
        JobState.UNKNOWN,
    }
)
FINISHED = frozenset(JobState) - UNFINISHED
# How a job can be over without ever having run.
OVER_BEFORE_START = frozenset({JobState.CANCELLED, JobState.DEADLINE, JobState.REVOKED, JobState.VANISHED})

# What counts as a failure unless site.toml says otherwise (`jobs.failure_states`).
DEFAULT_FAILURE_STATES = (
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.OUT_OF_MEMORY,
    JobState.NODE_FAIL,
    JobState.BOOT_FAIL,
    JobState.DEADLINE,
)

_SLURM_SHORT = {
    "BF": JobState.BOOT_FAIL,
    "CA": JobState.CANCELLED,
    "CD": JobState.COMPLETED,
    "CF": JobState.RUNNING,
    "CG": JobState.RUNNING,
    "DL": JobState.DEADLINE,
    "F": JobState.FAILED,
    "NF": JobState.NODE_FAIL,
    "OOM": JobState.OUT_OF_MEMORY,
    "PD": JobState.PENDING,
    "PR": JobState.PREEMPTED,
    "R": JobState.RUNNING,
    "RQ": JobState.REQUEUED,
    "RS": JobState.RESIZING,
    "RV": JobState.REVOKED,
    "S": JobState.SUSPENDED,
    "TO": JobState.TIMEOUT,
}
# Words of squeue and slurmrestd for phases of a job that holds its nodes, or waits for them.
_SLURM_LONG = {
    **{state.value: state for state in JobState},
    "COMPLETING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STOPPED": JobState.SUSPENDED,
    "REQUEUE_HOLD": JobState.HELD,
    "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.HELD,
    "SPECIAL_EXIT": JobState.HELD,
    "EXPEDITING": JobState.PENDING,
    "POWER_UP_NODE": JobState.RUNNING,
    "LAUNCH_FAILED": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED,
    "NODE_FAILED": JobState.NODE_FAIL,
}
# slurm/slurm.h, enum job_states: what slurmdb stores as a number.
_SLURM_NUMBERS = (
    JobState.PENDING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.COMPLETED,
    JobState.CANCELLED,
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.BOOT_FAIL,
    JobState.DEADLINE,
    JobState.OUT_OF_MEMORY,
)
_SLURM_REQUEUE_FLAG = 0x400  # JOB_REQUEUE, or-ed into the number

_SWF_STATUS = {
    "-1": JobState.UNKNOWN,
    "0": JobState.FAILED,
    "1": JobState.COMPLETED,
    "2": JobState.REQUEUED,  # a burst that is to be continued
    "3": JobState.COMPLETED,
    "4": JobState.FAILED,
    "5": JobState.CANCELLED,
}

# HTCondor's JobStatus, as condor_history and condor_q print it.
_CONDOR_STATUS = {
    "1": JobState.PENDING,
    "2": JobState.RUNNING,
    "3": JobState.CANCELLED,
    "4": JobState.COMPLETED,
    "5": JobState.HELD,
    "6": JobState.RUNNING,
    "7": JobState.SUSPENDED,
}

# PBS Professional and Torque: Exit_status below zero is the server's own word (qsub and pbs_acct manuals).
_PBS_NEGATIVE_EXIT = {
    -1: JobState.FAILED,
    -2: JobState.FAILED,
    -3: JobState.REQUEUED,
    -4: JobState.NODE_FAIL,
    -5: JobState.NODE_FAIL,
    -6: JobState.NODE_FAIL,
    -7: JobState.REQUEUED,
    -10: JobState.OUT_OF_MEMORY,
    -11: JobState.TIMEOUT,
    -24: JobState.TIMEOUT,
    -25: JobState.TIMEOUT,
    -26: JobState.FAILED,
    -27: JobState.OUT_OF_MEMORY,
    -28: JobState.TIMEOUT,
    -29: JobState.TIMEOUT,
}
_PBS_SIGNAL_BASE = 256  # Exit_status = 256 + signal where a signal ended the job
_SIGKILL, _SIGTERM = 9, 15

# LSF: the words of bjobs, bacct and bhist.
_LSF_STATUS = {
    "PEND": JobState.PENDING,
    "WAIT": JobState.PENDING,
    "PSUSP": JobState.HELD,
    "RUN": JobState.RUNNING,
    "PROV": JobState.RUNNING,
    "USUSP": JobState.SUSPENDED,
    "SSUSP": JobState.SUSPENDED,
    "UNKWN": JobState.UNKNOWN,
    "ZOMBI": JobState.UNKNOWN,
    "DONE": JobState.COMPLETED,
    "EXIT": JobState.FAILED,
}
# lsbatch.h: exitInfo of a JOB_FINISH record is the place in this list, bacct and bhist print the word.
LSF_REASONS = (
    "TERM_UNKNOWN", "TERM_PREEMPT", "TERM_WINDOW", "TERM_LOAD", "TERM_OTHER", "TERM_RUNLIMIT", "TERM_DEADLINE",
    "TERM_PROCESSLIMIT", "TERM_FORCE_OWNER", "TERM_FORCE_ADMIN", "TERM_REQUEUE_OWNER", "TERM_REQUEUE_ADMIN", "TERM_CPULIMIT",
    "TERM_CHKPNT", "TERM_OWNER", "TERM_ADMIN", "TERM_MEMLIMIT", "TERM_EXTERNAL_SIGNAL", "TERM_RMS", "TERM_ZOMBIE", "TERM_SWAP",
    "TERM_THREADLIMIT", "TERM_SLURM", "TERM_BUCKET_KILL", "TERM_CTRL_PID", "TERM_CWD_NOTEXIST", "TERM_REMOVE_HUNG_JOB",
    "TERM_ORPHAN_SYSTEM", "TERM_PRE_EXEC_FAIL", "TERM_DATA", "TERM_MC_RECALL", "TERM_RC_RECLAIM", "TERM_CSM_ALLOC", "TERM_KUBE",
    "TERM_RC",
)  # fmt: skip
# Those that are not listed (limits on processes and threads, a working folder that is not there, …) leave the job FAILED.
_LSF_REASON_STATES = {
    "TERM_RUNLIMIT": JobState.TIMEOUT,
    "TERM_CPULIMIT": JobState.TIMEOUT,
    "TERM_DEADLINE": JobState.DEADLINE,
    "TERM_WINDOW": JobState.DEADLINE,
    "TERM_MEMLIMIT": JobState.OUT_OF_MEMORY,
    "TERM_SWAP": JobState.OUT_OF_MEMORY,
    "TERM_OWNER": JobState.CANCELLED,
    "TERM_ADMIN": JobState.CANCELLED,
    "TERM_FORCE_OWNER": JobState.CANCELLED,
    "TERM_FORCE_ADMIN": JobState.CANCELLED,
    "TERM_BUCKET_KILL": JobState.CANCELLED,
    "TERM_CHKPNT": JobState.CANCELLED,
    "TERM_ORPHAN_SYSTEM": JobState.CANCELLED,
    "TERM_PREEMPT": JobState.PREEMPTED,
    "TERM_LOAD": JobState.PREEMPTED,
    "TERM_RC_RECLAIM": JobState.PREEMPTED,
    "TERM_OTHER": JobState.REQUEUED,
    "TERM_REQUEUE_OWNER": JobState.REQUEUED,
    "TERM_REQUEUE_ADMIN": JobState.REQUEUED,
    "TERM_MC_RECALL": JobState.REQUEUED,
    "TERM_EXTERNAL_SIGNAL": JobState.NODE_FAIL,
    "TERM_RMS": JobState.NODE_FAIL,
    "TERM_ZOMBIE": JobState.NODE_FAIL,
    "TERM_SLURM": JobState.NODE_FAIL,
    "TERM_REMOVE_HUNG_JOB": JobState.NODE_FAIL,
}
_SHUTDOWN_SIGNALS = frozenset({1, 9, 15, 30})  # HUP, KILL, TERM, PWR: what a node that goes down sends to its processes

_BY_WHOM = re.compile(r"^([A-Z_]+) by (\S+)$")  # sacct names who ended a job: CANCELLED by 1000, of some versions FAILED by 1000
_TRUNCATED = re.compile(r"^([A-Za-z_]+)(?: by?)?(\+?)$")
_SHORTEST_CUT = 5  # letters of a word that is cut off without a mark


def slurm_state(raw: str) -> JobState | None:
    """The state behind a word, short form, number or list of Slurm's; None if Slurm has no such state.

    >>> slurm_state("CANCELLED by 1000"), slurm_state("OUT_OF_ME+"), slurm_state("3")
    (<JobState.CANCELLED: 'CANCELLED'>, <JobState.OUT_OF_MEMORY: 'OUT_OF_MEMORY'>, <JobState.COMPLETED: 'COMPLETED'>)
    """
    text = raw.strip()
    if text.isascii() and text.isdigit() and len(text) <= 10:
        number = int(text)
        if number & _SLURM_REQUEUE_FLAG:
            return JobState.REQUEUED
        number &= 0xFF
        return _SLURM_NUMBERS[number] if number < len(_SLURM_NUMBERS) else None
    # slurmrestd from 23.11 on: a base state and its flags, "RUNNING,COMPLETING". A requeue flag wins over the base state.
    labels = text.split(",")
    if len(labels) > 1:
        states = [slurm_state(label) for label in labels]
        if None in states:
            return None
        return JobState.REQUEUED if JobState.REQUEUED in states else states[0]
    upper = text.partition(" by ")[0].upper()
    return _SLURM_LONG.get(upper) or _SLURM_SHORT.get(upper) or _cut_off(text)


def _cut_off(text: str) -> JobState | None:
    """The state behind a word that a narrow column has cut (`OUT_OF_ME+`, `CANCELLED b+`), where only one begins so."""
    match = _TRUNCATED.match(text)
    if not match or not (match[2] or len(match[1]) >= _SHORTEST_CUT):
        return None
    matches = {state for label, state in _SLURM_LONG.items() if label.startswith(match[1].upper())}
    return matches.pop() if len(matches) == 1 else None


def cancelled_by(raw: str) -> str | None:
    """Who cancelled the job, out of `CANCELLED by UID`; None where the name is cut off."""
    match = _BY_WHOM.match(raw.strip())
    return match[2] if match and match[1] == JobState.CANCELLED and not match[2].endswith("+") else None


def swf_state(raw: str) -> JobState | None:
    """The state behind a status of the Standard Workload Format."""
    return _SWF_STATUS.get(raw.strip())


def pbs_state(exit_status: int) -> JobState:
    """The state behind Exit_status of a PBS or Torque end record.

    A job that the server kills for exceeding its walltime ends by SIGTERM or SIGKILL as one removed by qdel does: both are
    CANCELLED here, and the source turns them into TIMEOUT where the run time reached the limit.
    """
    if exit_status == 0:
        return JobState.COMPLETED
    if exit_status < 0:
        return _PBS_NEGATIVE_EXIT.get(exit_status, JobState.FAILED)
    signal = exit_status - _PBS_SIGNAL_BASE
    if signal in (_SIGKILL, _SIGTERM):
        return JobState.CANCELLED
    return JobState.FAILED


def lsf_state(status: str, reason: str = "", *, signal: int = 0, has_started: bool = True) -> JobState | None:
    """The state behind a status of LSF and the reason (`TERM_…`) with which it ended a job; None where LSF has no such status.

    A signal from outside of LSF is a failure of the node only if it is one that a node sends when it goes down: a program that
    crashes by SIGSEGV is reported so, too. A job that exits before it has started was killed in the queue.
    """
    state = _LSF_STATUS.get(status)
    if state is not JobState.FAILED:
        return state
    state = _LSF_REASON_STATES.get(reason, JobState.FAILED)
    if reason == "TERM_EXTERNAL_SIGNAL" and signal not in _SHUTDOWN_SIGNALS:
        state = JobState.FAILED
    return JobState.CANCELLED if state is JobState.FAILED and not has_started else state


def condor_state(status: str, *, exit_code: int | None, exited_by_signal: bool) -> JobState | None:
    """The state behind HTCondor's JobStatus and how the job exited."""
    state = _CONDOR_STATUS.get(status.strip())
    if state is JobState.COMPLETED and (exited_by_signal or (exit_code is not None and exit_code != 0)):
        return JobState.FAILED
    return state


# Slurm reports a job that was killed for its memory by a signal of its own, 253: cut to the seven bits of a wait status, 125.
SLURM_OUT_OF_MEMORY: Final = 125
# Slurm's error 4021, cut in the same way: it could not open the output file or enter the working directory.
SLURM_NOT_SET_UP: Final = 53
_LAST: Final = 64
_NAMES: Final = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT",
    "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
)  # fmt: skip
_MEANINGS: Final = {
    6: "aborted by the program itself",
    9: "killed, often for its memory",
    8: "impossible arithmetic, such as a division by zero",
    11: "memory access error in the program",
    15: "told to stop by the system or a person",
}


def format_signal(signal: int, exit_code: int = 0) -> str:
    """The signal that ended a job: `signal 9 (SIGKILL: killed, often for its memory)`, `killed for memory (Slurm's 0:125)`.

    A number that is no signal is shown as the scheduler wrote it.
    """
    if signal == SLURM_OUT_OF_MEMORY:
        return f"killed for memory (Slurm's {exit_code}:{signal})"
    if signal == SLURM_NOT_SET_UP:
        return f"not begun (Slurm's {exit_code}:{signal}: no output file or folder)"
    if not 1 <= signal <= _LAST:
        return f"exit status {exit_code}:{signal} ({signal} is no signal)"
    if signal > len(_NAMES):
        return f"signal {signal}"
    meaning = f": {_MEANINGS[signal]}" if signal in _MEANINGS else ""
    return f"signal {signal} (SIG{_NAMES[signal - 1]}{meaning})"
