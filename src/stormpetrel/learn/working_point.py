"""Working points: from which corrected probability on a job is flagged, and the walk that tries them with honest time.

forecasts in the order of time + outcomes as they become known -> walk -> Walked: corrected probabilities, flags by cost and flags
within a budget. Costs: a missed failure is worth so many wrong flags; without costs, the best F1 that the corrected risks of the
latest jobs promise. Budget: at most so many flags a day, spent on the riskiest.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.learn.metrics import Truth, expected_calibration_error, scores_at
from stormpetrel.learn.recalibration import Calibration, Recalibrator, log_odds
from stormpetrel.records.arrays import Floats

RECENT: Final = 2_000  # forecasts that a working point is chosen on
DAY_S: Final = 86_400.0
BUSY_DAY: Final = 1.5  # times the promise: never more in any 24 hours
_BUDGET_S: Final = 7 * DAY_S  # over which a budget is kept in balance
_EVERY: Final = 25  # forecasts between two choices of a threshold


@dataclass(frozen=True, slots=True)
class Costs:
    """What the site says about flags; zeros where it says nothing."""

    missed: float = 0.0  # wrong flags that one missed failure is worth; 0: balance both, by F1
    flags_per_day: float = 0.0  # at most; 0: as many as the costs say

    def threshold(self, probability: Floats) -> float:
        """Return the corrected probability to flag from, for jobs of these probabilities."""
        return 1.0 / (1.0 + self.missed) if self.missed else best_expected_f1(probability)


def best_expected_f1(probability: Floats) -> float:
    """Return the threshold with the best F1 that probabilities promise if each is right; no outcome is needed."""
    if not probability.size:
        return 0.5
    falling = np.sort(probability)[::-1]
    expected = 2 * np.cumsum(falling) / (np.arange(1, falling.size + 1) + falling.sum())
    return float(falling[int(np.argmax(expected))])


@dataclass
class FlagBudget:
    """Spends so many flags a day on the riskiest jobs: a share of the latest risks, corrected by what was spent."""

    per_day: float
    recent: deque[tuple[float, float]] = field(default_factory=deque)  # (time, log-odds) of the latest forecasts
    flags: deque[float] = field(default_factory=deque)  # times, of the last week
    began: float | None = None
    _threshold: float = np.inf
    _seen: int = 0

    def offer(self, time_s: float, odds: float) -> bool:
        """Return whether this job, the latest, gets one of the flags."""
        self.began = time_s if self.began is None else self.began
        self.recent.append((time_s, odds))
        while self.recent[0][0] < time_s - _BUDGET_S or len(self.recent) > 2 * RECENT:
            self.recent.popleft()
        while self.flags and self.flags[0] < time_s - _BUDGET_S:
            self.flags.popleft()
        if self._seen % _EVERY == 0:
            self._threshold = self._choose(time_s)
        self._seen += 1
        is_flagged = odds >= self._threshold and self._of_a_day(time_s) + 1 <= max(1.0, BUSY_DAY * self.per_day)
        if is_flagged:
            self.flags.append(time_s)
        return is_flagged

    def _of_a_day(self, time_s: float) -> int:
        return sum(1 for _ in takewhile(lambda flag: flag > time_s - DAY_S, reversed(self.flags)))

    def _choose(self, time_s: float) -> float:
        """Return the log-odds that as many of the latest jobs reach as may be flagged."""
        assert self.began is not None
        counted = np.array([odds for _, odds in self.recent])
        jobs_per_day = counted.size * DAY_S / max(DAY_S / 24, time_s - self.recent[0][0])
        days = min(_BUDGET_S, time_s - self.began) / DAY_S
        owed = self.per_day * days - len(self.flags)  # what is left of the week's budget, or was spent too much
        wanted = float(np.clip(self.per_day + owed, 0.5 * self.per_day, 2.0 * self.per_day))
        share = min(1.0, wanted / max(jobs_per_day, 1e-9))
        return float(np.quantile(counted, 1.0 - share))


@dataclass(frozen=True, slots=True)
class Stream:
    """Forecasts of jobs, when each was made, how it turned out, and when that was known (Unix seconds)."""

    forecast: Floats
    failed: Truth
    made_s: Floats
    known_s: Floats

    def take(self, which: npt.NDArray[np.intp] | Truth | slice) -> Stream:
        """Return some of them."""
        return Stream(self.forecast[which], self.failed[which], self.made_s[which], self.known_s[which])

    def days(self) -> float:
        """How long it lasts, an hour at least."""
        return max(DAY_S / 24, float(np.ptp(self.made_s)) if self.made_s.size else 0.0) / DAY_S


@dataclass(frozen=True, slots=True)
class Walked:
    """What was said about each job of a stream as it came."""

    probability: Floats  # corrected
    flagged: Truth  # by cost
    budgeted: Truth  # within the budget
    promised: float  # flags a day
    days: float
    calibration: Calibration  # after the last

    def figures(self, failed: Truth) -> dict[str, object]:
        """The figures of the corrected forecasts: F1, calibration error, and the flags of a day as promised and as made."""
        precision, recall, f1 = scores_at(failed, self.flagged.astype(np.float64), 0.5)
        spent = scores_at(failed, self.budgeted.astype(np.float64), 0.5)
        return {
            "f1": f1,
            "precision": precision,
            "recall": recall,
            "ece": expected_calibration_error(failed, self.probability) if failed.size else None,
            "flags_per_day": {
                "promised": self.promised,
                "realised": float(self.budgeted.sum()) / self.days,
                "f1": spent[2],
                "precision": spent[0],
                "recall": spent[1],
            },
        }


def walk(stream: Stream, before: Stream, costs: Costs, *, until_s: float = -np.inf) -> Walked:
    """Go through a stream in the order of time: each job is judged by what had settled before it.

    `until_s` also takes in what settles after the last forecast, up to then: what holds for the next one.
    `before` are out-of-time forecasts of the training part, all of them known at the beginning: what it starts from. Where the
    site names no budget, the promise is the flags a day that the costs would have made of them.
    """
    known = np.argsort(before.known_s, kind="stable")
    recalibrator = Recalibrator().begin(before.forecast[known], before.failed[known])
    odds, recent = log_odds(stream.forecast), deque(_latest(before), maxlen=RECENT)
    promised = costs.flags_per_day or _usual_flags(before, recalibrator.calibration, costs)
    budget, waiting = FlagBudget(promised), list[tuple[float, int]]()
    probability, flagged, budgeted = np.empty(odds.size), np.zeros(odds.size, dtype=bool), np.zeros(odds.size, dtype=bool)
    lines: dict[int, Floats] = {}  # of the forecasts that are not settled yet
    threshold = 0.5
    for count, job in enumerate(np.argsort(stream.made_s, kind="stable")):
        while waiting and waiting[0][0] < stream.made_s[job]:  # strictly: at equal times nobody knows yet
            _, ended = heapq.heappop(waiting)
            recalibrator.settle(float(odds[ended]), bool(stream.failed[ended]), lines.pop(ended))
        heapq.heappush(waiting, (float(stream.known_s[job]), int(job)))
        lines[int(job)] = recalibrator.lines
        recent.append(float(odds[job]))
        calibration = recalibrator.calibration
        if count % _EVERY == 0:
            threshold = costs.threshold(_corrected(np.array(recent), calibration))
        probability[job] = _corrected(odds[job : job + 1], calibration)[0]
        flagged[job] = probability[job] >= threshold
        budgeted[job] = budget.offer(float(stream.made_s[job]), calibration.slope * odds[job] + calibration.level)
    while waiting and waiting[0][0] < until_s:
        _, ended = heapq.heappop(waiting)
        recalibrator.settle(float(odds[ended]), bool(stream.failed[ended]), lines.pop(ended))
    return Walked(probability, flagged, budgeted, promised, stream.days(), recalibrator.calibration)


def join_walks(walks: Sequence[Walked]) -> Walked:
    """Several walks as one, each begun anew: those of several cuts."""
    return Walked(
        np.concatenate([part.probability for part in walks]),
        np.concatenate([part.flagged for part in walks]),
        np.concatenate([part.budgeted for part in walks]),
        float(np.average([part.promised for part in walks], weights=[part.days for part in walks])),
        sum(part.days for part in walks),
        walks[-1].calibration,
    )


def _corrected(odds: Floats, calibration: Calibration) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(calibration.slope * odds + calibration.level, -50.0, 50.0)))


def _latest(before: Stream) -> Floats:
    return log_odds(before.forecast[np.argsort(before.made_s, kind="stable")][-RECENT:])


def _usual_flags(before: Stream, calibration: Calibration, costs: Costs) -> float:
    """How many flags a day the costs would have made of the jobs before, rounded to a whole number from one on."""
    if not before.forecast.size:
        return 1.0
    corrected = calibration.probability(before.forecast)
    per_day = float((corrected >= costs.threshold(corrected)).sum()) / before.days()
    return float(max(1, round(per_day)))
