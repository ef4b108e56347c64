"""The outlook of one job: what it will need of memory and time and how long it will wait, from the models and the past of a site.

models + past jobs -> JobOutlook -> needs (NeedEstimate), wait (WaitEstimate). A job that is held, depends on another or
waits for a reservation has no wait that the queue could tell: the estimate says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.advice.outlook_past import OutlookPast
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.jobs.needs.forecast import LEVELS
from stormpetrel.jobs.needs.model import NeedsModel
from stormpetrel.jobs.needs.past_use import CPUS, GPU_MEMORY, GPUS, NARROWEST_FIRST, SPACE_NAMES, SPACES, TIME, request_table
from stormpetrel.jobs.needs.training import expected_weight
from stormpetrel.jobs.wait.model import WaitModel
from stormpetrel.jobs.wait.queue_state import queue_features
from stormpetrel.jobs.wait.queue_state import request_table as wait_request
from stormpetrel.jobs.wait.training import expected_run, last_of_shape, levels_now
from stormpetrel.records.arrays import Matrix
from stormpetrel.records.pending_reasons import WaitKind

_NO_TURN: Final = {
    WaitKind.NEVER: "it cannot run as it stands",
    WaitKind.HELD: "it is held",
    WaitKind.PARENT: "it waits for another job",
    WaitKind.RESERVATION: "it waits for a reservation",
    WaitKind.BEGIN_TIME: "it must not begin before its time",
}
_WIDEST_OWN: Final = "user_family"  # wider groups are not "the same work"
OF_APPLICATION: Final = "others' jobs of this application"
OF_OTHERS: Final = "jobs of others"
_FEWEST_OF_OTHERS: Final = 3
_OTHERS_WITHIN: Final = 4.0  # times the request: beyond that, others' runs say more about them than about this job
_SPREAD: Final = 10.0  # p90 ÷ p50 of a job without a request, above which its use is anything


@dataclass(frozen=True, slots=True)
class NeedEstimate:
    """What a job will use of one resource (bytes, seconds or a number), with these probabilities at most.

    `short` is the probability that it needs more than it asks for (None: it does not say what), `granted` the amount that past
    jobs show to waste least, `similar` how many ended runs of the same work are behind it (0: others' jobs are) and `group` who.
    """

    resource: str
    request: float | None
    p50: float
    p90: float
    p99: float
    short: float | None
    granted: float
    similar: int
    group: str
    typical: float | None = None  # what half of these runs used at most, and all of them; None without any
    most: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether past runs tell it: of the same work, of its application by others, or all jobs stay below such a request."""
        if self.similar:
            return True
        widest = _OTHERS_WITHIN if self.group == OF_APPLICATION else 1.0
        return self.p90 < widest * self.request if self.request is not None else self.p90 <= _SPREAD * self.p50


@dataclass(frozen=True, slots=True)
class WaitEstimate:
    """When a job will start: it waits at most so long in all with these probabilities (seconds); or why nobody can say."""

    p50_s: float | None
    p90_s: float | None
    waited_s: float = 0.0
    reason: str | None = None


class JobOutlook:
    """What the models of needs and waits say about jobs, over what was known of a site's jobs at `now`."""

    def __init__(
        self, needs: Mapping[str, NeedsModel], wait: WaitModel | None, past: pl.DataFrame | OutlookPast, *, now: datetime
    ) -> None:
        if isinstance(past, pl.DataFrame):
            past = OutlookPast.of(past, needs, follow_from(wait, now))
        self._needs, self._wait, self._now = dict(needs), wait, now
        self._past_use, self._queue = past.past_use, past.queue
        self._levels = () if wait is None else levels_now(wait, past.followed(), now.timestamp())

    def needs(self, job: pl.DataFrame) -> dict[str, NeedEstimate]:
        """What a job (a frame of one row) will need of each resource that has a model; of GPUs only if it asks for some."""
        runs = self._past_use[TIME].read(job, [self._now.timestamp()])
        has_gpus = any((job[name].item() or 0) > 0 for name in ("req_gpus", "gpus"))
        resources = [resource for resource in self._needs if has_gpus or resource not in (GPUS, GPU_MEMORY)]
        estimates = {resource: self._need(job, resource, runs) for resource in resources}
        return {resource: estimate for resource, estimate in estimates.items() if estimate is not None}

    def _need(self, job: pl.DataFrame, resource: str, runs: Matrix) -> NeedEstimate | None:
        table = request_table(job, resource)
        readings = runs if resource == TIME else self._past_use[resource].read(job, [self._now.timestamp()])
        model = self._needs[resource]
        forecast = model.forecast(readings, table, job)
        if not np.isfinite(forecast.amounts).all():
            return None  # neither a request nor a past: nothing is known at all
        p50, p90, p99 = (float(value) for value in forecast.quantiles(LEVELS)[0])
        request = None if np.isnan(table.request[0]) else float(table.request[0])
        if resource in (CPUS, GPUS) and request is not None:
            p50, p90, p99 = (min(value, request) for value in (p50, p90, p99))  # no job keeps more busy than it has
        weight = expected_weight(resource, table, runs)
        granted = float(model.policy.apply(forecast, readings, table.request, weight).granted[0])
        short = None if request is None else float(forecast.chance_of_more(table.request)[0])
        similar, group, typical, most = _same_work(readings)
        return NeedEstimate(resource, request, p50, p90, p99, short, granted, similar, group, typical, most)

    def wait(self, job: pl.DataFrame) -> WaitEstimate | None:
        """How long a job (a frame of one row) waits from its submission on; None for one that has started, or without a model.

        One that has waited for a while is told what a job that is submitted now would be told, from now on: its own past in the
        queue says less than what the queue is like now (docs/log.md).
        """
        record = job.row(0, named=True)
        if self._wait is None or record["start_time"] is not None or record["end_time"] is not None:
            return None
        reason = _no_turn(record)
        waited_s = max(0.0, (self._now - record["submit_time"]).total_seconds())
        if reason is not None:
            return WaitEstimate(None, None, waited_s, reason)
        now, table = self._now.timestamp(), wait_request(job)
        run_s = expected_run(self._past_use[TIME].read(job, [now]), table)
        readings = self._queue.read(job, now)
        features = queue_features(readings, job, table, run_s)
        p50, p90 = (float(each) for each in self._wait.quantiles(features, last_of_shape(readings), self._levels)[0])
        return WaitEstimate(waited_s + p50, waited_s + p90, waited_s)


def follow_from(wait: WaitModel | None, now: datetime) -> float:
    """Since when jobs are followed, in Unix seconds: those from before were known when the model was fitted."""
    return now.timestamp() if wait is None else min(wait.fitted_until_, now.timestamp())


class OneOutlook(JobOutlook):
    """The same outlook for one request: what is asked again about the same frame is not worked out again."""

    def __init__(self, outlook: JobOutlook) -> None:
        self._outlook = outlook
        self._needs_of: tuple[pl.DataFrame, dict[str, NeedEstimate]] | None = None
        self._wait_of: tuple[pl.DataFrame, WaitEstimate | None] | None = None

    def needs(self, job: pl.DataFrame) -> dict[str, NeedEstimate]:
        """What a job (a frame of one row) will need of each resource that there is a model of."""
        if self._needs_of is None or self._needs_of[0] is not job:
            self._needs_of = job, self._outlook.needs(job)
        return self._needs_of[1]

    def wait(self, job: pl.DataFrame) -> WaitEstimate | None:
        """How long a job (a frame of one row) waits; the first that is asked about is remembered, variants of it are not."""
        if self._wait_of is None:
            self._wait_of = job, self._outlook.wait(job)
        return self._wait_of[1] if self._wait_of[0] is job else self._outlook.wait(job)


def _no_turn(record: Mapping[str, Any]) -> str | None:
    """Why the queue cannot say when a job starts; None where it can."""
    waiting = why_waiting(dict(record), None)
    if waiting is not None and waiting.kind in _NO_TURN:
        return f"No estimate of the start: {_NO_TURN[WaitKind(waiting.kind)]}."
    return "No estimate of the start: it is held." if record.get("state") == "HELD" else None


def _same_work(readings: Matrix) -> tuple[int, str, float | None, float | None]:
    """How many ended runs of the same work are known, who they are, and the median and most of what they used.

    0 where only others' jobs are known.
    """
    from stormpetrel.jobs.needs.past_use_kernel import N_READINGS, READINGS

    for space in NARROWEST_FIRST[: NARROWEST_FIRST.index(_WIDEST_OWN) + 1]:
        at = SPACE_NAMES.index(space) * N_READINGS
        count = float(np.expm1(readings[0, at]))
        if count >= 1.5:
            typical, most = (float(np.exp(readings[0, at + READINGS.index(name)])) for name in ("median", "max"))
            return round(count), SPACES[SPACE_NAMES.index(space)].words, typical, most
    count = float(np.expm1(readings[0, SPACE_NAMES.index("family") * N_READINGS]))
    return 0, OF_APPLICATION if count >= _FEWEST_OF_OTHERS - 0.5 else OF_OTHERS, None, None
