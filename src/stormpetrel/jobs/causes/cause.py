"""Why a job ended as it did: cause, certainty and whose fault, from exit code, signal, reason, memory, other victims, last words.

job row + Victims + ErrorMessage -> find_cause -> Cause. Each kind of evidence proposes a cause with a weight; the cause whose
evidence weighs most together wins, and what speaks for it is listed.

Known last words: what the end of a job's output says about why it died. The table is data: `error_messages.toml`.

text -> find_error_message -> ErrorMessage | None; mask_secrets -> text that can be shown. Nothing of it is kept.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import polars as pl

from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, SLURM_NOT_SET_UP, JobState
from stormpetrel.records.units import format_memory

Fault = Literal["user", "node", "storage", "scheduler", "unclear"]
Certainty = Literal["certain", "likely", "possible"]
NEAR: Final = timedelta(minutes=15)
_FULL: Final = 0.9  # of its memory, from which a kill is taken for one by memory
_FAR_FROM_FULL: Final = 0.5  # of its memory, below which a kill is not taken for one by memory
_MOST_NODES: Final = 64
_QUICK_S: Final = 30.0
_FEWEST_VICTIMS: Final = 3
_VICTIM_SHARE: Final = 0.7
_CERTAIN, _LIKELY, _POSSIBLE = 0.9, 0.6, 0.3
_HUP, _INT, _QUIT, _ILL, _ABORT, _BUS, _FPE, _KILLED, _USR1, _SEGV, _USR2, _PIPE = 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13
_TERM, _XCPU, _XFSZ, _SLURM_OOM = 15, 24, 25, 125
_SHELL_SIGNAL: Final = 128  # a shell tells a signal as 128 + its number
# sacct before 26.05 prints an exit code from 128 on less 128: a shell's 139 reads 11:0, and 255 reads 127:0.
_SACCT: Final = "sacct"
_SHELL_SIGNALS: Final = frozenset((_ABORT, _FPE, _KILLED, _SEGV, _TERM))
_FAILED: Final = tuple(state.value for state in DEFAULT_FAILURE_STATES)
_LONGEST_LINE: Final = 500
_MOST_LINES: Final = 400  # from the end
_SHOWN: Final = 160
_SECRETS: Final = (
    re.compile(
        r"(?i)((?:password|passwd|token|secret|api[_-]?key|authorization|credential)\S{0,20}?\s{0,2}[=:]\s{0,2})(?:bearer )?\S+"
    ),
    re.compile(r"(?i)(bearer )[\w.~+/-]{8,}=*"),
    re.compile(r"(://[^\s:/@]{1,100}:)[^\s@/]{1,200}(?=@)"),
    re.compile(r"\b(AKIA|ghp_|glpat-|xox[abp]-|hf_|sk-)[\w-]{8,}"),
    re.compile(r"\b(eyJ)[\w-]{10,}\.[\w-]{4,}\.[\w-]*"),
)


@dataclass(frozen=True, slots=True)
class Victims:
    """What became of other people's jobs around the end of a job: on its nodes, and everywhere else.

    Failures that explain themselves (a full memory, a time limit that was reached) are not counted as failed.
    """

    failed: int
    ended: int
    users: int  # whose jobs failed
    nodes: tuple[str, ...]
    failed_elsewhere: int = 0
    ended_elsewhere: int = 0

    @property
    def speak_for_node(self) -> bool:
        """Whether so many of them failed that the nodes are suspected: at least twice the share of the other nodes."""
        compared = max(self.ended_elsewhere, _FEWEST_VICTIMS)
        return self._many_failed and self.failed * compared >= 2 * self.failed_elsewhere * self.ended

    @property
    def speak_for_cluster(self) -> bool:
        """Whether about as many failed on the other nodes: what they share is suspected, not this node."""
        return self._many_failed and not self.speak_for_node and self.failed_elsewhere >= _FEWEST_VICTIMS

    @property
    def _many_failed(self) -> bool:
        return self.failed >= _FEWEST_VICTIMS and self.users >= 2 and self.failed >= _VICTIM_SHARE * self.ended


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job ended: a kind, a sentence (after "It ended because "), how sure that is, whose fault, what to change."""

    kind: str
    sentence: str
    certainty: Certainty
    fault: Fault
    change: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Clue:
    kind: str
    weight: float
    sentence: str
    fault: Fault
    change: str
    evidence: str


