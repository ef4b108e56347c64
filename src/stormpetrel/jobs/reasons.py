"""Reasons: the contributions of an explanation in words that a person understands.

Explained + FeatureMatrix -> ranked reasons per job. Features that say the same thing at several half-lives are added up (TreeSHAP
contributions are additive, so the sum is exact) and stated once, by the strongest of them. What a reason adds is in points of
risk (`points_of_risk`); log-odds, in which the trees add up, are kept next to them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, log1p
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stormpetrel.jobs.features import TELEMETRY_GROUP, FeatureMatrix
from stormpetrel.jobs.history.keys import SPACES_WITH_SIMILAR
from stormpetrel.jobs.model import Explained
from stormpetrel.records.units import format_memory

_SPACE_LABELS: Final = {space.name: space.words for space in SPACES_WITH_SIMILAR}
_NO_RISK: Final = 1e-12  # the log-odds of 0 and 1 are infinite
_NO_WAY: Final = 1e-9  # log-odds
_EMBEDDING: Final = re.compile(r"e\d+@")


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for or against a failure: `contribution` in log-odds, `points` of risk; above zero speaks for a failure."""

    feature: str
    words: str
    contribution: float
    value: float
    points: float


def points_of_risk(contributions: ArrayLike, base: float, risk: float) -> NDArray[np.float64]:
    """What each contribution (log-odds) adds to the risk that is shown, in points: hundredths, so that 10 % + 12 points is 22 %.

    Log-odds add up and risks do not: what a reason adds to a risk depends on what was added before it. So each reason gets its
    part of the way from the average job's risk to this one's as if all of them grew together from nothing to their full size
    (the Aumann–Shapley value), which is its contribution times the mean steepness of the logistic curve on that way:

        points = 100 × contribution × (risk − average) / (log-odds of the risk − base),  average = risk at the log-odds `base`

    Points therefore have the sign and the order of the contributions, and those of all reasons of a job add up to
    100 × (risk − average). Some of them alone may lead beyond 0 or 100 %: strong reasons that speak against each other do.
    """
    way = log_odds_of(risk) - base
    steepness = (risk - risk_at(base)) / way if abs(way) > _NO_WAY else risk * (1.0 - risk)
    return 100.0 * steepness * np.asarray(contributions, dtype=np.float64)


def log_odds_of(risk: float) -> float:
    """The log-odds of a risk."""
    kept = min(max(risk, _NO_RISK), 1.0 - _NO_RISK)
    return log(kept) - log1p(-kept)


def risk_at(log_odds: float) -> float:
    """The risk that log-odds stand for."""
    return 1.0 / (1.0 + exp(-log_odds)) if log_odds > 0 else exp(log_odds) / (1.0 + exp(log_odds))


def reasons(explained: Explained, features: FeatureMatrix, job: int = 0, *, top: int | None = None) -> list[Reason]:
    """The reasons of one job, strongest first.

    Their contributions and the base add up to the log-odds of its risk, their points and the average job's risk to the risk.
    """
    row, values = explained.contributions[job], features.aligned(explained.names).values[job]
    themes = _themes(explained.names)
    sums = np.add.reduceat(row[themes.order], themes.starts)
    # Words are found for those that are told only: a burst of thousands of jobs has a hundred features each.
    strongest_first = np.argsort(-np.abs(sums), kind="stable")[:top]
    points = points_of_risk(sums, explained.base, risk_at(explained.base + float(row.sum(dtype=np.float64))))
    return [
        _reason(explained.names, themes.members[at], float(sums[at]), float(points[at]), row, values) for at in strongest_first
    ]


def count_reasons(names: tuple[str, ...]) -> int:
    """How many reasons the features of a model make: those that say the same thing are one."""
    return len(_themes(names).members)


def _reason(
    names: tuple[str, ...],
    members: NDArray[np.int64],
    total: float,
    points: float,
    row: NDArray[np.float32],
    values: NDArray[np.float32],
) -> Reason:
    strongest = int(members[np.argmax(np.abs(row[members]))])
    name, value = names[strongest], float(values[strongest])
    text = _nobody_yet(names, values, name) or feature_text(name, value)
    return Reason(name, text, total, value, points)


