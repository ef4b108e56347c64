"""The published study on the windows that a site has kept, with the one model that is in use: seconds instead of hours.

Windows, Scorer, since when the model did not learn -> study_in_use -> TraceStudy; Windows -> joined_traces -> Traces, so that
spectra and sampling intervals can be studied as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import UNKNOWN_JOB, Indices, Rates, Trace
from stormpetrel.records.windows import Windows
from stormpetrel.traces.campaign_splits import Cut, SplitWindows
from stormpetrel.traces.evaluation import evaluate
from stormpetrel.traces.networks.architecture import Architecture, Scorer
from stormpetrel.traces.study import TraceStudy

ALONE: Final = (
    "takes an ensemble of its own: stormpetrel traces evaluate CAMPAIGNS --keep DIR, then report --campaigns CAMPAIGNS "
    "--trace-models DIR."
)
_GRID_TOLERANCE: Final = 0.01  # of a step


def study_in_use(scorer: Scorer, windows: Windows, learnt_until_s: float | None, *, seed: int = 0) -> TraceStudy:
    """Judge a model on the windows that begin after it was trained, beside baselines that learn from those before.

    A model that has learnt nothing here (`learnt_until_s` None: the shipped one) is judged on the later half. ModelError where
    one of the parts has no normal window.
    """
    began = time.monotonic()
    cut_s = float(np.median(windows.start_s)) if learnt_until_s is None else learnt_until_s
    later = windows.start_s > cut_s
    train, test = windows.take(~later), windows.take(later)
    if not len(train.of_normal()) or not len(test.of_normal()):
        raise ModelError(
            "No normal window was recorded after the model was trained, or none before: it cannot be judged.",
            hint="Wait for more windows, or study campaigns: stormpetrel traces evaluate PATH",
        )
    kind = scorer.settings.architecture
    why: dict[Architecture, str] = {
        other: ALONE for other in Architecture if other is not kind and other is not Architecture.FAST
    }
    evaluation = evaluate({kind: [scorer]}, train, test, seed=seed, why=why)
    split = SplitWindows(train, test.take(slice(0, 0)), test, Cut(windows.window_s))
    return TraceStudy(split, {kind: [scorer]}, evaluation, {kind: None}, {"training": {}, "judging": time.monotonic() - began})


def joined_traces(windows: Windows) -> list[Trace]:
    """Windows that follow each other without a break, put together again: a trace for each stretch of time of each recording.

    Windows that do not lie on the grid of the first of their stretch are left out; a thread that was not seen has a gap. Of a
    window in which a thread changed hands nobody knows the job.
    """
    return [trace for number in np.unique(windows.trace) for trace in _of_recording(windows.take(windows.trace == number))]


def _of_recording(windows: Windows) -> Iterator[Trace]:
    starts = np.unique(windows.start_s)
    breaks = np.flatnonzero(np.diff(starts) > windows.window_s + _GRID_TOLERANCE * windows.step_s) + 1
    for stretch in np.split(starts, breaks):
        yield _of_stretch(windows.take((windows.start_s >= stretch[0]) & (windows.start_s <= stretch[-1])), float(stretch[0]))


def _of_stretch(windows: Windows, first_s: float) -> Trace:
    offset = (windows.start_s - first_s) / windows.window_s
    on_grid = np.abs(offset - np.round(offset)) * windows.steps < _GRID_TOLERANCE
    windows, place = windows.take(on_grid), np.round(offset[on_grid]).astype(np.intp)
    threads, thread = np.unique(np.stack([windows.node, windows.cpu]), axis=1, return_inverse=True)
    shape = (int(place.max()) + 1, windows.steps, threads.shape[1])
    rates: Rates = np.full((*shape, 4), np.nan, dtype=np.float32)  # (windows, steps, threads, modes)
    rates[place, :, thread] = windows.rates
    job: Indices = np.full(shape, UNKNOWN_JOB, dtype=np.int32)
    job[place, :, thread] = np.maximum(windows.job, UNKNOWN_JOB)[:, None]
    steps = shape[0] * shape[1]
    return Trace(
        name=windows.traces[windows.trace[0]],
        step_s=windows.step_s,
        time_s=first_s + windows.step_s * np.arange(1, steps + 1, dtype=np.float64),
        nodes=tuple(windows.nodes[node] for node in threads[0]),
        cpus=tuple(int(cpu) for cpu in threads[1]),
        rates=rates.reshape(steps, shape[2], 4),
        job=job.reshape(steps, shape[2]),
        jobs=windows.jobs,
    )
