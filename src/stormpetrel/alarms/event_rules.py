"""Findings from counted events: what the rules over places and the forecast of the whole say of one bucket.

reasons of a bucket (events/finding.py) -> findings_of_bucket -> findings.

Waves of holds and of shadow exceptions, on one node or on the whole cluster, out of counted events; no model is needed.

counts by place + which buckets were seen whole -> event_waves -> Wave; + Bucket -> finding_of_wave -> Finding.

A bucket is compared with the week before. The score is a bound on how unlikely so many are (Chernoff, Poisson), divided by how
much more than a Poisson process the week before scattered. A user who gets a batch wrong has all of it held: of the cluster's
count the group with most is left out, and a node is named for holds only if no single group can account for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.alarms.blame import pointers
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import FindingKind as ReasonKind
from stormpetrel.records.arrays import Floats
from stormpetrel.records.events import OTHER_VALUES, WHOLE, EventKind
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit

FAMILY: Final = "events"
HARD: Final = frozenset({ReasonKind.BLACK_HOLE, ReasonKind.SILENT_HOST, ReasonKind.SILENCE})  # rules: they need no model
_PLACES: Final = {
    "node": SubjectKind.NODE,
    "submit_host": SubjectKind.SUBMIT_HOST,
    "site": SubjectKind.PARTITION,
    "group": SubjectKind.GROUP,
}
WAVES: Final = {EventKind.HELD.value: FindingKind.HOLD_WAVE, EventKind.SHADOW_EXCEPTION.value: FindingKind.SHADOW_WAVE}
PAST: Final = timedelta(days=7)
REACH: Final = 2 * PAST  # of counts before the first bucket that is asked about: waves of its past must be known as such
THRESHOLD: Final = 12.0  # natural logarithm of how unlikely so many are
_SHORTEST_PAST: Final = timedelta(days=2)
_FEWEST: Final = 10  # on the cluster
_FEWEST_ON_NODE: Final = 5
_TIMES_RECORD: Final = 2.0  # a wave on the cluster is twice what any bucket of the week before had
_MOST_NODES: Final = 2  # more than these at once: it is no node's trouble
_STAYS_NEWS: Final = timedelta(days=1)  # what lasts longer is usual from then on


@dataclass(frozen=True, slots=True)
class Bucket:
    """A span of counted events, and the jobs that failed in it, where the site has their records."""

    cluster: str
    start: datetime
    length: timedelta
    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def end(self) -> datetime:
        """When it was over."""
        return self.start + self.length


def findings_of_rules(bucket: Bucket, reasons: Iterable[Reason], known_at: datetime) -> list[Finding]:
    """Return a finding for each node that fails all it gets, each silent submit host, and a silent cluster."""
    return [_of_rule(bucket, reason, known_at) for reason in reasons if reason.kind in HARD]


def finding_of_score(
    bucket: Bucket, reasons: Sequence[Reason], *, score: float, threshold: float, model: str, known_at: datetime
) -> Finding | None:
    """Return that the counts of a bucket are unusual as a whole, by its most surprising kind; None where only rules speak."""
    others = sorted((reason for reason in reasons if reason.kind not in HARD), key=lambda reason: -reason.surprise)
    if not others:
        return None
    first = others[0]
    place = _PLACES.get(first.place) if first.value else None
    involved = (Subject(place, first.value),) if place else ()
    return Finding(
        family=FAMILY,
        rule=model,
        kind=FindingKind.COUNTS_ODD,
        cluster=bucket.cluster,
        subjects=(Subject(SubjectKind.CLUSTER, bucket.cluster), *involved),
        since=min(first.since or bucket.start, bucket.start),
        decided_at=bucket.end,
        until=bucket.end,
        known_at=max(known_at, bucket.end),
        score=score,
        threshold=threshold,
        evidence=(*_figures(first), *pointers(others)),
        jobs=bucket.jobs,
        deciding_jobs=len(bucket.jobs),
        users=bucket.users,
        label=first.event_kind,
    )


def _of_rule(bucket: Bucket, reason: Reason, known_at: datetime) -> Finding:
    about = {
        ReasonKind.BLACK_HOLE: (FindingKind.NODE_EATS_JOBS, Subject(SubjectKind.NODE, reason.value)),
        ReasonKind.SILENT_HOST: (FindingKind.SILENCE, Subject(SubjectKind.SUBMIT_HOST, reason.value)),
        ReasonKind.SILENCE: (FindingKind.SILENCE, Subject(SubjectKind.CLUSTER, bucket.cluster)),
    }
    kind, subject = about[reason.kind]
    jobs: tuple[Evidence, ...] = ()
    if kind == FindingKind.NODE_EATS_JOBS:
        lost = round(reason.count * min(1.0, reason.share))  # more may end in a bucket than start in it
        jobs = (Evidence("lost", lost, Unit.JOBS), Evidence("tried", reason.count, Unit.JOBS))
    return Finding(
        family=FAMILY,
        rule=f"{kind}/1",
        kind=kind,
        cluster=bucket.cluster,
        subjects=(subject,),
        since=min(reason.since or bucket.start, bucket.start),
        decided_at=bucket.end,
        until=bucket.end,
        known_at=max(known_at, bucket.end),
        score=max(reason.surprise, 1.0),
        threshold=1.0,
        evidence=(*jobs, *_figures(reason)),
    )


def _figures(reason: Reason) -> tuple[Evidence, ...]:
    share = (Evidence("share", reason.share, Unit.SHARE),) if reason.share else ()  # of no place in particular: none
    return (Evidence("count", reason.count, Unit.EVENTS), Evidence("expected", reason.expected, Unit.EVENTS), *share)


@dataclass(frozen=True, slots=True)
class Wave:
    """Many more events of a kind than usual in the bucket that began at `start`; `node` is empty where it is the cluster's."""

    start: datetime
    kind: FindingKind
    node: str
    count: float
    expected: float
    score: float


