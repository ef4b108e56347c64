"""What verdicts are worth: false alarms of the four weeks after true verdicts on the first 20 incidents, and the recall.

`python -m benchmarks.alarm_verdicts [--seeds 10 11 … 19] [--workers N]`: the sites of benchmarks/alarm_budget.py (jobs of a
cluster, events of a grid, CPU traces) over twelve weeks. From the fifth week on there are the faults of alarm_faults.py twice,
four weeks apart and on other nodes, and an outage of the grid a week. Nothing else is added to the simulator.

An *alarm* is an incident that is put on the list of alarms, raised or opened again. It is *true* if it is about a fault: seen by
a family that the fault concerns, about one of its subjects, from its beginning to an hour after its end; or half of its lost jobs
fell to the fault. Any other is *false*, what users get wrong in calm operation among them. The first 20 incidents on the list
after the first four weeks are judged by that truth, each a day after it was raised. The four weeks from the last of these
verdicts on are compared with the same weeks of the same site on which nobody said anything. A fault is *found* if an alarm is
about it, *sent* if a message is. Results in benchmarks/results/alarm_verdicts.json.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.alarm_budget import DAYS, LEARNING, PROMISE, cluster_of
from benchmarks.alarm_faults import (
    AFTERWARDS,
    Fault,
    Records,
    broken_batch,
    grid_outages,
    is_about,
    node_names,
    nodes_down,
    storage_trouble,
)
from benchmarks.alarm_sites import BadInput, Plan, site_findings
from benchmarks.options import add_workers, engine_of
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.verdict_memory import VerdictMemory
from stormpetrel.engine import Progress
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import ActKind, Incident, IncidentAct, JudgedIncident
from stormpetrel.records.jobs import ref_text
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import JobState
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import DAY_S
from stormpetrel.simulate.spec import Fault as SickNode

RESULTS: Final = Path(__file__).parent / "results" / "alarm_verdicts.json"
JUDGED: Final = 20  # incidents
AFTER: Final = timedelta(weeks=4)
ANSWERED_AFTER: Final = timedelta(days=1)
EVERY: Final = timedelta(days=28)  # a round of faults
SICK, DOWN, POWER_CUT, BATCH, TIMEOUTS, MEMORY = 30, 34, 37, 40, 44, 48  # days of the first round
BAD_INPUT: Final = ((51, 6), (54, 2))  # day, hours
ROUNDS: Final = 2

Memory = Callable[[Sequence[JudgedIncident]], VerdictMemory]
Alarm = tuple[datetime, Incident, list[Fault]]  # when it was put on the list, as it was then, the faults that it is about


class Lost:
    """Which fault each lost job fell to, by its reference."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}

    def by_change(self, records: Records, change: Callable[[], None]) -> None:
        """Put a fault into the records, and note the jobs that it ends otherwise."""
        before, known = records.frame, len(records.faults)
        change()
        if len(records.faults) > known:
            differ = (before["state"] != records.frame["state"]) | (before["end_time"] != records.frame["end_time"]).fill_null(
                False
            )
            self.faults |= dict.fromkeys(records.frame.filter(differ).select(ref_text())["ref"], records.faults[-1])

    def by_node(self, records: Records, fault: Fault) -> None:
        """Note the failed jobs that a sick node got."""
        inside = pl.col("start_time").is_between(fault.since, fault.until) & (pl.col("state") == JobState.FAILED.value)
        rows = records.frame.filter(inside)
        hit = pl.Series([bool({*expand_nodes(text or "")} & fault.subjects) for text in rows["node_list"]], dtype=pl.Boolean)
        self.faults |= dict.fromkeys(rows.filter(hit).select(ref_text())["ref"], fault)


@dataclass(frozen=True)
class Site:
    """A simulated site, and what is known of it: its faults, and which of them each lost job fell to."""

    plan: Plan
    faults: list[Fault]
    lost: dict[str, Fault]

    def faults_of(self, incident: Incident, at: datetime) -> list[Fault]:
        """The faults that an incident is about at a moment: by subject and time, or since most of its lost jobs fell to it."""
        named = [one for one in self.faults if is_about(incident, one) and one.since <= at <= one.until + AFTERWARDS]
        jobs = [self.lost.get(ref) for finding in incident.findings for ref in finding.jobs]
        fell = [one for one, count in Counter(one for one in jobs if one).items() if 2 * count >= len(jobs)]
        return list(dict.fromkeys([*named, *fell]))