@dataclass(frozen=True, slots=True)
class _Themes:
    """Which features are stated as one: their positions, theme by theme."""

    members: tuple[NDArray[np.int64], ...]
    order: NDArray[np.int64]  # all positions, one theme after the other
    starts: NDArray[np.int64]  # where each theme begins in it


@functools.lru_cache(maxsize=16)
def _themes(names: tuple[str, ...]) -> _Themes:
    themes: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        themes.setdefault(_theme(name), []).append(position)
    members = tuple(np.array(positions) for positions in themes.values())
    lengths = [len(positions) for positions in members]
    return _Themes(members, np.concatenate(members), np.cumsum([0, *lengths[:-1]]))


def _nobody_yet(names: tuple[str, ...], values: NDArray[np.float32], name: str) -> str:
    """A rate of jobs of which none has ended is the rate of a wider group: say so, rather than tell it as theirs."""
    space, _, reading = name.partition(".")
    ended = next((f"{space}.{count}" for count in ("ended_total", "ended_30d") if f"{space}.{count}" in names), None)
    if ended is None or not reading.startswith("failed_rate") or values[names.index(ended)] != 0:
        return ""
    return f"none of {_SPACE_LABELS[space]} has ended yet"


def _theme(name: str) -> str:
    space, _, reading = name.partition(".")
    if space == TELEMETRY_GROUP and _EMBEDDING.match(reading):
        return f"{space}.embedding"  # none of its numbers says anything by itself
    return f"{space}.failed_rate" if reading.startswith("failed_rate") else name


def feature_text(name: str, value: float) -> str:
    """A feature and its value as a phrase, such as "failure rate of this user's jobs, last 12 hours: 62 %"."""
    space, _, reading = name.partition(".")
    if reading in _HISTORY_LABELS and space in _SPACE_LABELS:
        phrase, shown = _HISTORY_LABELS[reading]
        return f"{phrase.format(_SPACE_LABELS[space])}: {_or_unknown(shown, value)}"
    if space == TELEMETRY_GROUP:
        return _telemetry_text(reading, value)
    if name in _OTHER_LABELS:
        phrase, shown = _OTHER_LABELS[name]
        return f"{phrase}: {_or_unknown(shown, value)}"
    return f"{name.replace('.', ' ').replace('_', ' ')}: {_or_unknown(_number, value)}"


def _telemetry_text(reading: str, value: float) -> str:
    """A feature of the first two minutes of CPU traces; what a model of traces made of them has its version behind an @."""
    plain = reading.partition("@")[0]
    if _EMBEDDING.match(reading):
        return "what its threads did in the first two minutes: " + (
            "unknown" if np.isnan(value) else "as its place among other CPU traces says"
        )
    phrase, shown = _TELEMETRY_LABELS.get(plain, (plain.replace("_", " "), _number))
    return f"{phrase} in the first two minutes: {_or_unknown(shown, value)}"


def _or_unknown(shown: Callable[[float], str], value: float) -> str:
    return "unknown" if np.isnan(value) else shown(value)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2f}"


def _count(value: float) -> str:
    return _number(round(float(np.expm1(value))))


def _seconds(value: float) -> str:
    """A span of which the logarithm is known."""
    return span(float(np.expm1(value)))