def event_waves(
    counts: pl.DataFrame,
    seen: Sequence[datetime],
    bucket: timedelta,
    since: datetime,
    *,
    before: Collection[tuple[FindingKind, datetime]] | None = None,
) -> list[Wave]:
    """Return the waves in the buckets from `since` on that were seen whole, in the order of time.

    A bucket is judged by itself and by those before it.

    Parameters
    ----------
    counts
        Rows of COUNT_SCHEMA by place, from REACH before `since` on.
    seen
        The beginnings of the buckets that were seen whole, oldest first, from REACH before `since` on.
    before
        The kinds and beginnings of the waves before `since`, where they are known; found out if left out.
    """
    waves = []
    for kind in WAVES:
        rows = counts.filter(pl.col("kind") == kind)
        if rows.height:
            known = None if before is None else {start for one, start in before if one == WAVES[kind]}
            waves += _Kind(kind, rows, seen, bucket).waves(since, known)
    return sorted((wave for wave in waves if wave.start >= since), key=lambda wave: (wave.start, wave.kind, wave.node))


def finding_of_wave(bucket: Bucket, wave: Wave, known_at: datetime) -> Finding:
    """Return what a wave says of its bucket."""
    cluster = Subject(SubjectKind.CLUSTER, bucket.cluster)
    return Finding(
        family=FAMILY,
        rule=f"{wave.kind}/1",
        kind=wave.kind,
        cluster=bucket.cluster,
        subjects=(Subject(SubjectKind.NODE, wave.node) if wave.node else cluster,),
        since=bucket.start,
        decided_at=bucket.end,
        until=bucket.end,
        known_at=max(known_at, bucket.end),
        score=wave.score,
        threshold=THRESHOLD,
        evidence=(Evidence("count", wave.count, Unit.EVENTS), Evidence("expected", wave.expected, Unit.EVENTS)),
    )


