"""Labels of a recorded campaign: which job ran on a thread at each step, from the campaign's own record.

Trace as recorded + JobRecords -> label_trace -> Trace with jobs and types. Within the guard around each start and end, and after
a job died, nobody vouches for a thread: its steps are unknown. What the exporter said about the same threads is compared, and not
believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.traces import IDLE, MODES, NO_JOB, UNKNOWN_JOB, Split, Trace, TraceJob
from stormpetrel.rehearse.plan import GUARD_S
from stormpetrel.rehearse.running import JobRecord

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
    told = _ids(recorded)[recorded.job[:, threads]]  # (steps, threads)
    meant = _ids(ours)[ours.job]
    sure = (ours.job != UNKNOWN_JOB) & ~np.isnan(ours.rates[..., 0])
    not_told = sure & (recorded.job[:, threads] == UNKNOWN_JOB)
    agree = sure & ~not_told & (told == meant)
    return {
        "steps_compared": int(sure.sum()),
        "agree": int(agree.sum()),
        "disagree": int((sure & ~not_told & ~agree).sum()),
        "not_told": int(not_told.sum()),
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
