"""Which faults are sent, and how late: by the rules alone, and within the budget, over all families together.

`python -m benchmarks.alarm_faults [--seeds 10 11 … 19] [--workers N]`: the sites of benchmarks/alarm_budget.py with faults in the
eight weeks after the first four. Of a fault that was found, the delay runs from its beginning to the message. Nobody confirms
anything: past faults are part of the history that thresholds are learnt from. Results in benchmarks/results/alarm_faults.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.alarm_budget import DAYS, JUDGED, LEARNING, PROMISE, cluster_of
from benchmarks.alarm_sites import BadInput, Plan, grid_of, site_findings
from benchmarks.options import add_workers, engine_of
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.engine import Progress
from stormpetrel.records.incidents import Incident
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import JobState
from stormpetrel.rehearse.site.job_faults import end_jobs
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import DAY_S
from stormpetrel.simulate.spec import Fault as SickNode

RESULTS = Path(__file__).parent / "results" / "alarm_faults.json"
OUTAGES_A_WEEK = 1.0
SICK = (30, 32)  # days
DOWN, POWER_CUT, BATCH, TIMEOUTS, MEMORY = (timedelta(days=day, hours=11) for day in (37, 41, 45, 50, 54))
BAD_INPUT = ((60, 6), (70, 2))  # day, hours
STORAGE_HOURS = 5
_FINE = 0.15  # share of a user's jobs of a week that did not complete
AFTERWARDS = timedelta(hours=1)  # a message may come so long after the end of a fault


@dataclass(frozen=True)
class Fault:
    """What was done to a site, and by whom an incident about it is known."""

    name: str
    since: datetime
    until: datetime
    families: frozenset[str]
    subjects: frozenset[str] = frozenset()  # any where empty


@dataclass
class Records:
    """The job records of a site while faults are put into them."""

    frame: pl.DataFrame
    faults: list[Fault] = field(default_factory=list)

    def end(self, which: pl.Series, state: JobState, end_time: pl.Series) -> None:
        """Let some jobs end in another way."""
        self.frame = end_jobs(self.frame, which, state, end_time)

    def running(self, since: datetime, until: datetime) -> pl.Series:
        """Jobs that run at some time in a span."""
        return self.frame.select(((pl.col("start_time") < until) & (pl.col("end_time") > since)).fill_null(False)).to_series()


def nodes_down(records: Records, name: str, at: datetime, nodes: list[str]) -> None:
    """Nodes go down at once with what runs on them."""
    hit = pl.Series([bool({*expand_nodes(text or "")} & {*nodes}) for text in records.frame["node_list"]])
    which = records.running(at, at) & hit
    if which.any():
        records.end(which, JobState.NODE_FAIL, pl.repeat(at, len(which), eager=True, dtype=records.frame.schema["end_time"]))
        records.faults.append(Fault(name, at, at + 6 * AFTERWARDS, frozenset({"jobs"}), frozenset(nodes)))


def broken_batch(records: Records, at: datetime) -> None:
    """A user whose jobs do well breaks the batch to come: of those who submit most of one name, the first whose week was fine."""
    span, start = timedelta(days=2), pl.col("start_time")
    week = records.frame.filter(start.is_between(at - timedelta(days=7), at))
    fine = week.group_by("user").agg(bad=(pl.col("state") != JobState.COMPLETED.value).mean()).filter(pl.col("bad") < _FINE)
    soon = records.frame.filter(start.is_between(at, at + span)).join(fine, on="user", how="semi")
    batches = soon.group_by("user", "job_name").agg(pl.len(), first=start.min()).sort("len", "user", "job_name")
    if not batches.height:
        return
    user, name, _, first = batches.row(-1)
    mine = (pl.col("user") == user) & (pl.col("job_name") == name) & start.is_between(at, at + span)
    records.end(
        records.frame.select(mine.fill_null(False)).to_series(),
        JobState.FAILED,
        records.frame["start_time"] + timedelta(seconds=30),
    )
    records.faults.append(Fault("broken batch of a user", first, at + span, frozenset({"jobs"}), frozenset({str(user)})))


def storage_trouble(records: Records, name: str, at: datetime, state: JobState, rng: np.random.Generator) -> None:
    """Six in ten of the jobs that run within some hours end so, at any time of these hours."""
    until = at + timedelta(hours=STORAGE_HOURS)
    which = records.running(at, until) & pl.Series(rng.random(records.frame.height) < 0.6)
    begin = records.frame.select(pl.max_horizontal("start_time", pl.lit(at))).to_series()
    after_s = pl.Series((rng.random(records.frame.height) * STORAGE_HOURS * 3600).astype(np.int64))
    end = (pl.Series([at] * records.frame.height).cast(begin.dtype) + after_s * timedelta(seconds=1)).zip_with(
        begin <= pl.Series([at] * records.frame.height).cast(begin.dtype), begin + timedelta(minutes=20)
    )
    records.end(which, state, end)
    records.faults.append(Fault(name, at, until, frozenset({"jobs"}), frozenset({str(records.frame["cluster"][0])})))


def faulty_site(seed: int) -> tuple[Plan, list[Fault]]:
    """The site of a seed with its faults."""
    cluster = replace(cluster_of(seed), seed=seed)
    sick = (cluster.nodes * 2) // 3
    ill = replace(cluster, faults=(SickNode(sick, *(day * DAY_S for day in SICK)),))
    start, rng = cluster.start, np.random.default_rng([seed, 2011])
    records = Records(pl.concat(simulate(ill)))
    begin, end = (start + timedelta(days=day) for day in SICK)
    records.faults.append(Fault("sick node", begin, end, frozenset({"jobs", "events"}), node_names(sick)))
    nodes_down(records, "one node down", start + DOWN, [*node_names(1)])
    nodes_down(records, "three nodes down at once", start + POWER_CUT, [*node_names(0, 2, 3)])
    broken_batch(records, start + BATCH)
    storage_trouble(records, "storage: jobs time out", start + TIMEOUTS, JobState.TIMEOUT, rng)
    storage_trouble(records, "storage: jobs out of memory", start + MEMORY, JobState.OUT_OF_MEMORY, rng)
    bad = tuple(BadInput(4, 24 * day + 9, 24 * day + 9 + hours) for day, hours in BAD_INPUT)
    for one in bad:
        begin, end = (start + timedelta(hours=hour) for hour in (one.first_hour, one.last_hour))
        records.faults.append(
            Fault(
                f"bad input on a node, {one.last_hour - one.first_hour} h",
                begin,
                end,
                frozenset({"traces"}),
                node_names(one.node),
            )
        )
    plan = Plan(cluster, seed, outages_per_week=OUTAGES_A_WEEK, bad_input=bad, jobs=records.frame)
    return plan, [*records.faults, *grid_outages(plan)]


def node_names(*nodes: int) -> frozenset[str]:
    return frozenset(f"n{node + 1:03d}" for node in nodes)


def grid_outages(plan: Plan) -> Iterable[Fault]:
    """The outages of the grid after the first weeks."""
    grid = grid_of(plan)
    for one in grid.plan:
        begin, end = grid.series.moment(one.first), grid.series.moment(one.last - 1) + timedelta(hours=1)
        if begin >= plan.spec.start + timedelta(weeks=LEARNING):
            yield Fault(f"{one.outage_type.replace('_', ' ')}, {one.severity}", begin, end, frozenset({"events"}))


def run(seed: int, _progress: Progress) -> dict[str, Any]:
    """One site: each fault with its delay in hours, or None, by the rules and within the budget; and the pages of both."""
    plan, faults = faulty_site(seed)
    findings, end = site_findings(plan), plan.spec.start + timedelta(days=DAYS)
    books = {"rules": IncidentBook(), "budget": IncidentBook()}
    books["budget"].budget = PageBudget(PROMISE, plan.spec.start)
    for book in books.values():
        book.take(findings, end)
    cut = plan.spec.start + timedelta(weeks=LEARNING)
    return {
        "seed": seed,
        "nodes": plan.spec.nodes,
        "pages": {name: sum(sent >= cut for one in book for sent in one.paged_at) for name, book in books.items()},
        "faults": [
            {"fault": one.name, "listed": _delay_h(books["rules"], one, sent=False)}
            | {name: _delay_h(book, one, sent=True) for name, book in books.items()}
            for one in faults
        ],
    }


def _delay_h(book: IncidentBook, fault: Fault, *, sent: bool) -> float | None:
    """Hours from the beginning of a fault until it was sent (or raised), None where it was not."""
    moments = [moment for one in book if is_about(one, fault) for moment in (one.paged_at if sent else _openings(one))]
    inside = [moment for moment in moments if fault.since <= moment <= fault.until + AFTERWARDS]
    return round((min(inside) - fault.since).total_seconds() / 3600, 3) if inside else None


def _openings(incident: Incident) -> tuple[datetime, ...]:
    return (incident.raised_at, *incident.reopened_at)


def is_about(incident: Incident, fault: Fault) -> bool:
    return any(
        part.family in fault.families and (not fault.subjects or fault.subjects & {one.name for one in part.subjects})
        for part in incident.findings
    )


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each fault: how many, which share was found by whom, median delays; of those that the rules found, both."""
    faults = [one for run in runs for one in run["faults"]]
    rows = {}
    for name in dict.fromkeys(one["fault"] for one in sorted(faults, key=lambda one: one["fault"])):
        these = [one for one in faults if one["fault"] == name]
        both = [one for one in these if one["rules"] is not None]
        rows[name] = {
            "n": len(these),
            **{f"recall_{who}": _share(these, who) for who in ("listed", "rules", "budget")},
            **{f"delay_h_{who}": _median(these, who) for who in ("listed", "rules", "budget")},
            "delay_h_budget_of_those_of_the_rules": _median(both, "budget"),
        }
    weeks = JUDGED * len(runs)
    return {
        "weeks": weeks,
        "pages_a_week": {who: round(sum(run["pages"][who] for run in runs) / weeks, 2) for who in ("rules", "budget")},
        "faults": rows,
    }


def _share(faults: list[dict[str, Any]], who: str) -> float:
    return round(sum(one[who] is not None for one in faults) / len(faults), 2)


def _median(faults: list[dict[str, Any]], who: str) -> float | None:
    delays = [one[who] for one in faults if one[who] is not None]
    return round(statistics.median(delays), 2) if delays else None


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    add_workers(parser)
    words = parser.parse_args()
    runs = list(engine_of(words).map(run, words.seeds, name=lambda seed: f"seed {seed}"))
    answer = {"seeds": words.seeds, **summary(runs)}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, words.seeds))] = {**answer, "runs": runs}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    print(answer["pages_a_week"])
    for name, row in answer["faults"].items():
        print(f"{name:32}", *(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
