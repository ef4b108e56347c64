"""Text of advice: times, exit codes and groups of jobs; sizes come from `records.units`.

numbers -> text, and the values that people like to ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stormpetrel.jobs.advice.kinds import ANY_APPLICATION, OTHER_USERS, SAME_APPLICATION, SAME_NAME, SAME_SIZE, Kind, Need
from stormpetrel.jobs.reasons import span
from stormpetrel.records.states import JobState, format_signal
from stormpetrel.records.units import GB, format_memory

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0

_MINE: Final = "your last {} of this kind"
_LAST: Final = {
    SAME_NAME: "your last {} of this name",
    SAME_SIZE: _MINE,
    SAME_APPLICATION: "your last {} of this application",
    OTHER_USERS: "the last {} among other users' jobs of this kind",
    ANY_APPLICATION: "your last {} of this size",
}
_LONGEST_NAME: Final = 40
_SAME_RISK: Final = 0.005  # risks that are nearer to each other are the same

EXIT_CODES: Final = {
    1: "general error: the reason is in the job's output",
    2: "wrong use of a command or a missing file",
    126: "the command is not executable",
    127: "command not found",
    # A shell reports the end by signal n as exit code 128 + n.
    134: "aborted by the program itself",
    137: "killed, often for its memory",
    139: "memory access error in the program",
    143: "told to stop by the system or a person",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A request's memory or run time: its column, its words, and the friendly values to choose from."""

    column: str
    what: str
    shortage: str
    ladder: tuple[float, ...]
    step: float
    words: Callable[[float], str]


def format_duration(seconds: float) -> str:
    """A span of time: `20 s`, `5 min`, `1 h 30 min`; from ten minutes on to the minute."""
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < 10 * MINUTE_S:
        minutes, rest_s = divmod(whole, 60)
        return f"{minutes} min" + (f" {rest_s} s" if rest_s else "")
    hours, minutes = divmod(round(whole / MINUTE_S), 60)
    return " ".join(part for part in (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "") if part)


def format_cpus(count: float) -> str:
    """A number of CPUs, in part busy perhaps: `1 CPU`, `3.4 CPUs`."""
    text = f"{count:.1f}".removesuffix(".0")
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def format_gpus(count: float) -> str:
    """A number of GPUs, in part busy perhaps: `1 GPU`, `1.7 GPUs`."""
    return format_cpus(count).replace("CPU", "GPU")


def format_job_count(count: int) -> str:
    """A number of jobs: `1 job`, `14 jobs`."""
    return f"{count} job" if count == 1 else f"{count} jobs"


def last_jobs_text(kind: str, count: int) -> str:
    """The jobs of a kind as part of a sentence; other people stay unnamed."""
    return _LAST[kind].format("job" if count == 1 else format_job_count(count))


def format_exit(exit_code: int, exit_signal: int) -> str:
    """How a job exited and what that usually means: `exit code 127 (command not found)`."""
    if exit_signal:
        return format_signal(exit_signal, exit_code)
    return f"exit code {exit_code}" + _meaning(exit_code)


def clean(text: object) -> str:
    """A name out of a log as plain text: control characters are dropped, long names are cut."""
    plain = "".join(letter for letter in str(text) if letter.isprintable()).strip()
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"


def format_share(kind: Kind, count: int, compared: int) -> str:
    """How many of the jobs that were compared, in words that hide none of the others."""
    last = last_jobs_text(kind.name, kind.jobs.height)
    if compared < kind.jobs.height:
        return f"{count} of {compared} comparable ones among {last}"
    return last if count == compared else f"{count} of {last}"


def short_text(resource: Resource, kind: Kind, need: Need, requested: float) -> str:
    """How many jobs needed more than is requested, and how those fared that requested about as much."""
    short, similar = need.needed_more(requested), need.similar(requested)
    fact = f"{format_share(kind, int(short.sum()), short.size)} needed more than {resource.words(requested)}"
    if not similar.any() or similar.all() or short.all():
        return fact
    return f"{fact}, among them {np.sum(short & similar)} of the {similar.sum()} that asked for about as much"


def tried_text(resource: Resource, need: Need, requested: float, value: float) -> str:
    """What became of the jobs that had more."""
    tried = need.tried(requested)
    had_value = bool(np.min(need.asked[tried]) >= value)
    had = f"{resource.words(value)} or more" if had_value else f"more than {resource.words(max(requested, need.wall))}"
    asked_more = need.asked >= (value if had_value else np.nextafter(max(requested, need.wall), np.inf))
    others = int(np.sum(asked_more & ~tried))
    if others:
        return f"{tried.sum()} of the {tried.sum() + others} that asked for {had} completed; none {resource.shortage}"
    return f"the {tried.sum()} that asked for {had} all completed"


def _meaning(exit_code: int) -> str:
    return f" ({EXIT_CODES[exit_code]})" if exit_code in EXIT_CODES else ""


