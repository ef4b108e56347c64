"""How many incidents of calm weeks the thresholds of the budget would send, before any cap, over all families together.

`python -m benchmarks.alarm_budget [--seeds 10 11 … 19] [--workers N]`: one simulated site per seed (alarm_sites.py: jobs of
a cluster of 8, 24 or 32 nodes, events of a grid, CPU traces of the nodes), twelve calm weeks, the first four to learn from. All
findings go into one book with one budget, in the order of time. Results in benchmarks/results/alarm_budget.json.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.alarm_sites import Plan, site_findings
from benchmarks.options import add_workers, engine_of
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.engine import Progress
from stormpetrel.records.findings import FindingKind
from stormpetrel.records.incidents import Incident
from stormpetrel.simulate.spec import ClusterSpec

RESULTS = Path(__file__).parent / "results" / "alarm_budget.json"
LEARNING, JUDGED = 4, 8  # weeks
PROMISE = 3.0
FAMILIES = ("jobs", "events", "traces")
DAYS = 7 * (LEARNING + JUDGED)
CLUSTERS = tuple(ClusterSpec(nodes=nodes, load=load, days=DAYS) for nodes, load in ((24, 0.55), (32, 0.75), (8, 0.9)))


class Uncapped(PageBudget):
    """The thresholds alone."""

    def has_room(self, at: datetime, *, by_rule: bool) -> bool:
        """There always is."""
        return True


@dataclass(frozen=True)
class Run:
    """What was raised and sent in the judged weeks of one site; of both also by family."""

    seed: int
    nodes: int
    incidents: int
    pages: int
    hosts_named: int
    incidents_of: dict[str, int]
    pages_of: dict[str, int]


def cluster_of(seed: int) -> ClusterSpec:
    """The cluster of a seed: one size after the other."""
    return CLUSTERS[seed % len(CLUSTERS)]


def run(seed: int, _progress: Progress) -> Run:
    """Walk through the weeks of one calm site."""
    spec, book = cluster_of(seed), IncidentBook()
    book.budget = Uncapped(PROMISE, spec.start)
    book.take(site_findings(Plan(spec, seed)), spec.start + timedelta(days=DAYS))
    cut = spec.start + timedelta(weeks=LEARNING)
    judged = [one for one in book if one.raised_at >= cut]
    pages = [one for one in book for sent in one.paged_at if sent >= cut]
    named = sum(FindingKind.NODE_EATS_JOBS in one.kinds for one in judged)
    return Run(seed, spec.nodes, len(judged), len(pages), named, _by_family(judged), _by_family(pages))


def _by_family(incidents: list[Incident]) -> dict[str, int]:
    return dict(sorted(Counter(one.families[0] for one in incidents).items()))


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    add_workers(parser)
    words = parser.parse_args()
    runs = list(engine_of(words).map(run, words.seeds, name=lambda seed: f"seed {seed}"))
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
        **{f"pages_of_{family}": round(sum(one.pages_of.get(family, 0) for one in runs) / weeks, 2) for family in FAMILIES},
        **{
            f"incidents_of_{family}": round(sum(one.incidents_of.get(family, 0) for one in runs) / weeks, 2)
            for family in FAMILIES
        },
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, words.seeds))] = answer | {"runs": [asdict(one) for one in runs]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for key, value in answer.items():
        print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
