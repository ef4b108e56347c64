"""A prediction in words: the one place that says how likely a job is to fail, what a failure would be, and why.

risk, threshold, outcomes, reasons -> text. Shown is always the risk of failing, never how sure a class is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from stormpetrel.jobs.outcomes import OUTCOME_LABELS

_SMALL_POINTS: Final = 0.95  # below it a decimal is told
_LEAST_SHARE: Final = 0.005


class ReasonLike(Protocol):
    """A reason as it is shown: new, or stored."""

    @property
    def words(self) -> str:
        """The feature and its value as a phrase."""

    @property
    def points(self) -> float:
        """What it adds to the risk, in points."""

    @property
    def contribution(self) -> float:
        """The same in log-odds."""


class VerdictLike(Protocol):
    """A verdict as it is shown: new, or out of an answer."""

    @property
    def risk(self) -> float:
        """The probability of failing, 0 to 1."""

    @property
    def flagged(self) -> bool:
        """Whether the risk reaches the threshold."""

    @property
    def threshold(self) -> float:
        """The risk from which a job is flagged."""

    @property
    def outcomes(self) -> Mapping[str, float]:
        """The probability of each way to end."""

    @property
    def failures(self) -> Sequence[str]:
        """Which of the outcomes are failures."""


def percent(share: float | None) -> str:
    """A share of one in percent: `26 %`; nothing is ever quite certain."""
    if share is None:
        return "–"
    if 0.0 < share < 0.01 or share > 0.99:
        return "under 1 %" if share < 0.5 else "over 99 %"
    return f"{100 * share:.0f} %"


def format_risk(risk: float) -> str:
    """`26 % risk of failing`."""
    return f"{percent(risk)} risk of failing"


def flag_text(*, flagged: bool, threshold: float) -> str:
    """`flagged (threshold 20 %)`: whether a risk is high enough for the site to point at the job."""
    return f"{'flagged' if flagged else 'not flagged'} (threshold {percent(threshold)})"


def outcome_text(outcome: str | None) -> str:
    """An outcome as part of a sentence: `crash`, `out of memory`."""
    return OUTCOME_LABELS.get(outcome or "", (outcome or "unknown").lower().replace("_", " "))


def failure_text(likeliest: str | None) -> str:
    """`if it fails: crash`; empty where nobody can tell."""
    return f"if it fails: {outcome_text(likeliest)}" if likeliest else ""


def prediction_text(risk: float, *, flagged: bool, threshold: float, likeliest: str | None = None) -> str:
    """A prediction in one phrase: `26 % risk of failing, flagged (threshold 20 %); if it fails: crash`."""
    failure = failure_text(likeliest)
    return f"{format_risk(risk)}, {flag_text(flagged=flagged, threshold=threshold)}" + (f"; {failure}" if failure else "")


def verdict_text(verdict: VerdictLike) -> str:
    """The same of a verdict, with the share of each kind of failure: `…; if it fails: crash 70 %, time-out 30 %`."""
    phrase = prediction_text(verdict.risk, flagged=verdict.flagged, threshold=verdict.threshold)
    shares = failure_shares(verdict.outcomes, verdict.failures)
    kinds = ", ".join(f"{outcome_text(name)} {percent(share)}" for name, share in shares.items() if share >= _LEAST_SHARE)
    return f"{phrase}; if it fails: {kinds}" if kinds else phrase


def failure_shares(outcomes: Mapping[str, float], failures: Sequence[str]) -> dict[str, float]:
    """How often a failure of this job would be of each kind, most often first; outcomes that are no failure are left out."""
    failed = {name: probability for name, probability in outcomes.items() if name in failures}
    total = sum(failed.values())
    if total <= 0:
        return {}
    return {name: failed[name] / total for name in sorted(failed, key=lambda name: -failed[name])}


def format_points(points: float) -> str:
    """An effect on the risk: `+12 points`, `−1 point`, `+0.4 points`."""
    size = abs(points)
    number = f"{size:.0f}" if size >= _SMALL_POINTS else f"{size:.1f}"
    sign = "−" if points < 0 and float(number) else "+" if float(number) else "±"
    return f"{sign}{number} {'point' if number == '1' else 'points'}"


def reason_text(reason: ReasonLike, *, log_odds: bool = False) -> str:
    """A reason with its effect: `+12 points: failure rate of this user's jobs, last days: 60 %`."""
    effect = f"{reason.contribution:+.2f} log-odds" if log_odds else format_points(reason.points)
    return f"{effect}: {reason.words}"