def span(seconds: float) -> str:
    """Seconds as a person says them."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _bytes(value: float) -> str:
    return format_memory(float(np.expm1(value)))


def _streak(value: float) -> str:
    if value > 0:
        return f"{value:.0f} failed in a row"
    return f"{-value:.0f} went well in a row" if value < 0 else "none yet"


def _ratio(value: float) -> str:
    factor = float(np.exp(min(20.0, abs(value))))
    if factor < 1.01:
        return "the same"
    return f"{factor:.3g} times as much" if value > 0 else f"1/{factor:.3g} as much"


def _yes(value: float) -> str:
    return "yes" if value else "no"


def _hour(value: float) -> str:
    return f"{value:.0f}:00"


def _weekday(value: float) -> str:
    return ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[int(value) - 1]


_HISTORY_LABELS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "failed_rate_1h": ("failure rate of {}, last hour", _percent),
    "failed_rate_12h": ("failure rate of {}, last 12 hours", _percent),
    "failed_rate_4d": ("failure rate of {}, last days", _percent),
    "failed_rate_30d": ("failure rate of {}, last month", _percent),
    "failed_rate_2jobs": ("failure rate of {}, the last few", _percent),
    "failed_rate_12jobs": ("failure rate of {}, the last dozen", _percent),
    "failed_rate_ever": ("failure rate of {}, ever", _percent),
    "ended_12h": ("ended in the last 12 hours of {}", _count),
    "ended_30d": ("ended in the last month of {}", _count),
    "ended_total": ("ended so far of {}", _count),
    "failure_streak": ("the latest of {}", _streak),
    "since_end": ("time since one of {} ended", _seconds),
    "since_failure": ("time since one of {} failed", _seconds),
    "since_success": ("time since one of {} went well", _seconds),
    "crash_share": ("crashes among {}", _percent),
    "timeout_share": ("time-outs among {}", _percent),
    "oom_share": ("out-of-memory kills among {}", _percent),
    "cancelled_share": ("cancelled among {}", _percent),
    "typical_run": ("typical run time of {}", _seconds),
    "run_to_limit": ("share of their time limit that {} use", _percent),
    "quick_share": ("over within two minutes among {}", _percent),
    "running": ("running now of {}", _number),
    "pending": ("waiting now of {}", _number),
    "since_submit": ("time since one of {} was submitted", _seconds),
    "burst": ("submitted in one go of {}", _number),
    "run_to_this_limit": ("run time of {} against this limit", _ratio),
}
_TELEMETRY_LABELS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "user_mean": ("share of CPU time in user mode", _percent),
    "system_mean": ("share of CPU time in system mode", _percent),
    "iowait_mean": ("share of CPU time waiting for I/O", _percent),
    "iowait_peak": ("highest share of a second waiting for I/O", _percent),
    "user_between_threads": ("difference between its threads", _number),
    "user_over_time": ("how unsteady its threads were", _number),
    "threads": ("threads whose CPU traces are known", _number),
    "score_mean": ("how unusual its CPU traces were", _number),
    "score_max": ("how unusual its most unusual CPU trace was", _number),
    "flagged_share": ("share of its CPU windows that were flagged", _percent),
}
_OTHER_LABELS: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "request.cpus": ("CPUs asked for", _count),
    "request.nodes": ("nodes asked for", _count),
    "request.gpus": ("GPUs asked for", _count),
    "request.memory": ("memory asked for", _bytes),
    "request.time_limit": ("time limit", _seconds),
    "request.memory_per_cpu": ("memory per CPU", _bytes),
    "request.cpu_time": ("CPU time asked for", _seconds),
    "request.limit_in_whole_hours": ("time limit in whole hours", _yes),
    "request.profile": ("profile of the request", _number),
    "request.is_array": ("part of an array", _yes),
    "request.array_task": ("array task", _number),
    "calendar.hour": ("hour of submission", _hour),
    "calendar.day_of_week": ("day of submission", _weekday),
    "similarity.cpus_to_previous": ("CPUs against the user's previous job", _ratio),
    "similarity.limit_to_previous": ("time limit against the user's previous job", _ratio),
    "similarity.memory_to_previous": ("memory against the user's previous job", _ratio),
    "start.wait": ("time in the queue", _seconds),
    "start.cpus": ("CPUs given", _count),
    "start.nodes": ("nodes given", _count),
    "start.cpus_to_asked": ("CPUs given against CPUs asked for", _number),
    "nodes.node_failed_rate_mean": ("failure rate on its nodes, last days", _percent),
    "nodes.node_failed_rate_max": ("failure rate on its worst node, last days", _percent),
    "nodes.node_failed_rate_12h_max": ("failure rate on its worst node, last 12 hours", _percent),
    "nodes.node_since_failure": ("time since a job failed on one of its nodes", _seconds),
}