def find_cause(job: Mapping[str, Any], *, victims: Victims | None = None, message: ErrorMessage | None = None) -> Cause | None:
    """Return why a failed job ended as it did; None for jobs that did not fail."""
    if job.get("state") not in _FAILED:
        return None
    clues = [*_of_state(job), *_of_exit(job), *_of_others(victims), *_of_message(message)]
    if not clues:
        return Cause("unknown", "", "possible", "unclear", "See what it wrote last.", ())
    doubts: dict[str, float] = {}  # by kind: what is left of the doubt after all clues to it
    for clue in clues:
        doubts[clue.kind] = doubts.get(clue.kind, 1.0) * (1.0 - clue.weight)
    clues.sort(key=lambda clue: (doubts[clue.kind], -clue.weight))
    first = clues[0]
    agreeing = [clue for clue in clues if clue.kind == first.kind]
    against = [clue for clue in clues if clue.kind != first.kind and clue.weight >= _LIKELY]
    sure = 1.0 - doubts[first.kind] - (0.2 if against else 0.0)
    fault: Fault = first.fault
    if first.fault == "user" and victims is not None and victims.speak_for_node:
        fault = "unclear"
    evidence = dict.fromkeys(clue.evidence for clue in (*agreeing, *against) if clue.evidence)
    return Cause(first.kind, first.sentence, _certainty(sure), fault, first.change, tuple(evidence))


def ended_near(job: Mapping[str, Any]) -> pl.Expr:
    """Which jobs ended within a quarter of an hour of a job; none where it has not ended."""
    end = job.get("end_time")
    return pl.lit(False) if end is None else pl.col("end_time").is_between(end - NEAR, end + NEAR)


def victims_near(job: Mapping[str, Any], past: pl.DataFrame) -> Victims | None:
    """Return what became of others' jobs that ended on the same nodes within a quarter of an hour; None where nobody knows."""
    end, nodes = job.get("end_time"), expand_nodes(job.get("node_list"))[:_MOST_NODES]
    if end is None or not nodes:
        return None
    user = pl.lit(job.get("user"), dtype=pl.String)
    near = past.filter(ended_near(job), pl.col("start_time").is_not_null(), pl.col("user").ne_missing(user))
    names = set(nodes)
    shared = near["node_list"].map_elements(
        lambda text: bool(names.intersection(expand_nodes(text)[:_MOST_NODES])), return_dtype=pl.Boolean
    )
    shared = shared.fill_null(False)
    there, elsewhere = near.filter(shared), near.filter(~shared)
    counted = _counts_against_nodes(ran_out_of_time=_ran_out_of_time(job))
    failed = there.filter(counted)
    return Victims(
        failed.height, there.height, failed["user"].n_unique(), tuple(nodes), elsewhere.filter(counted).height, elsewhere.height
    )


def _counts_against_nodes(*, ran_out_of_time: bool) -> pl.Expr:
    """Which jobs failed in a way that their own request does not explain; time-outs count beside a time-out only."""
    full = pl.col("max_rss_bytes") >= _FULL * pl.col("req_mem_bytes").fill_null(0)
    killed = (pl.col("exit_signal") == _KILLED) | pl.col("exit_code").is_in([_KILLED, _SHELL_SIGNAL + _KILLED])
    memory = (pl.col("state") == JobState.OUT_OF_MEMORY.value) | (killed & full & (pl.col("req_mem_bytes") > 0))
    late = (pl.col("state") == JobState.TIMEOUT.value) | (pl.col("elapsed_s") >= 0.999 * pl.col("time_limit_s"))
    explained = memory.fill_null(False) if ran_out_of_time else memory.fill_null(False) | late.fill_null(False)
    return pl.col("state").is_in(_FAILED) & ~explained


def _ran_out_of_time(job: Mapping[str, Any]) -> bool:
    limit, ran = job.get("time_limit_s"), job.get("elapsed_s")
    return job.get("state") == JobState.TIMEOUT or bool(limit and ran and ran >= 0.999 * limit)


def _of_state(job: Mapping[str, Any]) -> Iterator[_Clue]:
    """What the scheduler itself says."""
    state = job.get("state")
    if _ran_out_of_time(job):
        weight, seen = (_CERTAIN, f"state {state}") if state == JobState.TIMEOUT else (_LIKELY, "it ran as long as its limit")
        change = "Ask for more time, or save its work in between."
        yield _Clue("time limit", weight, "it ran into its time limit", "user", change, seen)
    if state == JobState.OUT_OF_MEMORY:
        yield _Clue("memory", _CERTAIN, "it used more memory than it may", "user", "Ask for more memory.", f"state {state}")
    if state in (JobState.NODE_FAIL, JobState.BOOT_FAIL):
        yield _Clue("node", _CERTAIN, "a node failed under it", "node", "Submit it again as it is.", f"state {state}")
    if state == JobState.DEADLINE:
        yield _Clue(
            "deadline", _CERTAIN, "it could not end before its deadline", "user", "Give it a later --deadline.", f"state {state}"
        )
    if _memory_was_full(job) and state != JobState.OUT_OF_MEMORY:
        seen = f"it used {format_memory(job['max_rss_bytes'])} of {format_memory(job['req_mem_bytes'])}"
        yield _Clue("memory", _POSSIBLE, "its memory was full", "user", "Ask for more memory.", seen)


