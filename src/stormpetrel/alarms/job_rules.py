"""Findings from job records, from the first minute on: no model, nothing to train.

known jobs -> JobRules.step(jobs, now) -> findings. A decision looks at nothing that was not known at its
moment: the outcome of a job counts from its end on. How often it is asked changes when something is known, not what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

import polars as pl

from stormpetrel.alarms import batch_rules, node_rules
from stormpetrel.alarms.known_jobs import LONG_AGO, as_known_at, by_node, ended
from stormpetrel.alarms.triggers import Episode, Triggers, episodes
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.records.incidents import order_of

FAMILY: Final = "jobs"
LOOK_BACK: Final = LONG_AGO + timedelta(days=2)  # jobs that ended longer ago change nothing
_NEAR: Final = timedelta(hours=1)  # how long before a loss the jobs of others on its node speak of the node
_FEWEST_LOSING: Final = 3  # failed jobs of a node that loses nearly all
MOST_JOBS: Final = 1000  # lost jobs that a finding names


class _Rule(NamedTuple):
    kind: FindingKind
    version: int
    about: SubjectKind
    threshold: float
    triggers: Callable[[pl.DataFrame, datetime, datetime], Triggers]


def _wave(outcome: str) -> Callable[[pl.DataFrame, datetime, datetime], Triggers]:
    return lambda jobs, after, now: batch_rules.wave(jobs, outcome, after, now)


_RULES: Final = (
    _Rule(FindingKind.NODE_EATS_JOBS, 1, SubjectKind.NODE, node_rules.THRESHOLD, node_rules.lost_at_once),
    _Rule(FindingKind.NODE_DOWN, 1, SubjectKind.NODE, 1.0, node_rules.node_failures),
    _Rule(FindingKind.BATCH_FAILS, 1, SubjectKind.USER, batch_rules.LOWEST_SCORE, batch_rules.batches_failing),
    _Rule(FindingKind.BATCH_FAILS, 1, SubjectKind.APPLICATION, batch_rules.LOWEST_SCORE, batch_rules.applications_failing),
    _Rule(FindingKind.TIMEOUT_WAVE, 1, SubjectKind.CLUSTER, batch_rules.WAVE_THRESHOLD, _wave("TIMEOUT")),
    _Rule(FindingKind.OOM_WAVE, 1, SubjectKind.CLUSTER, batch_rules.WAVE_THRESHOLD, _wave("OUT_OF_MEMORY")),
)


@dataclass(frozen=True, slots=True)
class CountedJobs:
    """Up to when a rule has counted the jobs of a subject: those are not counted again."""

    kind: FindingKind
    about: SubjectKind
    cluster: str
    name: str
    part: str
    until: datetime


class JobRules:
    """The rules over one site's job records; remembers up to when it has looked, and which jobs it has counted."""

    def __init__(self, start: datetime, counted: Iterable[CountedJobs] = ()) -> None:
        self._seen_to = start
        self._counted: dict[tuple[FindingKind, SubjectKind], dict[tuple[str, str, str], datetime]] = {}
        for entry in counted:
            self._counted.setdefault((entry.kind, entry.about), {})[entry.cluster, entry.name, entry.part] = entry.until

    @property
    def seen_to(self) -> datetime:
        """Up to when records have been looked at."""
        return self._seen_to

    def counted(self) -> list[CountedJobs]:
        """Return up to when the jobs of each subject were counted: with `seen_to`, all that is needed to go on from here."""
        return [
            CountedJobs(kind, about, *subject, until)
            for (kind, about), subjects in self._counted.items()
            for subject, until in subjects.items()
        ]

    @property
    def needed_since(self) -> datetime:
        """Jobs that ended before this are not needed at the next step."""
        return self._seen_to - LOOK_BACK

    def skip_to(self, now: datetime) -> None:
        """Take note that no job failed up to `now`: no rule fires without a failure."""
        self._seen_to = max(self._seen_to, now)

    def step(self, jobs: pl.DataFrame, now: datetime) -> list[Finding]:
        """Return what can be known at `now` and could not at the step before, in the order in which it was decided.

        `jobs` are the known jobs (`known_jobs`) since `needed_since`; what they tell about the time after `now` is not looked at.
        """
        after, self._seen_to = self._seen_to, max(self._seen_to, now)
        known = as_known_at(jobs, now)
        if not known.filter("failed", pl.col("end_time") > after).height:  # no rule fires without a failure
            return []
        findings = [finding for rule in _RULES for finding in self._findings(rule, known, after, now)]
        self._forget(now)
        return sorted(findings, key=order_of)

    def _findings(self, rule: _Rule, jobs: pl.DataFrame, after: datetime, now: datetime) -> Iterable[Finding]:
        counted = self._counted.setdefault((rule.kind, rule.about), {})
        around = _losing_nodes if rule.about == SubjectKind.NODE else _surroundings
        surroundings = partial(around, jobs, now)
        for episode in episodes(rule.triggers(jobs, after, now), counted):
            yield _finding(rule, episode, surroundings, now)

    def _forget(self, now: datetime) -> None:
        for counted in self._counted.values():
            for key in [key for key, until in counted.items() if until < now - LOOK_BACK]:
                del counted[key]


