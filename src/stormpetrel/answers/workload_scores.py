"""The scorecard of a generator as lines to be read: a figure, its ideal, and what two real halves of the log reach.

scorecard (JSON of `synth evaluate`) -> score_lines -> ScoreLine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

NEAR: Final = 1.5  # times the floor: as near as two real halves of one log are to each other, more or less
COLUMN_WORDS: Final = {
    "interval_s": "Interval", "runtime_s": "Run time", "cores": "Cores", "nodes": "Nodes", "gpus": "GPUs", "mem_bytes": "Memory",
    "time_limit_s": "Time limit", "wait_s": "Wait", "partition": "Partition", "qos": "QOS", "state": "Outcome", "user": "Users",
    "group": "Groups", "account": "Accounts",
}  # fmt: skip
_SMALL: Final = 0.02  # a distance below which nobody could tell, whatever the floor
_LEAST_FLOOR: Final = 0.005  # below it "times the floor" says nothing
_MOST_COLUMNS: Final = 40
_MAIN: Final = ("interval_s", "runtime_s", "cores")


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """One figure of a scorecard; `verdict` is `near`, `off`, or `open` where it cannot be told."""

    measure: str
    value: float | None
    ideal: float | None
    floor: float | None  # the same figure of real odd weeks against real even ones
    times_floor: float | None  # how many times as far from the ideal as the floor is
    verdict: str
    meaning: str


def score_lines(card: Mapping[str, Any]) -> list[ScoreLine]:
    """Every figure that a scorecard has: the main columns, what only the order of jobs can tell, privacy, other columns."""
    found = card.get("floor")
    floor: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    columns = dict(_columns(card, floor))
    main = [columns.pop(name) for name in _MAIN if name in columns]
    pairs = [_pair(card, floor, key, *words) for key, words in _PAIRS.items()]
    singles = [_single(card, floor, key, *words) for key, words in _SINGLES.items()]
    return [line for line in (*main, *pairs, *singles, *columns.values()) if line.value is not None]


# key -> (measure, what it means); each is a figure of both logs, and the ideal is that of the real one
_PAIRS: Final = {
    "lag1": ("Lag-1 autocorrelation", "Whether a short interval follows a short one"),
    "dispersion": ("Dispersion of hourly counts", "Variance ÷ mean: how much jobs come in bursts"),
    "same_user_share": ("Same user as the job before", "Share of jobs"),
    "exact_copies": ("Exact copies", "Share of new jobs that equal a learnt one; ideal: what chance gives"),
}
# key -> (measure, ideal, what it means)
_SINGLES: Final = {
    "acf_mae": ("Autocorrelation, lags 1 to 50", 0.0, "Mean distance of the two curves"),
    "hour_profile_tv": ("Hours of the week", 0.0, "Share of jobs in another hour of the week"),
    "c2st_row": ("Told apart, job by job", 0.5, "Can trees tell a new job from a real one? .5 no, 1 always"),
    "c2st_sequence": ("Told apart, three in a row", 0.5, "The same with the two jobs before; below .5 is copying"),
    "nearest_record_ratio": ("Nearest-record ratio", 1.0, "Distance to learnt jobs; well below 1 is memorising"),
    "membership_auc": ("Membership attack", 0.5, "Can an attacker tell who was learnt from? .5 no, 1 always"),
}
# What has no floor, one that is next to nothing, or is only wrong in one direction: value, ideal -> whether that is near enough.
_BOUNDS: Final[dict[str, Callable[[float, float], bool]]] = {
    "lag1": lambda value, real: abs(value - real) <= 0.08,
    "exact_copies": lambda value, natural: value <= NEAR * natural + 0.002,
    "nearest_record_ratio": lambda value, _ideal: value >= 0.8,
    "membership_auc": lambda value, _ideal: value <= 0.6,
    "c2st_row": lambda value, _ideal: 0.45 <= value <= 0.65,
    "c2st_sequence": lambda value, _ideal: 0.45 <= value <= 0.65,
}


def _columns(card: Mapping[str, Any], floor: Mapping[str, Any]) -> Iterator[tuple[str, ScoreLine]]:
    """The distances of single columns: numbers first, then categories."""
    for part, key, meaning in _PARTS:
        columns, floors = card.get(part), floor.get(part)
        if not isinstance(columns, Mapping):
            continue
        for name in list(map(str, columns))[:_MOST_COLUMNS]:
            beside = floors.get(name) if isinstance(floors, Mapping) else None
            measure = f"Distribution: {COLUMN_WORDS.get(name, name)[:60].lower()}"
            yield name, _line("", measure, _number(columns[name], key), 0.0, _number(beside, key), 0.0, meaning)


_PARTS: Final = (
    ("columns", "ks", "Largest gap of the two distributions (KS)"),
    ("categories", "tv", "Share of jobs that would have to be of another kind"),
)


def _pair(card: Mapping[str, Any], floor: Mapping[str, Any], key: str, measure: str, meaning: str) -> ScoreLine:
    told, beside, ideal = card.get(key), floor.get(key), "natural" if key == "exact_copies" else "real"
    figures = (_number(told, "synthetic"), _number(told, ideal), _number(beside, "synthetic"), _number(beside, ideal))
    return _line(key, measure, *figures, meaning)


def _single(card: Mapping[str, Any], floor: Mapping[str, Any], key: str, measure: str, ideal: float, meaning: str) -> ScoreLine:
    return _line(key, measure, _number(card, key), ideal, _number(floor, key), ideal, meaning)


def _line(
    key: str, measure: str, value: float | None, ideal: float | None, floor: float | None, floor_ideal: float | None, meaning: str
) -> ScoreLine:
    if value is None or ideal is None:
        return ScoreLine(measure, value, ideal, floor, None, "open", meaning)
    away, allowed = abs(value - ideal), None
    if floor is not None and floor_ideal is not None:
        allowed = abs(floor - floor_ideal)
    times = away / allowed if allowed is not None and allowed >= _LEAST_FLOOR else None
    if key in _BOUNDS:
        verdict = "near" if _BOUNDS[key](value, ideal) else "off"
    elif away <= _SMALL * max(1.0, abs(ideal)) or (times is not None and times <= NEAR):
        verdict = "near"
    else:
        verdict = "open" if allowed is None else "off"
    return ScoreLine(measure, value, ideal, floor, times, verdict, meaning)


def _number(told: Any, key: str) -> float | None:
    """A figure, or the mean of one that was measured over seeds; None where there is none, or it is no number."""
    found = told.get(key) if isinstance(told, Mapping) else None
    if isinstance(found, Mapping):
        found = found.get("mean")
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    return float(found)
