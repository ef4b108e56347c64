"""How many incidents of calm weeks the thresholds of the budget would send, before any cap.

`python -m benchmarks.alarm_budget [--seeds 10 11 … 19] [--workers N]`: twelve calm weeks on clusters of 8, 24 and 32 nodes per
seed, the first four to learn from. Results in benchmarks/results/alarm_budget.json.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from benchmarks.options import add_workers
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import known_jobs
from stormpetrel.engine import Engine, Progress
from stormpetrel.records.findings import FindingKind
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec

RESULTS = Path(__file__).parent / "results" / "alarm_budget.json"
LEARNING, JUDGED = 4, 8  # weeks
PROMISE = 3.0
DAYS = 7 * (LEARNING + JUDGED)
CLUSTERS = tuple(ClusterSpec(nodes=nodes, load=load, days=DAYS) for nodes, load in ((24, 0.55), (32, 0.75), (8, 0.9)))
STEP = timedelta(days=7)
LOOK = timedelta(seconds=5)


class Uncapped(PageBudget):
    """The thresholds alone."""

    def has_room(self, at: datetime, *, by_rule: bool) -> bool:
        """There always is."""
        return True


@dataclass(frozen=True)
class Run:
    """What was raised and sent in the judged weeks of one cluster."""

    seed: int
    nodes: int
    incidents: int
    pages: int
    hosts_named: int


def run(case: tuple[int, ClusterSpec], _progress: Progress) -> Run:
    """Walk through the weeks of one calm cluster."""
    seed, spec = case
    jobs = known_jobs(pl.concat(simulate(replace(spec, seed=seed))))
    rules, book, now = JobRules(spec.start), IncidentBook(), spec.start
    book.budget = Uncapped(PROMISE, spec.start)
    while now < spec.start + timedelta(days=DAYS):
        now += STEP
        recent = jobs.filter(pl.coalesce("end_time", "start_time") > rules.needed_since)
        book.take([replace(one, known_at=one.decided_at + LOOK) for one in rules.step(recent, now)], now)
    cut = spec.start + timedelta(weeks=LEARNING)
    judged = [one for one in book if one.raised_at >= cut]
    pages = sum(sent >= cut for one in book for sent in one.paged_at)
    return Run(seed, spec.nodes, len(judged), pages, sum(FindingKind.NODE_EATS_JOBS in one.kinds for one in judged))


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    add_workers(parser)
    words = parser.parse_args()
    cases = [(seed, spec) for seed in words.seeds for spec in CLUSTERS]
    runs = list(Engine(words.workers).map(run, cases, name=lambda case: f"seed {case[0]}, {case[1].nodes} nodes"))
    weeks = JUDGED * len(runs)
    rate = sum(one.pages for one in runs) / weeks
    answer = {
        "seeds": words.seeds,
        "weeks": weeks,
        "promised_a_week": PROMISE,
        "pages_a_week": round(rate, 2),
        "of_the_promise": round(rate / PROMISE, 2),
        "fewest_a_week": min(one.pages for one in runs) / JUDGED,
        "most_a_week": max(one.pages for one in runs) / JUDGED,
        "incidents_a_week": round(sum(one.incidents for one in runs) / weeks, 1),
        "hosts_named": sum(one.hosts_named for one in runs),
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, words.seeds))] = answer | {"runs": [asdict(one) for one in runs]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for key, value in answer.items():
        print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
