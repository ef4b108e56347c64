"""Figures of an alarm for the grid: scores, what was true, and a threshold from elsewhere -> how good it would have been.

Per bucket: areas under the precision-recall and the ROC curve. Per outage: was it raised at all, and after how many hours. What
belongs to nobody is left out: gaps, maintenance, and the hours after an outage in which the grid still digests it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.events.alarm_budget import episodes
from stormpetrel.events.contract import Scores
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, WEEK_S, EventSeries

AFTERMATH_HOURS: Final = 6.0

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TestOutage:
    """An outage of the test part: its first and last bucket, counted from the beginning of that part."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    first: int
    last: int
    outage_type: str = "outage"
    severity: str = "recorded"


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of one outage: hours from its first bucket to the end of the first alarming one; None if it was missed."""

    outage_type: str
    severity: str
    delay_hours: float | None


@dataclass(frozen=True, slots=True)
class AlarmFigures:
    """How good an alarm was on the test part; None where the part cannot tell."""

    pr_auc: float | None
    roc_auc: float | None
    recall_at_one_per_week: float | None
    false_alarms_per_week: float | None
    precision: float | None  # outages raised ÷ (outages raised + false alarms)
    delay_hours: float | None  # median over the outages that were raised
    alarm_share: float | None  # of calm buckets: an alarm that never ends is one false alarm, but not a good one
    outage_share: float | None  # of the counted buckets: the area under the precision-recall curve that chance would have
    threshold: float
    caught: tuple[Caught, ...]

    def as_dict(self) -> dict[str, float | None]:
        """The figures without the single outages."""
        return {name: getattr(self, name) for name in FIGURES}


FIGURES: Final = (
    "pr_auc",
    "roc_auc",
    "recall_at_one_per_week",
    "false_alarms_per_week",
    "precision",
    "delay_hours",
    "alarm_share",
    "outage_share",
)


def judge_alarm(scores: Scores, test: EventSeries, outages: Sequence[TestOutage], threshold: float | Scores) -> AlarmFigures:
    """All the figures of one model at a threshold that was chosen elsewhere: one for all buckets, or one for each.

    A bucket that the model gave no score is one that it did not alarm at, and stands below all others.
    """
    counted = counted_buckets(test)
    truth = test.label == ANOMALY
    filled = _filled(scores)
    alarm = (filled > threshold) & counted
    calm = counted & ~truth
    caught = tuple(_caught(outage, alarm, test.bucket_s) for outage in outages if counted[outage.first : outage.last + 1].any())
    delays = [outage.delay_hours for outage in caught if outage.delay_hours is not None]
    false = len(episodes(alarm & calm, test.bucket_s))
    weeks = calm.sum() * test.bucket_s / WEEK_S
    return AlarmFigures(
        pr_auc=pr_auc(truth[counted], filled[counted]),
        roc_auc=roc_auc(truth[counted], filled[counted]),
        recall_at_one_per_week=len(delays) / len(caught) if caught else None,
        false_alarms_per_week=float(false / weeks) if weeks else None,
        precision=len(delays) / (len(delays) + false) if caught and (delays or false) else None,
        delay_hours=float(np.median(delays)) if delays else None,
        alarm_share=float(alarm[calm].mean()) if calm.any() else None,
        outage_share=float(truth[counted].mean()) if counted.any() else None,
        threshold=float(np.median(threshold)),
        caught=caught,
    )


def counted_buckets(series: EventSeries) -> Mask:
    """The buckets that figures are made of: seen, not in a maintenance, and not in the aftermath of an outage."""
    return np.asarray(~series.is_gap & (series.label != MAINTENANCE) & ~aftermath(series), dtype=np.bool_)


def calm_buckets(series: EventSeries) -> Mask:
    """The buckets of normal operation, as far as labels tell."""
    return np.asarray(counted_buckets(series) & (series.label != ANOMALY), dtype=np.bool_)


def aftermath(series: EventSeries) -> Mask:
    """The hours after an outage, as far as they are not part of another one."""
    outage = series.label == ANOMALY
    buckets = round(AFTERMATH_HOURS * HOUR_S / series.bucket_s)
    after = np.zeros(len(series), dtype=np.bool_)
    for last in np.flatnonzero(outage[:-1] & ~outage[1:]):
        after[last + 1 : last + 1 + buckets] = True
    return np.asarray(after & ~outage, dtype=np.bool_)


def outages_in(series: EventSeries) -> list[TestOutage]:
    """The outages that the labels of a series tell of; of which type and how bad, labels do not say."""
    edges = np.diff(np.concatenate([[0], (series.label == ANOMALY).astype(np.int8), [0]]))
    firsts, lasts = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return [TestOutage(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def by_outage(caught: Sequence[Caught]) -> dict[str, dict[str, dict[str, Any]]]:
    """Type -> severity -> how many there were, which share was raised, and after how many hours (median)."""
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    for outage_type, severity in sorted({(outage.outage_type, outage.severity) for outage in caught}):
        delays = [outage.delay_hours for outage in caught if (outage.outage_type, outage.severity) == (outage_type, severity)]
        raised = [delay for delay in delays if delay is not None]
        figures.setdefault(outage_type, {})[severity] = {
            "recall": len(raised) / len(delays),
            "delay_hours": float(np.median(raised)) if raised else None,
            "n": len(delays),
        }
    return figures


def _caught(outage: TestOutage, alarm: Mask, bucket_s: int) -> Caught:
    places = np.flatnonzero(alarm[outage.first : outage.last + 1])
    delay = float(places[0] + 1) * bucket_s / HOUR_S if places.size else None
    return Caught(outage.outage_type, outage.severity, delay)


def _filled(scores: Scores) -> Scores:
    """Scores without holes: none is below all others, endless is above them."""
    known = scores[np.isfinite(scores)]
    lowest, highest = (float(known.min()) - 1.0, float(known.max()) + 1.0) if known.size else (0.0, 1.0)
    return np.nan_to_num(scores, nan=lowest, neginf=lowest, posinf=highest)
