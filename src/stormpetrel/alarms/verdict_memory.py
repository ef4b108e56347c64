"""What verdicts teach about alarms: what is like a dismissed incident is not raised again, within bounds.

incidents that people judged -> VerdictMemory.like(finding, at) -> the number of the dismissed incident that a finding is like,
or None: it is raised. Verdicts on the same stream (a kind of finding about a kind of subject) are weighed against each other:
a dismissal of the same subject counts 1, of another subject less, and each half as much after every HALF_LIFE; a confirmation
counts as much for the finding. A finding is like a dismissed one only as far as it is no larger: what has a far higher score, or
loses far more jobs, than what was dismissed is a new matter, also on the same node. OTHER_SUBJECT and LARGER were chosen on
simulated sites (benchmarks/alarm_verdicts.py, seeds 0 to 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.blame import blame_of, severity_of
from stormpetrel.alarms.budget import Stream, score_of, stream_of
from stormpetrel.records.findings import Finding, FindingKind
from stormpetrel.records.incidents import LEADING, Incident, JudgedIncident, Severity, Verdict

HALF_LIFE: Final = timedelta(days=60)  # after which a verdict counts half
FACT_HALF_LIFE: Final = timedelta(days=3)  # the same of facts: who took a node down by hand is not asked again for some days
ENOUGH: Final = 0.5  # of dismissals beyond confirmations: one of the same subject teaches for one half-life
OTHER_SUBJECT: Final = 0.17  # what a verdict on another subject counts: three fresh ones are as good as one
LARGER: Final = 1.5  # so many times what was dismissed is something else
_PRIOR: Final = 0.5  # verdicts of either kind that are taken for granted
_SIZES: Final = ("lost", "flagged", "count")  # figures that say how large a trouble is
_FACTS: Final = (FindingKind.NODE_EATS_JOBS, FindingKind.NODE_DOWN, FindingKind.SILENCE, FindingKind.SOURCE_GONE)
DISMISSED: Final = "dismissed"  # why something is held back


class VerdictMemory:
    """What people have said of past incidents of a site; frozen: new verdicts make a new one."""

    def __init__(self, judged: Iterable[JudgedIncident] = ()) -> None:
        self._judged = {judgement.incident.id: judgement for judgement in judged}
        self._streams: dict[tuple[str, Stream, str], list[tuple[JudgedIncident, Finding]]] = {}
        for judgement in self._judged.values():
            for finding in _significant(judgement.incident):
                self._streams.setdefault(_stream(finding), []).append((judgement, finding))

    def __bool__(self) -> bool:
        return bool(self._judged)

    def without(self, number: int) -> VerdictMemory:
        """Return what would be remembered if one incident had not been judged."""
        return VerdictMemory(judgement for judgement in self._judged.values() if judgement.incident.id != number)

    def is_dismissed(self, number: int) -> bool:
        """Whether people have said that an incident is none."""
        judgement = self._judged.get(number)
        return judgement is not None and judgement.verdict == Verdict.DISMISSED

    def like(self, findings: Iterable[Finding], at: datetime) -> int | None:
        """Return the newest dismissed incident that all findings of an incident are like; None where one of them is not."""
        numbers = [self._like(finding, at) for finding in findings]
        return max((number for number in numbers if number is not None), default=None) if None not in numbers else None

    def chance(self, finding: Finding, at: datetime) -> float:
        """Return how likely a finding is real trouble, by the verdicts on its stream; ½ where there are none."""
        words = [(judged, self._weight(judged, old, finding, at)) for judged, old in self._streams.get(_stream(finding), ())]
        real = sum(weight for judged, weight in words if judged.verdict == Verdict.CONFIRMED)
        chance: float = (real + _PRIOR) / (sum(weight for _, weight in words) + 2 * _PRIOR)
        return chance

    @staticmethod
    def _weight(judged: JudgedIncident, old: Finding, finding: Finding, at: datetime) -> float:
        """What a verdict counts for a finding at a moment: nothing before it was given."""
        if judged.act.at > at:
            return 0.0
        age = (at - judged.act.at) / (FACT_HALF_LIFE if _is_fact(finding) else HALF_LIFE)
        return float((1.0 if old.subjects == finding.subjects else OTHER_SUBJECT) * 0.5**age)

    def _like(self, finding: Finding, at: datetime) -> int | None:
        is_fact = _is_fact(finding)
        net, likest, most = 0.0, None, 0.0
        for judged, old in self._streams.get(_stream(finding), ()):
            weight = self._weight(judged, old, finding, at)
            if not weight or (is_fact and old.subjects != finding.subjects):
                continue  # of facts, and of what wakes people, a dismissal holds for its subject alone
            if judged.verdict == Verdict.CONFIRMED:
                net -= weight * is_as_large(finding, old)
            elif not is_larger(finding, old):
                net += weight
                if weight >= most:
                    likest, most = judged.incident.id, weight
        return likest if net >= ENOUGH else None


def _is_fact(finding: Finding) -> bool:
    """Whether a finding says what is so, or wakes people: a node that is down again is down, whatever it was last month."""
    return finding.kind in _FACTS or severity_of([finding]) == Severity.PAGE


def _stream(finding: Finding) -> tuple[str, Stream, str]:
    """What verdicts on a finding speak of: its cluster, its stream, and what was counted where the kind does not say it."""
    return finding.cluster, stream_of(finding), finding.label


def _significant(incident: Incident) -> list[Finding]:
    """The findings that say what an incident was: of the kind that tells most, about the kind of subject that was found first.

    A batch that fell to a sick node is no verdict on batches.
    """
    leading = [finding for finding in incident.findings if finding.kind == min(incident.kinds, key=LEADING.index)]
    return [finding for finding in leading if finding.subject.kind == leading[0].subject.kind]


def is_larger(finding: Finding, old: Finding) -> bool:
    """Whether a finding is more than one that was dismissed: by its score, or by what it counts."""
    if score_of(finding) > LARGER * score_of(old):
        return True
    return any(_size(finding, name) > LARGER * max(1.0, _size(old, name)) for name in _SIZES)


def _size(finding: Finding, name: str) -> float:
    """A figure that says how large a trouble is; of lost jobs those count as well that another incident has counted before."""
    return max(finding.figure(name), finding.figure("deciding_lost")) if name == "lost" else finding.figure(name)


def is_as_large(finding: Finding, old: Finding) -> bool:
    """Whether a finding is about as much as one that was confirmed, or more, and the same is suspected.

    A batch that failed together with everything else on its node says nothing about one that fails alone.
    """
    if blame_of([finding])[0] != blame_of([old])[0]:
        return False
    sizes = all(_size(finding, name) * LARGER >= _size(old, name) for name in _SIZES)
    return sizes and score_of(finding) * LARGER >= score_of(old)
