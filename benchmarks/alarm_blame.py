"""Whose fault: what incidents of simulated clusters and grids are put down to, against what the simulator did.

`python -m benchmarks.alarm_blame [--seeds 10 11 12 13 14] [--workers N]`.

Clusters of 8, 24 and 32 nodes, five weeks of job records each: a sick node for three days, six node failures a year and node, the
file system gone for an hour and a half on all nodes and for two hours on half of them (every job that starts there fails within
seconds), and what users get wrong by themselves. CPU traces of the nodes are there as well (alarm_sites.py; `--no-traces` leaves
them out): where the file system is gone, what runs waits for data; a sick node's are those of any other; and twice a large job of
one user waits for data on four nodes, which is that user's mistake. Grids of 400 nodes, 15 weeks of counted events, the last six
judged: outages of
every type and severity that the simulator has, and users' mistakes.

An incident's truth on a cluster is what most of its lost jobs fell to; on a grid the outage that it overlaps (up to six hours
after it), else a mistake of a group meanwhile, else nothing: then every verdict is wrong. What comes back after it was over is
judged again.
Results in benchmarks/results/alarm_blame.json.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.alarm_sites import BadInput, Plan, trace_findings
from benchmarks.grid_counts import placed_counts
from benchmarks.options import add_workers, engine_of
from stormpetrel.alarms.event_rules import Bucket, event_waves, finding_of_score, finding_of_wave, findings_of_rules
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import by_node, known_jobs
from stormpetrel.engine import Progress
from stormpetrel.events.alarm_budget import threshold_for
from stormpetrel.events.combined import Combined
from stormpetrel.events.nodes_and_hosts import black_holes, silent_grid, silent_hosts
from stormpetrel.events.why import Placed, findings_at
from stormpetrel.records.event_series import MAINTENANCE, NORMAL
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import LEADING, Blame, Incident
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.grid.grid import GridSpec, SimulatedGrid, simulate_grid
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS
from stormpetrel.simulate.grid.rhythm import Maintenance, maintenances, mistakes
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault

RESULTS: Final = Path(__file__).parent / "results" / "alarm_blame.json"
HOUR_S: Final = 3600
WEEKS: Final = 5
CLUSTERS: Final = tuple(
    ClusterSpec(nodes=nodes, load=load, days=7 * WEEKS, node_failures_per_year=6.0)
    for nodes, load in ((24, 0.55), (32, 0.75), (8, 0.9))
)
SICK: Final = (18 * DAY_S, 21 * DAY_S)
ALL_GONE: Final = (24 * DAY_S + 10 * HOUR_S, 24 * DAY_S + 10 * HOUR_S + 5400)
HALF_GONE: Final = (29 * DAY_S + 14 * HOUR_S, 29 * DAY_S + 16 * HOUR_S)
LARGE_JOBS: Final = (12 * 24 + 9, 31 * 24 + 13)  # hours at which a large job of one user waits for data for two hours
STEP: Final = timedelta(days=7)
TRAINED, GRID_HOURS = 9 * 168, 15 * 168
TRUTH: Final = {
    "node_collapse": Blame.NODE,
    "black_hole": Blame.NODE,
    "submit_unresponsive": Blame.SCHEDULER,
    "disconnect_storm": Blame.SCHEDULER,  # the line to one submit host
    "slow_storage": Blame.STORAGE,
}
NOTHING: Final = "nothing"

Judged = tuple[str, str, str]  # where, truth, verdict


def cluster_incidents(case: tuple[int, ClusterSpec, bool], _progress: Progress) -> list[Judged]:
    """The incidents of one cluster with their truths."""
    seed, spec, with_traces = case
    sick_node = min(16, spec.nodes - 2)
    faults = (
        Fault(sick_node, *SICK),
        *(Fault(node, *ALL_GONE) for node in range(spec.nodes)),
        *(Fault(node, *HALF_GONE) for node in range(0, spec.nodes, 2)),
    )
    jobs = known_jobs(pl.concat(simulate(replace(spec, seed=seed, faults=faults))))
    rules, book, now = JobRules(spec.start), IncidentBook(), spec.start
    waiting = _waiting(spec, jobs)
    plan = Plan(spec, seed, bad_input=tuple(fault for fault, _ in waiting))
    odd = list(trace_findings(plan)) if with_traces else []
    while now < spec.start + timedelta(days=7 * WEEKS):
        recent = jobs.filter(pl.coalesce("end_time", "start_time") > rules.needed_since)
        traces = [finding for finding in odd if now < finding.decided_at <= now + STEP]
        now += STEP
        book.take([*rules.step(recent, now), *traces], now)
    causes = _causes(jobs, spec, faults)
    return [("cluster", _truth_of_jobs(one, causes) or _truth_of_traces(one, spec, waiting), one.blame) for one in book]


def _waiting(spec: ClusterSpec, jobs: pl.DataFrame) -> list[tuple[BadInput, Blame]]:
    """The nodes whose threads wait for data, from hour to hour, with what runs there, and whose fault that is.

    Where the file system is gone, it is the widest job that runs on the node by the records of the cluster.
    """
    gone = [(range(spec.nodes), ALL_GONE), (range(0, spec.nodes, 2), HALF_GONE)]
    storage = [
        (BadInput(node, first_s // HOUR_S, -(-last_s // HOUR_S), running.get(f"n{node + 1:03d}")), Blame.STORAGE)
        for nodes, (first_s, last_s) in gone
        for running in [_running(jobs, spec.start + timedelta(seconds=first_s))]
        for node in nodes
    ]
    large = [(BadInput(node, hour, hour + 2, f"large-{hour}"), Blame.USER) for hour in LARGE_JOBS for node in range(4)]
    return [*storage, *large]


def _running(jobs: pl.DataFrame, at: datetime) -> dict[str, str]:
    """The widest job on each node at a moment."""
    rows = by_node(jobs.filter(pl.col("start_time") <= at, pl.col("end_time") > at)).sort("width", "ref")
    return dict(rows.select("node", "ref").iter_rows())


def _truth_of_traces(incident: Incident, spec: ClusterSpec, waiting: Iterable[tuple[BadInput, Blame]]) -> str:
    """Why the nodes of an incident without lost jobs wait for data; nothing where they do not."""
    nodes = {subject.name for subject in incident.subjects}
    first, last = ((at - spec.start) / timedelta(hours=1) for at in (incident.since, incident.until))
    truths = (
        str(truth)
        for fault, truth in waiting
        if f"n{fault.node + 1:03d}" in nodes and fault.first_hour <= last + 1 and fault.last_hour > first
    )
    return next(truths, NOTHING)


def _causes(jobs: pl.DataFrame, spec: ClusterSpec, faults: Iterable[Fault]) -> dict[str, str]:
    """Why each failed job failed, by its reference: what the simulator did to it, or else its user."""
    failed = jobs.filter("failed", pl.col("start_time").is_not_null())
    causes = dict.fromkeys(failed["ref"], str(Blame.USER))
    causes |= dict.fromkeys(failed.filter(pl.col("state") == "NODE_FAIL")["ref"], str(Blame.NODE))
    placed = by_node(failed.filter(pl.col("state") == "FAILED"))
    spans: dict[tuple[int, int], list[str]] = {}
    for fault in faults:
        spans.setdefault((fault.start_s, fault.until_s), []).append(f"n{fault.node + 1:03d}")
    for (first_s, last_s), nodes in spans.items():
        began, over = (spec.start + timedelta(seconds=second) for second in (first_s, last_s))
        hit = placed.filter(pl.col("node").is_in(nodes), pl.col("start_time") >= began, pl.col("start_time") < over)
        causes |= dict.fromkeys(hit["ref"], str(Blame.NODE if len(nodes) == 1 else Blame.STORAGE))
    return causes


def _truth_of_jobs(incident: Incident, causes: dict[str, str]) -> str | None:
    """What most lost jobs of an incident fell to; None where it lost none."""
    leading = min(incident.kinds, key=LEADING.index)
    jobs = [job for part in incident.findings if part.kind == leading for job in part.jobs]
    return Counter(causes.get(job, NOTHING) for job in jobs).most_common(1)[0][0] if jobs else None


def grid_incidents(seed: int, _progress: Progress) -> list[Judged]:
    """The incidents of the judged weeks of one grid, with their truths."""
    grid = simulate_grid(GridSpec(hours=GRID_HOURS, seed=seed))
    book = IncidentBook()
    openings: dict[tuple[int, int], tuple[int, Incident]] = {}
    for hour, findings in _grid_findings(grid):
        now = grid.series.moment(hour) + timedelta(hours=1)
        for one in book.take(findings, now):
            key = (one.id, len(one.reopened_at))
            begin, _ = openings.get(key, (hour, one))
            openings[key] = begin, one
    wrong = _mistaken_hours(grid.spec)
    return [("grid", _truth_of_hours(begin, one, grid, wrong), one.blame) for begin, one in openings.values()]


def _grid_findings(grid: SimulatedGrid) -> Iterable[tuple[int, list[Finding]]]:
    """What the watch would find, hour by hour: rules over places, waves, and counts above the threshold of a model."""
    length = timedelta(hours=1)
    past = grid.series.take(0, TRAINED)
    model = Combined().fit(past)
    series = grid.series.unlabelled()
    scores, forecast = model.score(series), model.forecast(series)
    threshold = threshold_for(scores[:TRAINED], past.label == NORMAL, series.bucket_s, 1.0)
    first = TRAINED - 14 * 24
    frame = placed_counts(grid, first)
    placed = Placed(frame)
    late = series.take(first, len(series))
    hard = black_holes(frame, zone="UTC", bucket_s=series.bucket_s)
    for silences in (silent_hosts(frame, late), silent_grid(late)):
        for moment, several in silences.items():
            hard.setdefault(moment, []).extend(several)
    seen = [series.moment(hour) for hour in range(first, len(series))]
    waves = event_waves(frame, seen, length, series.moment(TRAINED))
    for hour in range(TRAINED, len(series)):
        if grid.series.label[hour] == MAINTENANCE:
            continue
        start = series.moment(hour)
        bucket = Bucket("grid", start, length)
        findings = findings_of_rules(bucket, hard.get(start, []), bucket.end)
        findings += [finding_of_wave(bucket, wave, bucket.end) for wave in waves if wave.start == start]
        if scores[hour] > threshold:
            reasons = findings_at(series, forecast, hour, placed)
            odd = finding_of_score(
                bucket, reasons, score=float(scores[hour]), threshold=threshold, model="combined/1", known_at=bucket.end
            )
            findings += [odd] if odd else []
        yield hour, findings


def _mistaken_hours(spec: GridSpec) -> npt.NDArray[np.bool_]:
    """(hours,) whether a batch that a group got wrong was there in this hour."""
    warm_up = 48  # as in simulate/grid/grid.py
    longer = replace(spec, hours=spec.hours + warm_up, start=spec.start - timedelta(hours=warm_up))
    shifted = [
        Maintenance(one.first + warm_up, one.down + warm_up, one.up + warm_up, one.last + warm_up) for one in maintenances(spec)
    ]
    made = mistakes(longer, shifted)
    wrong = sum(getattr(made, column).sum(axis=1) for column in ("held", "terminated", "removed", "release", "aborted"))
    return np.asarray(wrong > 0)[warm_up:]


def _truth_of_hours(begin: int, incident: Incident, grid: SimulatedGrid, mistaken: npt.NDArray[np.bool_]) -> str:
    """The outage that an incident overlaps most, its aftermath included; else a mistake of a group; else nothing."""
    end = (incident.until - grid.spec.start) / timedelta(hours=1)
    overlap = {one: min(end, one.last + AFTERMATH_HOURS) - max(begin, one.first) for one in grid.plan}
    best = max(overlap, key=lambda one: overlap[one])
    if overlap[best] > 0:
        return str(TRUTH[best.outage_type])
    return str(Blame.USER) if mistaken[begin : int(end) + 1].any() else NOTHING


def summary(judged: Iterable[Judged]) -> dict[str, Any]:
    """Precision over the verdicts that are none of "unclear", the share of these, and the confusion table."""
    rows = list(judged)
    named = [(truth, verdict) for _, truth, verdict in rows if verdict != Blame.UNCLEAR]
    right = sum(truth == verdict for truth, verdict in named)
    return {
        "incidents": len(rows),
        "precision": round(right / len(named), 3) if named else None,
        "unclear": round(1 - len(named) / len(rows), 3) if rows else None,
        "table": {
            truth: dict(Counter(verdict for _, other, verdict in rows if other == truth))
            for truth in sorted({truth for _, truth, _ in rows})
        },
    }


def main() -> None:
    """Run the seeds, print the tables, write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("--traces", action=argparse.BooleanOptionalAction, default=True, help="CPU traces of the clusters' nodes")
    add_workers(parser)
    options = parser.parse_args()
    engine = engine_of(options)
    cases = [(seed, spec, options.traces) for seed in options.seeds for spec in CLUSTERS]
    clusters = list(engine.map(cluster_incidents, cases, name=lambda case: f"seed {case[0]}, {case[1].nodes} nodes"))
    grids = list(engine.map(grid_incidents, options.seeds, name=lambda seed: f"grid of seed {seed}"))
    judged = [one for part in (*clusters, *grids) for one in part]
    answer = {
        "seeds": options.seeds,
        "all": summary(judged),
        **{where: summary(one for one in judged if one[0] == where) for where in ("cluster", "grid")},
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, options.seeds)) + ("" if options.traces else ", without traces")] = answer
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for where in ("cluster", "grid", "all"):
        figures = answer[where]
        print(f"{where}: {figures['incidents']} incidents, precision {figures['precision']}, unclear {figures['unclear']}")
        for truth, verdicts in figures["table"].items():
            print(f"    {truth:10} " + "  ".join(f"{verdict} {number}" for verdict, number in sorted(verdicts.items())))


if __name__ == "__main__":
    main()
