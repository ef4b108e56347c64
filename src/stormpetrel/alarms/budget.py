"""How many incidents are sent at once: a promise of pages a week, kept by thresholds from the site's own history.

past incidents -> PageBudget -> is_page(finding). Scores follow each other closely (one trouble makes a hundred), so incidents
are counted, not scores: each stream (a kind of finding about a kind of subject) has the best score of each past incident, and a
threshold above which the next one lies as often as the stream may send. All that is assumed is that the week to come is like the
weeks before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.blame import severity_of
from stormpetrel.records.findings import Finding, FindingKind, SubjectKind
from stormpetrel.records.incidents import Incident, Severity

Stream = tuple[FindingKind, SubjectKind]
HISTORY: Final = timedelta(weeks=8)  # that thresholds are taken from
SHORTEST: Final = timedelta(weeks=2)  # before that much of it only the rules' own pages are sent
BUDGET: Final = "budget"  # why something is held back
_WEEK: Final = timedelta(weeks=1)
_RULES_MAY: Final = 3.0  # what a rule calls a page is held back only beyond so many times the promise


@dataclass(frozen=True, slots=True)
class PastIncident:
    """What is remembered of a stream in an incident: when it was first heard, and its best score when one of it was decided."""

    raised_at: datetime
    score: float
    by_rule: bool  # a rule called the incident a page


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
        # By number and how often it had come back; an incident may be of several streams, each of which can send it.
        self._past: dict[tuple[int, int], dict[Stream, PastIncident]] = {}
        self._sent: list[datetime] = []
        for incident in past:
            by_rule = severity_of(incident.findings) == Severity.PAGE
            for opening, opened_at in enumerate((incident.raised_at, *incident.reopened_at)):
                for finding in incident.findings:
                    self._remember((incident.id, opening), finding, opened_at, by_rule=by_rule)
            self._sent += incident.paged_at
        self._day: datetime | None = None
        self._thresholds: dict[Stream, float] = {}

    def note(self, opening: tuple[int, int], finding: Finding, *, by_rule: bool) -> None:
        """Remember what an incident was at its worst since it was opened, the first time or again."""
        self._remember(opening, finding, finding.decided_at, by_rule=by_rule)

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
        self._sent = [sent_at for sent_at in self._sent if at - sent_at < 2 * _WEEK]
        self._sent.append(at)

    def _remember(self, opening: tuple[int, int], finding: Finding, at: datetime, *, by_rule: bool) -> None:
        parts = self._past.setdefault(opening, {})
        known = parts.get(stream_of(finding))
        new = PastIncident(at, score_of(finding), by_rule)
        if known is not None:
            new = PastIncident(known.raised_at, max(known.score, new.score), known.by_rule or by_rule)
        parts[stream_of(finding)] = new

    def _learnt(self, day: datetime) -> dict[Stream, float]:
        """The thresholds from what was raised before this day. A stream that never spoke has none: its first word is sent."""
        first = max(self._since, day - HISTORY)
        self._past = {opening: parts for opening, parts in self._past.items() if _raised_at(parts) >= day - HISTORY}
        weeks = (day - first) / _WEEK
        past = [parts for parts in self._past.values() if _raised_at(parts) < day]
        by_rule = [any(incident.by_rule for incident in parts.values()) for parts in past]
        streams: dict[Stream, list[PastIncident]] = {}
        for parts, is_rule in zip(past, by_rule, strict=True):
            for stream, incident in parts.items():
                if not is_rule:
                    streams.setdefault(stream, []).append(incident)
        rates = {stream: _rate(several, day, weeks) for stream, several in streams.items()}
        # Pages a week that there is room for. Streams that have not spoken yet are sent when they do: they come about as often as
        # those that have spoken once (Good and Turing).
        unheard = sum(len(several) == 1 for several in streams.values()) / weeks
        left = max(0.0, self.per_week - sum(by_rule) / weeks - unheard)
        thresholds = {}
        rare_first = sorted(rates, key=lambda stream: (rates[stream], stream))
        for place, stream in enumerate(rare_first):
            allowed = min(rates[stream], left / (len(rare_first) - place))
            left -= allowed
            ranked = sorted((incident.score for incident in streams[stream]), reverse=True)
            # The next incident exceeds the r-th largest of n with probability r / (n + 1), whatever their distribution.
            rank = max(1, round(allowed / rates[stream] * (len(ranked) + 1)))
            is_all = allowed >= rates[stream] or rank > len(ranked)
            thresholds[stream] = -math.inf if is_all else math.nextafter(ranked[rank - 1], math.inf)
        return thresholds


def _raised_at(parts: Mapping[Stream, PastIncident]) -> datetime:
    return min(incident.raised_at for incident in parts.values())


def _rate(past: Sequence[PastIncident], day: datetime, weeks: float) -> float:
    """How many incidents a week a stream has.

    One that has spoken for a part of the history only, such as a model that was trained meanwhile, counts from its first word on.
    """
    heard = max(_WEEK, day - min(incident.raised_at for incident in past)) / _WEEK
    return max(len(past) / weeks, (len(past) - 1) / heard)