class _Kind:
    """The counts of one kind, as arrays over the buckets that were seen whole."""

    def __init__(self, kind: str, rows: pl.DataFrame, seen: Sequence[datetime], bucket: timedelta) -> None:
        self._kind, self._seen = WAVES[kind], list(seen)
        self._start_s = np.array([int(start.timestamp()) for start in seen], dtype=np.int64)
        self._bucket_s = bucket.total_seconds()
        self._total = self._table(rows, WHOLE)[1][:, 0] if seen else np.empty(0)
        self._nodes, self._on_node = self._table(rows, "node")  # (buckets, nodes)
        _, self._of_group = self._table(rows, "group")  # (buckets, groups)
        self._groups_known = _values_known(self._of_group, self._start_s)  # (buckets,)

    def waves(self, since: datetime, known: Collection[datetime] | None) -> list[Wave]:
        """The waves from `since` on, and those before unless they are known."""
        biggest = self._of_group.max(axis=1, initial=0.0)  # (buckets,)
        spread = self._total - np.where(self._groups_known > 1, biggest, 0.0)  # (buckets,)
        nodes_known = _values_known(self._on_node, self._start_s)  # (buckets,)
        was_wave = np.zeros(len(self._seen), dtype=np.bool_)
        waves: list[Wave] = []
        for at, start in enumerate(self._seen):
            if known is not None and start < since:
                was_wave[at] = start in known
                continue
            past = self._past(at, was_wave)
            if past.size * self._bucket_s < _SHORTEST_PAST.total_seconds():
                continue
            nodes = self._node_waves(at, past, int(nodes_known[at]))
            rest = spread[at] - sum(wave.count for wave in nodes)
            score, expected = _score(rest, spread[past])
            is_wave = rest >= _FEWEST and score >= THRESHOLD and rest >= _TIMES_RECORD * spread[past].max()
            if is_wave:
                waves.append(Wave(start, self._kind, "", float(self._total[at]), expected, score))
            waves += nodes
            was_wave[at] = is_wave or bool(nodes)
        return waves

    def _past(self, at: int, was_wave: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """The buckets of the week before, without the waves of the last day."""
        age_s = self._start_s[at] - self._start_s[:at]
        return np.flatnonzero((age_s <= PAST.total_seconds()) & ~(was_wave[:at] & (age_s <= _STAYS_NEWS.total_seconds())))

    def _node_waves(self, at: int, past: npt.NDArray[np.intp], nodes: int) -> list[Wave]:
        """One or two nodes that have far more than they had, and than the others have now."""
        now = self._on_node[at]
        others = max(1, nodes - 1)
        waves = []
        for place in np.flatnonzero(now >= _FEWEST_ON_NODE):
            before = self._on_node[past, place]
            elsewhere = (now.sum() - now[place]) / others
            score, expected = _score(now[place], before, least=elsewhere)
            if score >= THRESHOLD and now[place] > self._of_one_group(at, past):
                waves.append(Wave(self._seen[at], self._kind, self._nodes[place], float(now[place]), expected, score))
        return waves if len(waves) <= _MOST_NODES else []

    def _of_one_group(self, at: int, past: npt.NDArray[np.intp]) -> float:
        """How many holds beyond its usual number the worst group has: a batch that somebody got wrong is no node's trouble."""
        if self._kind != FindingKind.HOLD_WAVE or self._groups_known[at] < 2:
            return 0.0
        return float((self._of_group[at] - self._of_group[past].mean(axis=0)).max())

    def _table(self, rows: pl.DataFrame, place: str) -> tuple[list[str], Floats]:
        """The values of a place, and (buckets, values) their counts."""
        here = rows.filter(pl.col("place") == place, pl.col("value") != OTHER_VALUES)
        sums = here.group_by("bucket_start", "value").agg(pl.col("count").sum())
        values = sorted(sums["value"].unique()) if place != WHOLE else [WHOLE]
        table = np.zeros((len(self._seen), len(values)))
        row = {start: at for at, start in enumerate(self._seen)}
        column = {value: at for at, value in enumerate(values)}
        for start, value, count in sums.iter_rows():
            if (at := row.get(start.astimezone(UTC))) is not None:
                table[at, column[value]] += count
        return values, table


def _values_known(table: Floats, start_s: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(buckets,) how many values of (buckets, values) counts were told of in each bucket and the REACH before it."""
    last_s = np.maximum.accumulate(np.where(table > 0, start_s[:, None], -1), axis=0)  # (buckets, values) when last
    fresh = (last_s >= 0) & (last_s >= start_s[:, None] - round(REACH.total_seconds()))
    return np.asarray(fresh.sum(axis=1), dtype=np.int64)


def _score(count: float, past: Floats, *, least: float = 0.0) -> tuple[float, float]:
    """How unlikely a count is after these, and what was to be expected: at least `least`."""
    expected = max((float(past.sum()) + 1.0) / past.size, least)
    if count <= expected:
        return 0.0, expected
    scatter = max(1.0, float(past.var()) / expected)
    return float((count * np.log(count / expected) - (count - expected)) / scatter), expected
