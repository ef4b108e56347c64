"""Campaigns on disk: one folder, and for each campaign NAME.npz (the labelled trace) and NAME.json (what is known about it).

Trace, facts -> write_campaign -> both files or neither. A campaign that is there is never written over. Trace, JobRecords ->
label_trace -> the trace with its jobs and their types; write_simulated -> simulated campaigns in the same form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel import __version__
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.traces import IDLE, MODES, NO_JOB, UNKNOWN_JOB, Split, Trace, TraceJob
from stormpetrel.rehearse.plan import GUARD_S
from stormpetrel.rehearse.running import JobRecord
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import SUFFIX, write_trace
from stormpetrel.store.filesystem import writing

_FEWEST_SEEN: Final = 0.5  # a recording with fewer of its steps than this is no recording


def label_trace(
    recorded: Trace,
    records: Sequence[JobRecord],
    *,
    name: str,
    split: Split,
    node: str,
    cpus: Sequence[int],
    guard_s: float = GUARD_S,
) -> Trace:
    """The campaign's threads with the jobs that ran on them; other threads of the recording are left out."""
    threads = _threads_of(recorded, node, cpus)
    begin_s, end_s = recorded.time_s - recorded.step_s, recorded.time_s  # of each step
    job = np.full((recorded.steps, len(cpus)), NO_JOB, dtype=np.int32)
    for record in records:
        over_s = max(record.ended_s, record.planned_end_s)
        around = (end_s > record.started_s - guard_s) & (begin_s < over_s + guard_s)
        job[around[:, None] & _mine(record, cpus)] = UNKNOWN_JOB
    for number, record in enumerate(records):
        inside = (begin_s >= record.started_s + guard_s) & (end_s <= record.sound_until_s - guard_s)
        job[inside[:, None] & _mine(record, cpus)] = number
    labelled = Trace(
        name=name,
        step_s=recorded.step_s,
        time_s=recorded.time_s,
        nodes=tuple(recorded.nodes[place] for place in threads),
        cpus=tuple(cpus),
        rates=np.ascontiguousarray(recorded.rates[:, threads]),
        job=job,
        jobs=tuple(TraceJob(record.job.job_id, record.job.job_type) for record in records),
        split=split,
    )
    _refuse_empty(labelled)
    return labelled.checked()


def compare_with_exporter(ours: Trace, recorded: Trace) -> dict[str, int]:
    """How often the exporter named the same job as our record, or another one, or could not tell; unknown steps do not count."""
    threads = [_names(recorded).index(thread) for thread in _names(ours)]
    exported = _ids(recorded)[recorded.job[:, threads]]  # (steps, threads)
    meant = _ids(ours)[ours.job]
    sure = (ours.job != UNKNOWN_JOB) & ~np.isnan(ours.rates[..., 0])
    unlabelled = sure & (recorded.job[:, threads] == UNKNOWN_JOB)
    agree = sure & ~unlabelled & (exported == meant)
    return {
        "steps_compared": int(sure.sum()),
        "agree": int(agree.sum()),
        "disagree": int((sure & ~unlabelled & ~agree).sum()),
        "not_told": int(unlabelled.sum()),
    }


def summary_by_type(trace: Trace) -> dict[str, dict[str, float]]:
    """For each job type: how many steps of a thread were labelled and seen, and the mean share of each mode in them."""
    names = np.array([*(job.job_type for job in trace.jobs), "unknown", IDLE])  # the last two at -2 and -1
    types: npt.NDArray[np.str_] = names[trace.job]
    seen = ~np.isnan(trace.rates[..., 0])
    table: dict[str, dict[str, float]] = {}
    for job_type in sorted(set(types.ravel().tolist())):
        rows = trace.rates[(types == job_type) & seen]
        means: Mapping[str, float] = dict(zip(MODES, map(float, rows.mean(axis=0)), strict=True)) if len(rows) else {}
        table[job_type] = {"thread_steps": len(rows), **{mode: round(share, 4) for mode, share in means.items()}}
    return table


def _names(trace: Trace) -> list[tuple[str, int]]:
    return list(zip(trace.nodes, trace.cpus, strict=True))


def _ids(trace: Trace) -> npt.NDArray[np.str_]:
    return np.array([*(job.job_id for job in trace.jobs), "unknown", ""])


def _mine(record: JobRecord, cpus: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which threads the job had (threads,)."""
    return np.isin(np.array(cpus), np.array(record.job.cpus))


def _threads_of(recorded: Trace, node: str, cpus: Sequence[int]) -> list[int]:
    names = _names(recorded)
    missing = [cpu for cpu in cpus if (node, cpu) not in names]
    if missing:
        raise SourceFormatError(
            f"The recording has no CPU {', '.join(map(str, missing))} of the node {node[:80]!r}.",
            hint="Was it taken offline, or does the server scrape another machine?",
        )
    return [names.index((node, cpu)) for cpu in cpus]


def _refuse_empty(trace: Trace) -> None:
    seen = float((~np.isnan(trace.rates[..., 0])).mean()) if trace.steps else 0.0
    if seen < _FEWEST_SEEN:
        raise SourceFormatError(
            f"Only {seen:.0%} of the steps of the campaign {trace.name[:80]!r} were recorded.",
            hint="Does the server scrape every step, and is the machine so busy that scrapes fail?",
        )


FORMAT_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign that was written."""

    path: Path
    facts: dict[str, Any]


def campaign_facts(trace: Trace, *, kind: str, seed: int) -> dict[str, Any]:
    """The facts that every campaign has; `kind` says where it comes from (`recorded`, `simulated`)."""
    return {
        "format_version": FORMAT_VERSION,
        "stormpetrel": __version__,
        "kind": kind,
        "name": trace.name,
        "split": trace.split.value if trace.split else "",
        "seed": seed,
        "step_s": trace.step_s,
        "steps": trace.steps,
        "types": summary_by_type(trace),
    }


def free_name(folder: Path, name: str, *, numbered: bool) -> str:
    """A name that no campaign in the folder has; `numbered` asks for the first free of `name-1`, `name-2` and so on."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:100]!r} is no name for a campaign.", hint="Letters, digits, dots, dashes; at most 80.")
    if numbered:
        return next(f"{name}-{number}" for number in range(1, 1_000_000) if not _taken(folder, f"{name}-{number}"))
    if _taken(folder, name):
        raise UsageError(f"There is a campaign {name} in {folder} already.", hint="Choose another --name; none is written over.")
    return name


def write_campaign(folder: Path, trace: Trace, facts: dict[str, Any]) -> Campaign:
    """Write the trace and its facts, both or neither; a campaign that is there is never written over."""
    path = folder / f"{trace.name}{SUFFIX}"
    with writing(folder, doing="write a campaign"):
        folder.mkdir(parents=True, exist_ok=True)
        if _taken(folder, trace.name):
            raise UsageError(f"There is a campaign {trace.name} in {folder} already.", hint="None is written over.")
        with writing_private(path.with_suffix(".json")) as described:
            described.write((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
            write_trace(trace, path)
    return Campaign(path, facts)


def _taken(folder: Path, name: str) -> bool:
    return any((folder / f"{name}{suffix}").exists() for suffix in (SUFFIX, ".json"))


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