def _finding(rule: _Rule, episode: Episode, surroundings: Callable[[Episode], tuple[Evidence, ...]], now: datetime) -> Finding:
    bad = episode.members.filter("bad")
    users = sorted(set(bad["user"].to_list()) - {""})
    figures = (
        Evidence("lost", bad.height, Unit.JOBS),
        Evidence("tried", episode.members.height, Unit.JOBS),
        Evidence("users", len(users), Unit.COUNT),
        *_usual(rule, episode),
        Evidence("deciding_score", episode.deciding_score, Unit.NATS),
        *_deciding(episode),
    )
    parts = (Subject(SubjectKind.APPLICATION, episode.part),) if episode.part else ()
    return Finding(
        family=FAMILY,
        rule=f"{rule.kind}/{rule.version}",
        kind=rule.kind,
        cluster=episode.cluster,
        subjects=(Subject(rule.about, episode.name), *parts),
        since=episode.since,
        decided_at=episode.decided_at,
        until=episode.until,
        known_at=now,
        score=episode.score,
        threshold=rule.threshold,
        evidence=(*figures, *surroundings(episode)),
        jobs=tuple(bad["ref"].head(MOST_JOBS).to_list()),
        deciding_jobs=bad.filter(pl.col("at") <= episode.decided_at).height,
        users=tuple(users),
        continues=episode.continues,
    )


def _usual(rule: _Rule, episode: Episode) -> tuple[Evidence, ...]:
    """What was usual before, or elsewhere; nothing where that was not measured: a figure in a message is a count of something."""
    if episode.usual is None:
        return ()
    return (Evidence("usual", episode.usual, Unit.COUNT if rule.about == SubjectKind.CLUSTER else Unit.SHARE),)


def _deciding(episode: Episode) -> tuple[Evidence, ...]:
    """What the first trigger looked at. An earlier episode may have counted some of these jobs: here are fewer."""
    if episode.deciding_lost is None or episode.deciding_tried is None:
        return ()
    return (
        Evidence("deciding_lost", episode.deciding_lost, Unit.COUNT),
        Evidence("deciding_tried", episode.deciding_tried, Unit.COUNT),
    )


def _surroundings(jobs: pl.DataFrame, now: datetime, episode: Episode) -> tuple[Evidence, ...]:
    """Where the jobs of an episode failed, and how the jobs of others on the same nodes fared in the hour before each.

    A job beside a hundred lost ones is one job: it counts once, with the first that was lost after it, so that the counts add up
    to the same however often somebody looks.
    """
    bad = episode.members.filter("bad")
    nothing = tuple(Evidence(name, 0.0, Unit.JOBS) for name in ("neighbours", "neighbours_failed"))
    if not bad.height:
        return (*_spread(jobs, now, episode), *nothing)
    span = pl.col("end_time").is_between(bad["at"].min() - 2 * _NEAR, episode.until)  # type: ignore[operator]
    rows = by_node(ended(jobs.filter(span, pl.col("cluster") == episode.cluster), now))
    refs = pl.concat([episode.counted.select("ref", fresh=pl.lit(False)), bad.select("ref", fresh=pl.lit(True))])
    lost = rows.join(refs, on="ref").select("node", "user", "fresh", moment="at")
    users = lost["user"].unique().implode()
    parts = [(rows.filter(~pl.col("user").is_in(users)), lost)]
    parts += [(rows.filter(pl.col("user") == user), lost.filter(pl.col("user") != user)) for user in users[0]]
    others = pl.concat([_neighbours(jobs_of_others, lost_jobs) for jobs_of_others, lost_jobs in parts])
    return (
        *_spread(jobs, now, episode),
        Evidence("neighbours", others.height, Unit.JOBS),
        Evidence("neighbours_failed", int(others["failed"].sum()), Unit.JOBS),
        *_losing_nodes(jobs, now, episode),
    )


def _neighbours(others: pl.DataFrame, lost: pl.DataFrame) -> pl.DataFrame:
    """The jobs of others that ended on a node at most an hour before a job was lost there which was not counted yet: `failed`."""
    first_lost = lost.sort("moment").select("node", "moment", "fresh")
    near = others.sort("at").join_asof(
        first_lost, left_on="at", right_on="moment", by="node", strategy="forward", tolerance=_NEAR, check_sortedness=False
    )
    of_job = near.filter(pl.col("moment").is_not_null()).sort("moment", "fresh").unique("ref", keep="first", maintain_order=True)
    return of_job.filter("fresh").select("failed")


def _losing_nodes(jobs: pl.DataFrame, now: datetime, episode: Episode) -> tuple[Evidence, ...]:
    """How many nodes lost nearly all that ended on them in the hour before the decision, of two users at least."""
    late = pl.col("end_time").is_between(episode.decided_at - _NEAR, episode.decided_at, closed="right")
    # A job of several nodes does not tell which of them it fell to.
    rows = by_node(ended(jobs.filter(late, pl.col("cluster") == episode.cluster), now)).filter(pl.col("width") == 1)
    nodes = rows.group_by("node").agg(
        tried=pl.len(), failed=pl.col("failed").sum(), users=pl.col("user").filter("failed").n_unique()
    )
    losing = nodes.filter(
        pl.col("failed") >= _FEWEST_LOSING, pl.col("failed") >= batch_rules.ALL_BUT * pl.col("tried"), pl.col("users") > 1
    )
    return (Evidence("losing_nodes", losing.height, Unit.COUNT),)


def _spread(jobs: pl.DataFrame, now: datetime, episode: Episode) -> tuple[Evidence, ...]:
    """Over how many nodes the lost jobs of the last hours are spread, and the share of them on the node that has most."""
    bad = episode.members.filter("bad")
    late = pl.col("end_time").is_between(episode.until - batch_rules.WAVE, episode.until)
    users = bad["user"].unique().to_list()
    failed = jobs.filter(late, pl.col("cluster") == episode.cluster, "failed", pl.col("user").is_in(users))
    rows = by_node(ended(failed, now))
    most = rows["node"].value_counts()["count"].max() if rows.height else 0
    return (
        Evidence("nodes", rows["node"].n_unique(), Unit.COUNT),
        Evidence("on_one_node", float(most or 0) / max(1, rows["ref"].n_unique()), Unit.SHARE),  # type: ignore[arg-type]
    )
