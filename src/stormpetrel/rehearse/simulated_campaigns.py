"""Simulated campaigns in the layout of recorded ones: for trying things out where no jobs can be run.

numbers of campaigns per split, nodes, minutes, seed -> simulate -> NAME.npz and NAME.json for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import Split, Trace
from stormpetrel.rehearse.campaign_files import Campaign, campaign_facts, free_name, write_campaign
from stormpetrel.simulate.campaigns import campaign_set


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """How many campaigns of which size."""

    folder: Path
    train: int = 3
    validation: int = 1
    test: int = 1
    nodes: int = 5
    threads_per_node: int = 32
    minutes: float = 30.0
    seed: int = 0


def write_simulated(request: SimulationRequest) -> Iterator[Campaign]:
    """Simulate the campaigns and write each; refused before the work if one of their names is taken."""
    counts = {Split.TRAIN: request.train, Split.VALIDATION: request.validation, Split.TEST: request.test}
    if min(counts.values()) < 0 or not any(counts.values()):
        raise UsageError(
            f"{request.train} + {request.validation} + {request.test} campaigns cannot be made.",
            hint="Give --train, --validation and --test numbers of 0 or more, one of them above 0.",
        )
    for split, count in counts.items():
        for number in range(1, count + 1):
            free_name(request.folder, f"{split.value}-{number}", numbered=False)
    traces = campaign_set(
        request.seed,
        train=request.train,
        validation=request.validation,
        test=request.test,
        nodes=request.nodes,
        threads_per_node=request.threads_per_node,
        minutes=request.minutes,
    )
    for trace in traces:
        yield write_campaign(request.folder, trace, _facts(trace, request))


def _facts(trace: Trace, request: SimulationRequest) -> dict[str, object]:
    return {
        **campaign_facts(trace, kind="simulated", seed=request.seed),
        "nodes": request.nodes,
        "threads_per_node": request.threads_per_node,
        "jobs": len(trace.jobs),
        "problems": [],
    }
