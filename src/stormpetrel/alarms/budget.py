"""How many incidents are sent at once: a promise of pages a week, kept by thresholds from the site's own history.

past incidents -> PageBudget -> is_page(finding). Scores follow each other closely (one trouble makes a hundred), so incidents
are counted, not scores: each stream (a kind of finding about a kind of subject) has the best score of each past incident, and a
threshold above which so many of them lay per week as the stream may send. All that is assumed is that the week to come is like
the weeks before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.blame import severity_of
from stormpetrel.records.findings import Finding, FindingKind, SubjectKind
from stormpetrel.records.incidents import Incident, Severity, order_of

Stream = tuple[FindingKind, SubjectKind]
HISTORY: Final = timedelta(weeks=8)  # that thresholds are taken from
SHORTEST: Final = timedelta(weeks=2)  # before that much of it only the rules' own pages are sent
BUDGET: Final = "budget"  # why something is held back
_WEEK: Final = timedelta(weeks=1)
_ROUNDING: Final = 1e-9  # of shares that are whole numbers
_RULES_MAY: Final = 3.0  # what a rule calls a page is held back only beyond so many times the promise


@dataclass(frozen=True, slots=True)
class PastIncident:
    """What is remembered of an incident: when it was raised, its stream, its best score when a finding of it was decided."""

    raised_at: datetime
    stream: Stream
    score: float
    by_rule: bool  # a rule called it a page


def past_of(incident: Incident) -> PastIncident:
    """Return what is remembered of an incident."""
    leading = min(incident.findings, key=order_of)
    best = max(score_of(finding) for finding in incident.findings if finding.kind == leading.kind)
    return PastIncident(incident.raised_at, stream_of(leading), best, severity_of(incident.findings) == Severity.PAGE)


def stream_of(finding: Finding) -> Stream:
    """Return what a finding is compared with."""
    return finding.kind, finding.subject.kind


def score_of(finding: Finding) -> float:
    """Return the score of a finding at the moment at which it was decided: what came later is not in it."""
    return finding.figure("deciding_score") or finding.score


class PageBudget:
    """Remembers the incidents of the last weeks, by number, and says which streams may send from which score on.

    `since` is when the history began: where nothing was raised for weeks, there was nothing to raise.
    """

    def __init__(self, per_week: float, since: datetime, past: Iterable[Incident] = ()) -> None:
        self.per_week = per_week
        self._since = since
        self._past: dict[tuple[int, int], PastIncident] = {}  # by number, and how often it had come back
        self._sent: list[datetime] = []
        for incident in past:
            for opening, opened_at in enumerate((incident.raised_at, *incident.reopened_at)):
                self._past[incident.id, opening] = replace(past_of(incident), raised_at=opened_at)
            self._sent += incident.paged_at
        self._day: datetime | None = None
        self._thresholds: dict[Stream, float] = {}

    def note(self, opening: tuple[int, int], finding: Finding, *, by_rule: bool) -> None:
        """Remember what an incident was at its worst since it was opened, the first time or again."""
        known = self._past.get(opening)
        now = PastIncident(finding.decided_at, stream_of(finding), score_of(finding), by_rule)
        if known is not None and known.stream == now.stream:
            now = PastIncident(known.raised_at, now.stream, max(known.score, now.score), known.by_rule or by_rule)
        self._past[opening] = now

    def is_page(self, finding: Finding) -> bool:
        """Whether a finding is among the few that the promise has room for."""
        moment = finding.decided_at
        if not self.per_week or moment - self._since < SHORTEST:
            return False
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        if day != self._day:  # once a day, so that it does not matter how often somebody looks
            self._day, self._thresholds = day, self._learnt(day)
        return score_of(finding) >= self._thresholds.get(stream_of(finding), -math.inf)

    def has_room(self, at: datetime, *, by_rule: bool) -> bool:
        """Whether one more may be sent in the week that ends now."""
        recent = sum(at - _WEEK < sent <= at for sent in self._sent)
        return recent < math.ceil(self.per_week * (_RULES_MAY if by_rule else 1.0))

    def sent(self, at: datetime) -> None:
        """Count a page."""
        self._sent = [one for one in self._sent if at - one < 2 * _WEEK]
        self._sent.append(at)

    def _learnt(self, day: datetime) -> dict[Stream, float]:
        """The thresholds from what was raised before this day. A stream that never spoke has none: its first word is sent."""
        first = max(self._since, day - HISTORY)
        for opening in [opening for opening, one in self._past.items() if one.raised_at < day - HISTORY]:
            del self._past[opening]
        weeks = (day - first) / _WEEK
        past = [one for one in self._past.values() if one.raised_at < day]
        streams: dict[Stream, list[PastIncident]] = {}
        for one in past:
            if not one.by_rule:
                streams.setdefault(one.stream, []).append(one)
        rates = {stream: _rate(several, day, weeks) for stream, several in streams.items()}
        left = max(0.0, self.per_week - sum(one.by_rule for one in past) / weeks)  # pages a week that there is room for
        thresholds = {}
        rare_first = sorted(rates, key=lambda stream: (rates[stream], stream))
        for place, stream in enumerate(rare_first):
            allowed = min(rates[stream], left / (len(rare_first) - place))
            left -= allowed
            ranked = sorted((one.score for one in streams[stream]), reverse=True)
            count = math.floor(allowed / rates[stream] * len(ranked) + _ROUNDING)
            thresholds[stream] = -math.inf if count >= len(ranked) else math.nextafter(ranked[count], math.inf)
        return thresholds


def _rate(past: Sequence[PastIncident], day: datetime, weeks: float) -> float:
    """How many incidents a week a stream has.

    One that has spoken for a part of the history only, such as a model that was trained meanwhile, counts from its first word on.
    """
    heard = max(_WEEK, day - min(one.raised_at for one in past)) / _WEEK
    return max(len(past) / weeks, (len(past) - 1) / heard)