def site_of(seed: int) -> Site:
    """The site of a seed with its faults."""
    cluster = replace(cluster_of(seed), seed=seed)
    nodes, start, rng = cluster.nodes, cluster.start, np.random.default_rng([seed, 2012])
    sick = [((2 - number) * nodes // 3, SICK + 28 * number) for number in range(ROUNDS)]
    ill = replace(cluster, faults=tuple(SickNode(node, day * DAY_S, (day + 2) * DAY_S) for node, day in sick))
    records, lost = Records(pl.concat(simulate(ill))), Lost()
    for node, day in sick:
        begin = start + timedelta(days=day)
        fault = Fault("sick node", begin, begin + timedelta(days=2), frozenset({"jobs", "events"}), node_names(node))
        records.faults.append(fault)
        lost.by_node(records, fault)
    bad: list[BadInput] = []
    for number in range(ROUNDS):
        first = start + number * EVERY + timedelta(hours=11)
        cut = [*node_names(*((node + number) % nodes for node in (0, 2, 3)))]
        changes: tuple[Callable[[], None], ...] = (
            partial(nodes_down, records, "one node down", first + timedelta(days=DOWN), [*node_names(1 + 3 * number)]),
            partial(nodes_down, records, "three nodes down at once", first + timedelta(days=POWER_CUT), cut),
            partial(broken_batch, records, first + timedelta(days=BATCH)),
            partial(storage_trouble, records, "storage: jobs time out", first + timedelta(days=TIMEOUTS), JobState.TIMEOUT, rng),
            partial(
                storage_trouble,
                records,
                "storage: jobs out of memory",
                first + timedelta(days=MEMORY),
                JobState.OUT_OF_MEMORY,
                rng,
            ),
        )
        for change in changes:
            lost.by_change(records, change)
        bad += [_bad_input(records, start, (4 + number) % nodes, day + 28 * number, hours) for day, hours in BAD_INPUT]
    plan = Plan(cluster, seed, outages_per_week=1.0, bad_input=tuple(bad), jobs=records.frame)
    return Site(plan, [*records.faults, *grid_outages(plan)], lost.faults)


def _bad_input(records: Records, start: datetime, node: int, day: int, hours: int) -> BadInput:
    bad = BadInput(node, 24 * day + 9, 24 * day + 9 + hours)
    begin, end = (start + timedelta(hours=hour) for hour in (bad.first_hour, bad.last_hour))
    records.faults.append(Fault(f"bad input on a node, {hours} h", begin, end, frozenset({"traces"}), node_names(node)))
    return bad


class Walk:
    """One site walked through finding by finding; with a memory an administrator who knows the truth judges the first alarms."""

    def __init__(self, site: Site, memory: Memory | None = None) -> None:
        self.book, self._site, self._memory, start = IncidentBook(), site, memory, site.plan.spec.start
        self.book.budget = PageBudget(PROMISE, start)
        self._since = start + timedelta(weeks=LEARNING)
        self._answers: dict[int, IncidentAct] = {}  # to come or given, by the number of the incident
        self.verdicts: list[JudgedIncident] = []
        self.alarms: list[Alarm] = []
        self._listed: set[tuple[int, int]] = set()

    def run(self, findings: Sequence[Finding]) -> None:
        """Take all findings, each with the verdicts that were given before it."""
        for finding in findings:
            if self._memory is not None:
                self._judge(finding.known_at)
            for incident in self.book.take([finding], finding.known_at):
                self._note(incident, finding.known_at)

    def _judge(self, now: datetime) -> None:
        """Give the verdicts that are due, on the incidents as they are by then."""
        due = [act for act in self._answers.values() if act.at <= now][len(self.verdicts) :]
        if due and self._memory is not None:
            incidents = {one.id: one for one in self.book}
            self.verdicts += [JudgedIncident(incidents[act.incident], act) for act in due]
            self.book.memory = self._memory(self.verdicts)

    def _note(self, incident: Incident, at: datetime) -> None:
        """Keep an alarm when it is put on the list: at first, and each time it is opened again."""
        key = incident.id, len(incident.reopened_at)
        if incident.is_quiet or key in self._listed or incident.resolved_at is not None or at < self._since:
            return
        self._listed.add(key)
        faults = self._site.faults_of(incident, at)
        self.alarms.append((at, incident, faults))
        if incident.id not in self._answers and len(self._answers) < JUDGED:
            kind = ActKind.CONFIRM if faults else ActKind.DISMISS
            self._answers[incident.id] = IncidentAct(incident.id, at + ANSWERED_AFTER, "root", kind)


def compare(site: Site, findings: Sequence[Finding], memory: Memory = VerdictMemory) -> dict[str, Any]:
    """One site without and with verdicts: false and true alarms of the four weeks after, and which faults were found and sent."""
    without, judging = Walk(site), Walk(site, memory)
    for walk in (without, judging):
        walk.run(findings)
    verdicts, start = judging.verdicts, site.plan.spec.start
    since = verdicts[-1].act.at
    until = since + AFTER
    later = [fault for fault in site.faults if since <= fault.since < until]
    figures = {name: _figures(site, walk, later, (since, until)) for name, walk in (("without", without), ("with", judging))}
    return {
        "weeks_until_judged": round((since - start) / timedelta(weeks=1), 1),
        "whole_weeks": until <= start + timedelta(days=DAYS),
        "confirmed": sum(one.act.kind == ActKind.CONFIRM for one in verdicts),
        "dismissed": sum(one.act.kind == ActKind.DISMISS for one in verdicts),
        "faults": len(later),
        **figures,
    }


def _figures(site: Site, walk: Walk, faults: Sequence[Fault], span: tuple[datetime, datetime]) -> dict[str, Any]:
    judged = [alarm for alarm in walk.alarms if span[0] <= alarm[0] < span[1]]
    false = [incident for _, incident, about in judged if not about]
    pages = [site.faults_of(one, at) for one in walk.book for at in one.paged_at if span[0] <= at < span[1]]
    found = [any(fault in about for _, _, about in judged) for fault in faults]
    sent = [any(fault in about for about in pages) for fault in faults]
    return {
        "false_alarms": len(false),
        "false_of": dict(Counter(f"{one.kinds[0]}/{one.findings[0].subject.kind}" for one in false)),
        "true_alarms": len(judged) - len(false),
        "false_pages": sum(not about for about in pages),
        "pages": len(pages),
        "found": sum(found),
        "sent": sum(sent),
        "missed": sorted(fault.name for fault, hit in zip(faults, found, strict=True) if not hit),
    }


def run(seed: int, _progress: Progress) -> dict[str, Any]:
    """One site."""
    site = site_of(seed)
    return {"seed": seed, "nodes": site.plan.spec.nodes, **compare(site, site_findings(site.plan))}


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All sites together."""
    total = {
        name: {
            key: sum(one[name][key] for one in runs)
            for key in ("false_alarms", "true_alarms", "false_pages", "pages", "found", "sent")
        }
        for name in ("without", "with")
    }
    faults = sum(one["faults"] for one in runs)
    return {
        "sites": len(runs),
        "verdicts": {key: sum(one[key] for one in runs) for key in ("confirmed", "dismissed")},
        "faults": faults,
        **total,
        "false_alarms_left": round(total["with"]["false_alarms"] / max(1, total["without"]["false_alarms"]), 3),
        "false_pages_left": round(total["with"]["false_pages"] / max(1, total["without"]["false_pages"]), 3),
        "recall": {name: round(total[name]["found"] / max(1, faults), 3) for name in total},
        "recall_sent": {name: round(total[name]["sent"] / max(1, faults), 3) for name in total},
        "sites_halved": sum(2 * one["with"]["false_alarms"] <= one["without"]["false_alarms"] for one in runs),
    }


def main() -> None:
    """Run the seeds, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    add_workers(parser)
    options = parser.parse_args()
    runs = list(engine_of(options).map(run, options.seeds, name=lambda seed: f"seed {seed}"))
    answer = {"seeds": options.seeds, **summary(runs)}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[",".join(map(str, options.seeds))] = {**answer, "runs": runs}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for key, value in answer.items():
        print(f"{key:20} {value}")


if __name__ == "__main__":
    main()
