"""A simulated site that all watchers look at: a cluster with its jobs, a grid with its events, nodes with their CPU traces.

Plan -> site_findings -> the findings of all families in the order of time. Rules and models are the product's, each decision from
what was known at its moment; the event model is trained anew every week on what there was by then.

Weeks of CPU traces second by second are not made: windows of simulated nodes are scored once (170 min of 30 nodes, 8 threads)
and each node's weeks are put together out of whole pieces of half an hour of one of them, all threads together, so that scores
follow each other within a piece, and across threads, as they do in a trace. Two such sets serve all seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.grid_counts import placed_counts
from stormpetrel.alarms.event_rules import Bucket, event_waves, finding_of_score, finding_of_wave, findings_of_rules
from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import known_jobs
from stormpetrel.alarms.trace_rules import FEWEST_MOMENTS, odd_nodes
from stormpetrel.events.alarm_budget import daily_thresholds, threshold_for
from stormpetrel.events.choose import DEFAULT, make
from stormpetrel.events.counts.forecast import calm_for_training
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.nodes_and_hosts import black_holes, silent_grid, silent_hosts
from stormpetrel.events.why import Placed, findings_at
from stormpetrel.lifecycle.event_models import CALM_SHARE, LEAST_WEEKS
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import order_of
from stormpetrel.records.traces import BAD_IO, GOOD_IO, MIXED_JOB, NO_JOB, Trace, TraceJob
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.grid.grid import GridSpec, SimulatedGrid, simulate_grid
from stormpetrel.simulate.grid.spec import ALL_KINDS
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.telemetry.kernel_ticks import counted, with_node_noise
from stormpetrel.simulate.telemetry.schedule import place_jobs
from stormpetrel.simulate.telemetry.trace_types import JOB_SHARES, MPI, JobShape
from stormpetrel.traces.baselines import max_iowait
from stormpetrel.traces.promise import Calm, promised
from stormpetrel.traces.shipped import load_shipped

HOUR: Final = timedelta(hours=1)
WEEK: Final = timedelta(weeks=1)
DAY: Final = timedelta(days=1)
LOOK: Final = timedelta(seconds=5)  # from a decision to the look that finds it
EVENTS_A_WEEK: Final = 1.0  # events.alarms_per_week
WINDOW_S: Final = 100
THREADS: Final = 8  # of a node
_POOL_NODES, _POOL_MINUTES = 30, 170
_POOLS: Final = 2  # of them, for all seeds: seeds draw other pieces from them
_PIECE: Final = 18  # windows: half an hour
_FLAGGED_SHARE: Final = 0.001  # traces.alarm_share

Booleans = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BadInput:
    """A node whose jobs all wait for a disk that does not answer, from hour to hour of the site."""

    node: int
    first_hour: int
    last_hour: int
    job: str | None = None  # that waits there; None: nobody can tell


@dataclass(frozen=True)
class Plan:
    """What to simulate: the same seed in all parts; `cluster` says how many nodes and days."""

    cluster: ClusterSpec
    seed: int
    outages_per_week: float = 0.0
    bad_input: tuple[BadInput, ...] = ()
    jobs: pl.DataFrame | None = field(default=None, compare=False)  # job records in place of those of the cluster

    @property
    def spec(self) -> ClusterSpec:
        """The cluster with its seed."""
        return replace(self.cluster, seed=self.seed)

    @property
    def days(self) -> int:
        """How long."""
        return round(self.cluster.days or 0)


def site_findings(plan: Plan) -> list[Finding]:
    """What all watchers of the site find, in the order of time."""
    findings = [*job_findings(plan), *event_findings(plan, grid_of(plan)), *trace_findings(plan)]
    return sorted((replace(one, known_at=one.decided_at + LOOK) for one in findings), key=order_of)


def job_findings(plan: Plan) -> Iterator[Finding]:
    """What the rules over job records find."""
    spec = plan.spec
    jobs = known_jobs(pl.concat(simulate(spec)) if plan.jobs is None else plan.jobs)
    rules, now = JobRules(spec.start), spec.start
    while now < spec.start + timedelta(days=plan.days):
        now += WEEK
        yield from rules.step(jobs.filter(pl.coalesce("end_time", "start_time") > rules.needed_since), now)


def grid_of(plan: Plan) -> SimulatedGrid:
    """The grid beside the cluster: 40 nodes at 12 sites, four submit hosts, eight groups, no maintenance."""
    return simulate_grid(
        GridSpec(
            hours=24 * plan.days, seed=plan.seed, start=plan.spec.start, nodes=40, slots=1900, kinds=ALL_KINDS,
            outages_per_week=plan.outages_per_week, maintenance_weeks=0.0,
        )
    )  # fmt: skip


def event_findings(plan: Plan, grid: SimulatedGrid) -> list[Finding]:
    """What rules over places, waves and the model of the week say of each hour."""
    series, counts = grid.series.unlabelled(), placed_counts(grid)
    reasons = black_holes(counts, zone=series.zone, bucket_s=series.bucket_s)
    for silences in (silent_hosts(counts, series), silent_grid(series)):
        for moment, several in silences.items():
            reasons.setdefault(moment, []).extend(several)
    findings = []
    for moment, several in sorted(reasons.items()):
        findings += findings_of_rules(_bucket(plan, moment), several, moment + HOUR)
    seen = [series.moment(at) for at in range(len(series))]
    findings += [
        finding_of_wave(_bucket(plan, one.start), one, one.start + HOUR) for one in event_waves(counts, seen, HOUR, seen[0])
    ]
    return [*findings, *_odd_counts(plan, grid, Placed(counts), reasons)]


def _odd_counts(plan: Plan, grid: SimulatedGrid, placed: Placed, hard: dict[datetime, list[Reason]]) -> Iterator[Finding]:
    """What the model says that could have been trained by the beginning of each week."""
    series, week = grid.series.unlabelled(), grid.series.buckets_per_week
    for now in range(round(LEAST_WEEKS) * week, len(series), week):
        cut, end = round((1 - CALM_SHARE) * now), min(len(series), now + week)
        model = make(DEFAULT).fit(series.take(0, cut))
        known = series.take(0, end)
        scores, calm = model.score(known), calm_for_training(known) & (np.arange(end) >= cut)
        first = threshold_for(scores[cut:now], calm[cut:now], series.bucket_s, EVENTS_A_WEEK)
        thresholds = daily_thresholds(scores, calm, known.start_s, series.bucket_s, EVENTS_A_WEEK, first=first)
        forecast = model.forecast(known)  # type: ignore[attr-defined]
        for at in now + np.flatnonzero(np.nan_to_num(scores[now:], nan=-np.inf) > thresholds[now:]):
            moment = series.moment(int(at))
            reasons = [*hard.get(moment, []), *findings_at(known, forecast, int(at), placed)]
            odd = finding_of_score(
                _bucket(plan, moment), reasons, score=float(scores[at]), threshold=float(thresholds[at]), model=f"{DEFAULT}/1",
                known_at=moment + HOUR,
            )  # fmt: skip
            if odd is not None:
                yield odd


def _bucket(plan: Plan, moment: datetime) -> Bucket:
    return Bucket(plan.spec.name, moment, HOUR)


@dataclass(frozen=True, eq=False)
class ScoredNodes:
    """Scored windows of some simulated nodes: (moments, nodes, threads) each."""

    score: Floats
    flagged: Booleans
    max_iowait: Floats


def trace_findings(plan: Plan) -> Iterator[Finding]:
    """The nodes whose windows are unusual, asked for each hour in which a node has flags often enough in a row."""
    pool = plan.seed % _POOLS
    calm, bad = scored_pool(pool), scored_pool(pool, bad=True) if plan.bad_input else None
    before, an_hour = _day(plan, calm, bad, 0), 3600 // WINDOW_S
    for day in range(1, plan.days):
        today = _day(plan, calm, bad, day)
        may_fire = _ends_of_runs(np.concatenate([before.flagged, today.flagged]))[len(before.flagged) :]
        hours = np.unique(np.flatnonzero(may_fire) // an_hour)
        if hours.size:
            frame = pl.concat([_frame(plan, before, day - 1), _frame(plan, today, day)])
        for hour in hours:
            now = plan.spec.start + day * DAY + (int(hour) + 1) * HOUR
            recent = frame.filter(pl.col("window_start").is_between(now - DAY - HOUR, now))
            yield from odd_nodes(recent, now - HOUR, now, model="traces-shipped/1")
        before = today


def _ends_of_runs(flagged: Booleans) -> Booleans:
    """(moments,) whether some node has had flags at as many moments in a row as the rule needs at least."""
    some: Booleans = np.asarray(flagged.any(axis=2), dtype=np.bool_)  # (moments, nodes)
    runs = some.copy()
    for lag in range(1, FEWEST_MOMENTS):
        runs[lag:] &= some[:-lag]
        runs[:lag] = False
    return np.asarray(runs.any(axis=1), dtype=np.bool_)


def _day(plan: Plan, calm: ScoredNodes, bad: ScoredNodes | None, day: int) -> ScoredNodes:
    """The scored windows of one day: for each node pieces of half an hour, drawn from the pool."""
    moments, nodes = 86_400 // WINDOW_S, plan.spec.nodes
    rng = np.random.default_rng([plan.seed, 1917, day])
    pieces = moments // _PIECE
    chosen = rng.integers(calm.score.shape[1], size=(pieces, nodes)).repeat(_PIECE, axis=0)  # (moments, nodes)
    first = rng.integers(len(calm.score) - _PIECE + 1, size=(pieces, nodes)).repeat(_PIECE, axis=0)
    rows = first + np.tile(np.arange(_PIECE), pieces)[:, None]
    score, flagged = calm.score[rows, chosen], calm.flagged[rows, chosen]  # (moments, nodes, threads)
    max_iowait = calm.max_iowait[rows, chosen]
    hours = 24 * day + np.arange(moments) * WINDOW_S // 3600
    for fault in plan.bad_input:
        ill, node = (hours >= fault.first_hour) & (hours < fault.last_hour), fault.node
        if bad is not None:
            at = rows[ill, node], chosen[ill, node]
            score[ill, node], flagged[ill, node], max_iowait[ill, node] = bad.score[at], bad.flagged[at], bad.max_iowait[at]
    return ScoredNodes(score, flagged, max_iowait)


def _frame(plan: Plan, scored: ScoredNodes, day: int) -> pl.DataFrame:
    """Scored windows as the rule reads them."""
    moments, nodes, threads = scored.score.shape
    names = pl.Series([f"n{node + 1:03d}" for node in range(nodes)])
    start = pl.Series([plan.spec.start + day * DAY + timedelta(seconds=WINDOW_S * at) for at in range(moments)])
    size = scored.score.size
    return pl.DataFrame(
        {
            "cluster": pl.repeat(plan.spec.name, size, eager=True),
            "node": names.gather(np.tile(np.arange(nodes).repeat(threads), moments)),
            "window_start": start.gather(np.arange(moments).repeat(nodes * threads)),
            "window_s": pl.repeat(float(WINDOW_S), size, eager=True),
            "flagged": scored.flagged.ravel(),
            "score": scored.score.ravel(),
            "max_iowait": scored.max_iowait.ravel(),
            "job_id": _jobs_of(plan, day, moments, nodes, threads),
        }
    )


def _jobs_of(plan: Plan, day: int, moments: int, nodes: int, threads: int) -> pl.Series:
    """The jobs that wait for data, window by window; null elsewhere."""
    jobs = np.full((moments, nodes, threads), None, dtype=object)
    hours = 24 * day + np.arange(moments) * WINDOW_S // 3600
    for fault in plan.bad_input:
        jobs[(hours >= fault.first_hour) & (hours < fault.last_hour), fault.node] = fault.job
    return pl.Series(jobs.ravel().tolist(), dtype=pl.String)


@cache
def scored_pool(number: int, *, bad: bool = False) -> ScoredNodes:
    """Windows of calm nodes, or of nodes with bad input, flagged as a site would that has just set its threshold."""
    before = _windows(number * 3 + 1, bad=False)
    settled = before.take(before.job != MIXED_JOB)
    calm = Calm(len(settled), settled.independent(), _POOL_MINUTES / 60)
    threshold = promised(_scores(settled), calm, _FLAGGED_SHARE).threshold
    windows = _windows(number * 3 + (3 if bad else 2), bad=bad)
    scores = _scores(windows)
    # A thread that changed hands is unlike anything learnt, and everybody knows why.
    flagged = (scores > (np.inf if threshold is None else threshold)) & (windows.job != MIXED_JOB)
    shape = (-1, _POOL_NODES, THREADS)
    return ScoredNodes(scores.reshape(shape), flagged.reshape(shape), max_iowait(windows).reshape(shape))


def _scores(windows: Windows) -> Floats:
    """(windows,) what the shipped encoder says."""
    return np.asarray(load_shipped(threads=1).scorer.score(windows), dtype=np.float64)


def _windows(seed: int, *, bad: bool) -> Windows:
    """Windows of calm nodes: no job waits for data; or of nodes on which all jobs do."""
    steps = _POOL_MINUTES * 60
    placements = place_jobs(_POOL_NODES, THREADS, float(steps), (2, 8), seed)
    rates = np.empty((steps, _POOL_NODES * THREADS, 4), dtype=np.float32)
    job = np.full(rates.shape[:2], NO_JOB, dtype=np.int32)
    for node in range(_POOL_NODES):
        shares = np.zeros((steps, THREADS, 3), dtype=np.float32)
        for number, placed in enumerate(placements):
            if placed.node != node:
                continue
            rng = np.random.default_rng([seed, 1, number])
            kind = _behaviour(placed.job_type, bad=bad)
            rows, cpus = slice(round(placed.start_s), round(placed.end_s)), np.array(placed.cpus)
            job[rows, node * THREADS + cpus] = number
            shares[rows, cpus] = JOB_SHARES[kind](rng, JobShape(cpus.size, rows.stop - rows.start, 1.0))
        rng = np.random.default_rng([seed, 2, node])
        rates[:, node * THREADS : (node + 1) * THREADS] = counted(rng, with_node_noise(rng, shares, 1.0), 1.0)
    jobs = tuple(TraceJob(str(number), placed.job_type) for number, placed in enumerate(placements))
    return cut_windows(
        Trace(
            name="pool", step_s=1.0, time_s=np.arange(1, steps + 1, dtype=np.float64), rates=rates,
            nodes=tuple(f"n{node + 1:03d}" for node in range(_POOL_NODES) for _ in range(THREADS)),
            cpus=tuple(range(THREADS)) * _POOL_NODES, job=job, jobs=jobs,
        )
    )  # fmt: skip


def _behaviour(job_type: str, *, bad: bool) -> str:
    if bad and not job_type.startswith("Idle"):
        return BAD_IO
    if job_type == BAD_IO:
        return GOOD_IO
    return MPI if job_type.startswith(MPI) else job_type
