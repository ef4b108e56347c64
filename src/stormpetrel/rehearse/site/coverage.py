"""What a rehearsal came to: of each kind and severity which share was seen, how late, and what would not be seen, in words.

Trial … -> coverage_of -> kind -> severity -> Figures; -> holes_of -> sentences.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stormpetrel.rehearse.site.injection import SEVERITIES, Injection

SEEN_FROM: Final = 0.5  # share of the trials from which a kind of fault counts as seen
# What each fault is to a person: the subject of "… would not be seen here".
PHRASES: Final[dict[str, str]] = {
    "node_eats_jobs": "a node that fails the jobs it gets",
    "node_down": "a node that goes down with its jobs",
    "storage_gone": "storage that is gone, so that jobs fail at their start",
    "batch_fails": "a batch of one user that fails",
    "application_broken": "an application that is broken for all its users",
    "timeout_wave": "a wave of jobs that reach their time limit",
    "oom_wave": "a wave of jobs that run out of memory",
    "scheduler_stalled": "a scheduler that starts nothing",
    "node_collapse": "nodes of one site that collapse",
    "submit_unresponsive": "a submit host that hardly answers",
    "disconnect_storm": "a storm of disconnected jobs",
    "black_hole": "a node that swallows the queue",
    "slow_storage": "storage that becomes slow",
    "submit_host_silent": "a submit host that says nothing",
    "cluster_silent": "a cluster that says nothing",
    "cpu_slow_storage": "storage that becomes slow, in the CPU traces of a node",
    "bad_io": "a job whose threads wait for data that does not come",
    "hung_allreduce": "an MPI job that hangs in a collective call",
    "runaway_system": "a node that spends its time in the kernel",
    "throttled_cpu": "a throttled CPU",
    "silent_idle": "a job that does nothing any more",
    "frozen_counter": "an exporter whose counters stand still",
    "straggler": "a straggler in an MPI job",
    "stuck_thread": "a stuck thread",
    "thrashing": "a node that thrashes",
    "noisy_neighbour": "a noisy neighbour on the same node",
    "half_node_gone": "a node of which half the CPUs do nothing",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault and when it was seen and sent, in seconds after its beginning; None: not at all."""

    injection: Injection
    seen_s: float | None
    paged_s: float | None
    may_page: bool = True  # whether there was history enough by then for anything but a rule's own page to be sent


@dataclass(frozen=True, slots=True)
class Figures:
    """Of n faults: the share that was listed, and sent; the median delay (s) of those that were.

    `paged` is None where there was too little history for a budget when they began.
    """

    recall: float
    delay_s: float | None
    n: int
    paged: float | None
    paged_delay_s: float | None


Coverage = Mapping[str, Mapping[str, Figures]]


def coverage_of(trials: Iterable[Trial]) -> dict[str, dict[str, Figures]]:
    """Return the figures by kind, in the order of `PHRASES`, and by severity."""
    cells: dict[str, dict[str, list[Trial]]] = {}
    order = {kind: place for place, kind in enumerate(PHRASES)}
    for trial in trials:
        cells.setdefault(trial.injection.kind, {}).setdefault(trial.injection.severity, []).append(trial)
    return {
        kind: {severity: _figures(by_severity[severity]) for severity in SEVERITIES if severity in by_severity}
        for kind, by_severity in sorted(cells.items(), key=lambda cell: order.get(cell[0], len(order)))
    }


def holes_of(coverage: Coverage, missing: Sequence[str], phrases: Mapping[str, str] = PHRASES) -> list[str]:
    """Return what would not be seen on this site, a sentence each: first what was tried, then what could not be."""
    holes = []
    for kind, by_severity in coverage.items():
        unseen = [severity for severity, figures in by_severity.items() if figures.recall < SEEN_FROM]
        if not unseen:
            continue
        tried = sum(by_severity[severity].n for severity in unseen)
        seen = sum(round(by_severity[severity].recall * by_severity[severity].n) for severity in unseen)
        which = "" if len(unseen) == len(by_severity) else f" ({' or '.join(unseen)})"
        phrase = phrases.get(kind, kind.replace("_", " "))
        words = "would not be seen here" if not seen else "would mostly not be seen here"
        holes.append(f"{phrase[0].upper()}{phrase[1:]}{which} {words}: {seen} of {tried}.")
    return [*holes, *missing]


def _figures(trials: Sequence[Trial]) -> Figures:
    seen = [trial.seen_s for trial in trials if trial.seen_s is not None]
    sent = [trial.paged_s for trial in trials if trial.paged_s is not None]
    return Figures(
        recall=len(seen) / len(trials),
        delay_s=statistics.median(seen) if seen else None,
        n=len(trials),
        paged=len(sent) / len(trials) if any(trial.may_page for trial in trials) else None,
        paged_delay_s=statistics.median(sent) if sent else None,
    )