def _of_exit(job: Mapping[str, Any]) -> Iterator[_Clue]:
    """What exit code and signal say."""
    code, signal = _exit_of(job)
    is_cut = job.get("source") == _SACCT and not signal and code + _SHELL_SIGNAL < 256
    if is_cut and code in _SHELL_SIGNALS:
        yield from _of_signal(
            job, code, f"exit code {code}, which is also how sacct prints {code + _SHELL_SIGNAL}: signal {code}", 0.55
        )
    elif signal:
        evidence = f"signal {signal}" if signal != SLURM_NOT_SET_UP else f"Slurm's 0:{signal}"
        yield from _of_signal(job, signal, evidence, _LIKELY)
    elif code in _BY_CODE:
        kind, sentence, change = _BY_CODE[code]
        evidence = f"exit code {code}"
        if is_cut and code in _ALSO_READ:
            evidence += f", which is also how sacct prints {code + _SHELL_SIGNAL}{_ALSO_READ[code]}"
        yield _Clue(kind, _LIKELY, sentence, "user", change, evidence)
    elif code:
        quick = (job.get("elapsed_s") or _QUICK_S) < _QUICK_S
        sentence = "its script or program ended with an error" + (" within seconds" if quick else "")
        yield _Clue("program", _POSSIBLE, sentence, "user", "Its output names the error.", f"exit code {code}")


def _of_signal(job: Mapping[str, Any], signal: int, evidence: str, weight: float) -> Iterator[_Clue]:
    """What the signal that ended a job says; `weight` is that of a signal which the scheduler names."""
    if signal == _SLURM_OOM:
        sentence, evidence = "it used more memory than it may", "Slurm's mark of a memory kill"
        yield _Clue("memory", _CERTAIN, sentence, "user", "Ask for more memory.", evidence)
    elif signal == _KILLED and _memory_was_not_full(job):
        used = (
            f"it used {format_memory(job['max_rss_bytes'])} of {format_memory(job['req_mem_bytes'])} when that was last measured"
        )
        change = "See its output, and whether somebody stopped it; if its memory can grow within seconds, ask for more."
        sentence = "it was killed, and its memory was not full"
        yield _Clue("killed", _POSSIBLE, sentence, "unclear", change, evidence)
        yield _Clue("killed", 0.1, sentence, "unclear", change, used)
    elif signal == _KILLED:
        full = _memory_was_full(job)
        sentence = "it was killed with its memory full" if full else "it was killed, most likely for its memory"
        yield _Clue("memory", _LIKELY if full else _POSSIBLE, sentence, "user", "Ask for more memory.", evidence)
    elif signal in _BY_SIGNAL:
        kind, sentence, change = _BY_SIGNAL[signal]
        yield _Clue(kind, weight, sentence, "user", change, evidence)
    else:
        yield _Clue("ended", _POSSIBLE, f"signal {signal} ended it", "unclear", "Its output may name the reason.", evidence)


_BY_SIGNAL: Final = {
    _HUP: ("ended", "the terminal or the session that it ran in was closed", "Submit it with sbatch, or start it with nohup."),
    _INT: ("ended", "it was interrupted, as by Ctrl-C", "See who interrupted it: its script, or a person."),
    _QUIT: ("ended", "it was told to quit", "See who stopped it: its script, or a person."),
    _SEGV: ("program", "the program read or wrote outside its memory", "See what changed since it last ran well."),
    _ABORT: ("program", "the program gave up by itself", "Its last lines name the reason."),
    _FPE: ("program", "the program calculated something impossible, such as a division by zero", "See its input."),
    _BUS: ("storage", "a file that it had in memory went away, or shared memory was full", "See whether a disk is full."),
    _ILL: ("library", "it was built for another kind of processor", "Build it for the nodes of this partition."),
    _USR1: ("ended", "it got the signal USR1 and does not handle it", "See --signal in its script: a warning before the limit?"),
    _USR2: ("ended", "it got the signal USR2 and does not handle it", "See --signal in its script: a warning before the limit?"),
    _PIPE: ("program", "the program that should have read its output had ended", "See the other commands of the pipe."),
    _XCPU: ("time limit", "it used up its CPU time", "Ask for more time."),
    _XFSZ: ("storage", "a file grew larger than allowed", "See ulimit -f, and its quota."),
    _TERM: ("ended", "something asked it to end", "See whether it was cancelled, preempted or over its limit."),
    SLURM_NOT_SET_UP: (
        "set-up", "Slurm could not open its output file or enter its folder",
        "See whether the folders of --output, --error and --chdir exist and may be written to, on the node too.",
    ),
}  # fmt: skip
_ALSO_READ: Final = {2: ", an interrupted command", 127: ""}  # codes that sacct cuts to one of the table below
_BY_CODE: Final = {
    126: ("script", "its script or a command in it may not be executed", "Make it executable: chmod +x."),
    127: ("script", "a command in its script is not there", "Load the module that has it, or write its whole path."),
    124: ("time limit", "the command timeout in its script ended it", "Raise that limit."),
    2: ("script", "a command was called in a way that it does not know, or a file is missing", "Its output names the command."),
}


