"""What the rules over job records find in simulated clusters, calm and with a sick node: whom they name, and how late.

`python -m benchmarks.alarm_rules [--seeds 10 11 12] [--weeks 8] [--workers N]`: eight weeks or more on clusters of
8, 24 and 32 nodes per seed, once
calm and once with a node that loses every job for five days. Results in benchmarks/results/alarm_rules.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from benchmarks.options import add_workers, engine_of
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import by_node, known_jobs, trials
from stormpetrel.engine import Progress
from stormpetrel.records.findings import FindingKind
from stormpetrel.records.incidents import Incident
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec, Fault

RESULTS = Path(__file__).parent / "results" / "alarm_rules.json"
WEEKS = 8
DAY_S = 86_400
SICK_DAYS = (46, 51)
CLUSTERS = tuple(ClusterSpec(nodes=nodes, load=load) for nodes, load in ((24, 0.55), (32, 0.75), (8, 0.9)))
STEP = timedelta(days=7)


@dataclass(frozen=True)
class Run:
    """What was found in one cluster; of a calm one, whoever is named is named wrongly."""

    seed: int
    nodes: int
    sick: bool
    named: bool
    named_in: int  # incidents
    others_named: int
    pages: int
    waves: int
    batches: int
    lost_before: int | None
    delay_s: float | None  # from the third lost job until the node was named


def run(case: tuple[int, ClusterSpec, bool], _progress: Progress) -> Run:
    """Walk through the weeks of one cluster."""
    seed, spec, sick = case
    node = min(16, (spec.nodes or 0) - 2)
    faults = (Fault(node, *(day * DAY_S for day in SICK_DAYS)),) if sick else ()
    jobs = known_jobs(pl.concat(simulate(replace(spec, seed=seed, faults=faults))))
    book, now = walk(jobs, spec.start, round((spec.days or 0) / 7))
    eaten = [(one, part) for one in book for part in one.findings if part.kind == FindingKind.NODE_EATS_JOBS]
    name = f"n{node + 1:03d}"
    right = [(one, part) for one, part in eaten if sick and part.subject.name == name]
    lost_before = delay_s = None
    if right:
        decided = min(part.decided_at for _, part in right)
        began, ended = (spec.start + timedelta(days=day) for day in SICK_DAYS)
        lost = by_node(trials(jobs, now)).filter(
            pl.col("node") == name, pl.col("lost"), pl.col("start_time").is_between(began, ended)
        )
        lost_before = lost.filter(pl.col("at") <= decided).height
        delay_s = (decided - lost["at"].sort()[2]).total_seconds()
    return Run(
        seed,
        spec.nodes,
        sick,
        bool(right),
        len({one.id for one, _ in right}),
        len(eaten) - len(right),
        sum(one.page for one in book),
        sum(any(kind.endswith("wave") for kind in one.kinds) for one in book),
        sum(one.kinds == (FindingKind.BATCH_FAILS,) for one in book),
        lost_before,
        delay_s,
    )


def walk(jobs: pl.DataFrame, start: datetime, weeks: int = WEEKS) -> tuple[list[Incident], datetime]:
    """The incidents of all weeks, and the time of the last look."""
    rules, book, now = JobRules(start), IncidentBook(), start
    while now < start + timedelta(days=7 * weeks + 2):
        now += STEP
        recent = jobs.filter(pl.coalesce("end_time", "start_time") > rules.needed_since)
        book.take(rules.step(recent, now), now)
    return list(book), now


def summary(runs: list[Run], weeks_each: int = WEEKS) -> dict[str, float | int | None]:
    """The figures of docs/alarms.md."""
    calm, sick = [one for one in runs if not one.sick], [one for one in runs if one.sick]
    found = [one for one in sick if one.named]
    delays = [one.delay_s for one in found if one.delay_s is not None]
    lost = [one.lost_before for one in found if one.lost_before is not None]
    weeks = weeks_each * len(calm)
    return {
        "calm_weeks": weeks,
        "hosts_named_in_calm_weeks": sum(one.others_named for one in calm),
        "pages_in_calm_weeks": sum(one.pages for one in calm),
        "waves_in_calm_weeks": sum(one.waves for one in calm),
        "batches_a_calm_week": round(sum(one.batches for one in calm) / weeks, 1),
        "sick_nodes": len(sick),
        "named": len(found),
        "named_in_one_incident": sum(one.named_in == 1 for one in found),
        "others_named": sum(one.others_named for one in sick),
        "lost_before_median": statistics.median(lost) if lost else None,
        "lost_before_most": max(lost, default=None),
        "delay_min_median": round(statistics.median(delays) / 60) if delays else None,
        "delay_min_longest": round(max(delays) / 60) if delays else None,
    }


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--weeks", type=int, default=WEEKS, help="of each cluster, at least eight")
    add_workers(parser)
    words = parser.parse_args()
    clusters = [replace(spec, days=7 * words.weeks) for spec in CLUSTERS]
    cases = [(seed, spec, sick) for seed in words.seeds for spec in clusters for sick in (False, True)]
    runs = list(engine_of(words).map(run, cases, name=lambda case: f"seed {case[0]}, {case[1].nodes} nodes"))
    answer = {"seeds": words.seeds, "summary": summary(runs, words.weeks), "runs": [asdict(one) for one in runs]}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, words.seeds)) + ("" if words.weeks == WEEKS else f", {words.weeks} weeks")] = answer
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for key, value in answer["summary"].items():
        print(f"{key:28} {value}")


if __name__ == "__main__":
    main()