_MEMORY_GB: Final = (0.25, 0.5, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
_CPUS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
_TIME_H: Final = (1 / 12, 1 / 6, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 168, 240, 336, 720)
MEMORY: Final = Resource(
    "req_mem_bytes", "memory", "ran out of memory", tuple(size * GB for size in _MEMORY_GB), GB, format_memory
)
CPUS: Final = Resource(
    "req_cpus", "CPUs", "had too few CPUs", tuple(float(count) for count in _CPUS), 1.0, lambda count: format_cpus(count)
)
TIME: Final = Resource(
    "time_limit_s",
    "run time",
    "ran into the time limit",
    tuple(round(hours * HOUR_S) * 1.0 for hours in _TIME_H),
    300.0,
    format_duration,
)


GPUS: Final = Resource(
    "req_gpus",
    "GPUs",
    "had too few GPUs",
    tuple(float(count) for count in (*range(1, 9), 12, *range(16, 257, 8))),
    1.0,
    format_gpus,
)
GPU_MEMORY: Final = Resource("gpu_mem_bytes", "memory of GPUs", "ran out of memory of its GPUs", MEMORY.ladder, GB, format_memory)
NEEDED: Final[Mapping[str, Resource]] = {  # by the names of the models of needs
    "memory": MEMORY,
    "time": TIME,
    "cpus": CPUS,
    "gpus": GPUS,
    "gpu_memory": GPU_MEMORY,
}
COUNTED: Final = (CPUS, GPUS)  # busy or idle: nobody runs out of them


def job_facts(job: Mapping[str, Any], *, never_started: bool) -> list[str]:
    """Return how a job went, a phrase each: who cancelled it, its exit, how long it ran, what it used, and where."""
    facts = []
    if job.get("state") == JobState.CANCELLED:
        facts.append(_cancelled_text(job))
    if job.get("exit_code") or job.get("exit_signal"):
        facts.append(format_exit(job.get("exit_code") or 0, job.get("exit_signal") or 0))
    if never_started:
        facts.append("never started")
    elif job.get("elapsed_s") is not None:
        limit = f" of {span(job['time_limit_s'])}" if job.get("time_limit_s") else ""
        facts.append(f"ran {span(job['elapsed_s'])}{limit}")
    if job.get("max_rss_bytes"):
        request = f" of {format_memory(job['req_mem_bytes'])}" if job.get("req_mem_bytes") else ""
        facts.append(f"used {format_memory(job['max_rss_bytes'])}{request}")
    if job.get("node_list"):
        facts.append(f"on {job['node_list']}")
    return facts


def _cancelled_text(job: Mapping[str, Any]) -> str:
    """Who cancelled a job; Slurm itself does so as root."""
    by = job.get("cancelled_by")
    if by is None:
        return "cancelled"
    if by in (str(job.get("uid")), job.get("user")):
        return "cancelled by its user"
    return "cancelled by root: an administrator or Slurm itself" if by in ("0", "root") else f"cancelled by user {clean(by)}"


def need_texts(needs: Mapping[str, Any] | None) -> list[str]:
    """What a job will need of each resource, a line each; `needs` are estimates, or the same as models of an answer."""
    lines = []
    for name, need in (needs or {}).items():
        resource = NEEDED[name]
        request = "" if need.request is None else f" (it asks for {resource.words(need.request)})"
        is_short = need.short is not None and need.short >= 0.005 and resource not in COUNTED
        short = f"; more than it asks for with {need.short:.0%}" if is_short else ""
        verb = "keep busy" if resource in COUNTED else "need"
        use = f"half such jobs {verb} up to {resource.words(need.p50)}, nine in ten up to {resource.words(need.p90)}"
        lines.append(f"{resource.what[0].upper()}{resource.what[1:]}: {use}{request}{short}")
    return lines


def wait_texts(wait: Any) -> list[str]:
    """When a job will start, or why nobody can say; [] where there is no estimate. Times count from its submission."""
    if wait is None or (wait.p50_s is None and wait.reason is None):
        return []
    if wait.p50_s is None:
        return [wait.reason]
    waited = f"; it has waited for {format_duration(wait.waited_s)}" if wait.waited_s >= 1.0 else ""
    half, most = format_duration(wait.p50_s), format_duration(wait.p90_s)
    start = f"at once (half of such jobs), within {most}" if wait.p50_s < 1.0 else f"within {half} (half of such jobs), {most}"
    return [f"Starts {start} (nine in ten) of its submission{waited}"]


def no_gain_text(risk_before: float, risk_after: float) -> str | None:
    """What the model sees in a change that does not lower the risk: "no difference", or "no gain" where it rises; else None."""
    if risk_after < risk_before - _SAME_RISK:
        return None
    return "no difference" if risk_after <= risk_before + _SAME_RISK else "no gain"


def effect_text(piece: Any) -> str | None:
    """What a change does, in one line: risk, start and core-hours before → after; None where nothing is known.

    `piece` is a piece of advice, or the same as a model of an answer.
    """
    parts = []
    if piece.risk_before is not None and piece.risk_after is not None:
        change = f"{piece.risk_before:.0%} → {piece.risk_after:.0%}"
        no_gain = no_gain_text(piece.risk_before, piece.risk_after)
        parts.append(f"the model sees {no_gain} ({change})" if no_gain else f"risk {change}")
    if piece.wait_before_s is not None and piece.wait_after_s is not None and piece.wait_after_s < 0.95 * piece.wait_before_s:
        parts.append(f"starts within {format_duration(piece.wait_after_s)} instead of {format_duration(piece.wait_before_s)}")
    if piece.core_hours_saved:
        parts.append(f"{piece.core_hours_saved:,.1f} core-hours saved")
    return ", ".join(parts) or None