def _of_others(victims: Victims | None) -> Iterator[_Clue]:
    if victims is None or not (victims.speak_for_node or victims.speak_for_cluster):
        return
    where = victims.nodes[0] if len(victims.nodes) == 1 else f"its {len(victims.nodes)} nodes"
    failed = f"{victims.failed} of {victims.ended} jobs of {victims.users} other users on {where}"
    if victims.speak_for_cluster:
        everywhere = f"{failed}, and {victims.failed_elsewhere} of {victims.ended_elsewhere} on other nodes"
        sentence = "jobs of others failed all over the cluster then"
        change = "Tell the administrator; submit it again once jobs of others go well."
        yield _Clue("cluster", 0.4, sentence, "unclear", change, f"{everywhere} failed within a quarter of an hour")
        return
    weight = 0.8 if victims.users >= 3 else _LIKELY + 0.05
    change = "Submit it again elsewhere (--exclude), and tell the administrator."
    evidence = f"{failed} failed within a quarter of an hour"
    yield _Clue("node", weight, "its node lets jobs fail", "node", change, evidence)


def _of_message(message: ErrorMessage | None) -> Iterator[_Clue]:
    if message is not None:
        meaning = message.meaning
        fault: Fault = meaning.fault if meaning.fault in ("user", "node", "storage", "scheduler") else "unclear"  # type: ignore[assignment]
        yield _Clue(meaning.kind, 0.75, meaning.sentence, fault, meaning.change, f"it wrote: {message.line}")


def _exit_of(job: Mapping[str, Any]) -> tuple[int, int]:
    """Exit code and signal of the job, or of the step that failed first; 139 of a shell is signal 11."""
    code, signal = job.get("exit_code") or 0, job.get("exit_signal") or 0
    if not code and not signal:
        code, signal = job.get("failed_step_exit_code") or 0, job.get("failed_step_exit_signal") or 0
    if not signal and _SHELL_SIGNAL < code < _SHELL_SIGNAL + 65:
        return 0, code - _SHELL_SIGNAL
    return code, signal


def _memory_was_full(job: Mapping[str, Any]) -> bool:
    used, requested = job.get("max_rss_bytes"), job.get("req_mem_bytes")
    return bool(used and requested and used >= _FULL * requested)


def _memory_was_not_full(job: Mapping[str, Any]) -> bool:
    """Whether a job on one node used far less memory than it has; of several, accounting knows the largest task only."""
    used, requested = job.get("max_rss_bytes"), job.get("req_mem_bytes")
    return bool(used and requested and used < _FAR_FROM_FULL * requested and (job.get("nodes") or 1) == 1)


def _certainty(sure: float) -> Certainty:
    return "certain" if sure >= _CERTAIN else "likely" if sure >= 0.5 else "possible"


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """One entry of the table: how a message looks, and what it means."""

    name: str
    pattern: re.Pattern[str]
    kind: str
    fault: str
    sentence: str
    change: str


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """A message that was found: what it means, and the line itself with secrets masked."""

    meaning: KnownMessage
    line: str


@cache
def known_messages() -> tuple[KnownMessage, ...]:
    """Return the table of last words, in the order in which its entries decide."""
    table = tomllib.loads(files(__package__).joinpath("error_messages.toml").read_text(encoding="utf-8"))
    return tuple(KnownMessage(**{**entry, "pattern": re.compile(entry["pattern"])}) for entry in table["messages"])


def find_error_message(text: str) -> ErrorMessage | None:
    """Return the most telling message of the end of an output: of all that match, the entry that stands first in the table."""
    lines = [line[:_LONGEST_LINE] for line in text.splitlines()[-_MOST_LINES:]]
    for meaning in known_messages():
        for line in reversed(lines):
            if meaning.pattern.search(line):
                return ErrorMessage(meaning, shown_line(line))
    return None


def shown_line(line: str) -> str:
    """Return a line that can be shown: one line, short, printable, secrets masked."""
    plain = "".join(letter if letter.isprintable() else " " for letter in line).strip()
    return mask_secrets(plain)[:_SHOWN]


def mask_secrets(text: str) -> str:
    """Return a text with what looks like passwords, tokens and keys replaced by ***."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1***", text)
    return text
