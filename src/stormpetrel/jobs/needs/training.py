"""Training of needs and waits on a site's jobs: models of memory, run time and the queue, and the policy of allocation.

job frame -> train_outlook -> TrainedOutlook. NeedsTraining.fit_at(moment) -> NeedsModel; advance(until) -> what jobs that came
since would have been granted. The evaluation walks through a log with it block by block, a site walks through its latest jobs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.allocation import Allocation, PastForecasts, Policy, room_of, tune
from stormpetrel.jobs.needs.features import narrowest
from stormpetrel.jobs.needs.forecast import UseForecast
from stormpetrel.jobs.needs.model import FEWEST_JOBS, NeedsModel
from stormpetrel.jobs.needs.past_use import RESOURCES, TIME, PastUse, UseTable, use_table
from stormpetrel.jobs.wait.model import WaitModel
from stormpetrel.jobs.wait.training import queue_log, train_waits

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Matrix = NDArray[np.float32]

BLOCK: Final = 0.05  # of the log, between two fits
TUNED_ON: Final = 0.15  # of the log, before the block that is judged or served
_SMALL_LOG: Final = 5_000  # jobs below which a block is half as long: a workflow's tasks change as it goes on
_USUAL_RUN_S: Final = 3600.0  # of a job that nobody knows anything about
_MOST_TUNED: Final = 8_000
MOST_JOBS: Final = 200_000  # the latest: what was earlier is forgotten by then


@dataclass(frozen=True, slots=True)
class TrainedOutlook:
    """Models of what jobs need and how long they wait, as far as the jobs tell; `missing` says why one is not there."""

    needs: dict[str, NeedsModel] = field(default_factory=dict)
    wait: WaitModel | None = None
    missing: dict[str, str] = field(default_factory=dict)


def train_outlook(jobs: pl.DataFrame, *, now: float, seed: int = 0, metadata: dict[str, Any] | None = None) -> TrainedOutlook:
    """Train what these jobs are enough for; `now` in Unix seconds."""
    jobs = jobs.sort("submit_time", maintain_order=True).tail(MOST_JOBS)
    needs: dict[str, NeedsModel] = {}
    missing: dict[str, str] = {}
    for resource in RESOURCES:
        try:
            needs[resource] = train_needs(jobs, resource, seed=seed, metadata=metadata)
        except NotEnoughJobsError as error:
            missing[resource] = error.what
    wait = None
    try:
        wait = train_waits(queue_log(jobs), now, seed=seed)
        wait.metadata = dict(metadata or {})
    except NotEnoughJobsError as error:
        missing["wait"] = error.what
    return TrainedOutlook(needs, wait, missing)


def train_needs(jobs: pl.DataFrame, resource: str, *, seed: int = 0, metadata: dict[str, Any] | None = None) -> NeedsModel:
    """The model of one resource to serve from now on: walked through the log as the evaluation does, its latest part at once."""
    count = int(use_table(jobs, resource).judged.sum())
    if count < FEWEST_JOBS:
        raise NotEnoughJobsError(f"{count} ended jobs tell how much {resource} they used: at least {FEWEST_JOBS} are needed.")
    training = NeedsTraining(use_log(jobs, resource), seed)
    usable = training.log.submit[training.log.judgeable]
    if usable.size:
        with suppress(NotEnoughJobsError):  # too few before: nothing to tune a policy on
            training.fit_at(float(np.quantile(usable, 1.0 - TUNED_ON)), tuned=False)
            training.advance(np.inf, judged=False)
    model = training.fit_at(np.inf, tuned=True)
    model.metadata = dict(metadata or {})
    return model


@dataclass(frozen=True, slots=True)
class UseLog:
    """A log in the order of submission, with what each job asked for and used, and what was known of past use.

    `expected_weight` is what a unit is expected to be multiplied with to be waste: cores for time, the usual run time of such
    jobs for memory; nothing that is known only when a job has ended.
    """

    resource: str
    jobs: pl.DataFrame
    table: UseTable
    readings: Matrix
    expected_weight: Floats

    @property
    def submit(self) -> Floats:
        """When each job was submitted, in microseconds; NaN where nobody knows."""
        return self._times("submit_time")

    @property
    def end(self) -> Floats:
        """When each job ended, in microseconds; NaN where it has not."""
        return self._times("end_time")

    @property
    def judgeable(self) -> Flags:
        """Which jobs are judged: those that tell their use, and their request where the log tells requests at all."""
        judged, asks = self.table.judged, ~np.isnan(self.table.request)
        return judged & asks if (judged & asks).any() else judged

    def _times(self, name: str) -> Floats:
        return self.jobs[name].dt.epoch("us").cast(pl.Float64).fill_null(np.nan).to_numpy()


def use_log(jobs: pl.DataFrame, resource: str) -> UseLog:
    """The log as the model of one resource sees it."""
    jobs = jobs.sort("submit_time", maintain_order=True)
    table = use_table(jobs, resource)
    readings = PastUse(resource).sweep(jobs, table)
    runs = readings if resource == TIME else PastUse(TIME).sweep(jobs, use_table(jobs, TIME))
    return UseLog(resource, jobs, table, readings, expected_weight(resource, table, runs))


def expected_weight(resource: str, table: UseTable, run_readings: Matrix) -> Floats:
    """What a unit of each job is expected to be multiplied with to be waste, from what is known when it is submitted."""
    if resource == TIME:
        return table.cores
    typical = np.exp(narrowest(run_readings, "median"))
    return np.where(np.isnan(typical), _USUAL_RUN_S, typical)


class NeedsTraining:
    """Fits along a log: the policy of each model is tuned on jobs that earlier ones forecast before they ran."""

    def __init__(self, log: UseLog, seed: int = 0) -> None:
        self.log, self._seed = log, seed
        self.is_small = bool(log.judgeable.sum() < _SMALL_LOG)
        self.block = BLOCK / 2 if self.is_small else BLOCK
        self._submit, self._end, self._usable = log.submit, log.end, log.judgeable
        self._granted = np.full(log.jobs.height, np.nan)
        self._forecasts: list[tuple[NDArray[np.int64], UseForecast]] = []
        self._model: NeedsModel | None = None
        self._fitted_at = -np.inf

    def fit_at(self, now: float, *, tuned: bool) -> NeedsModel:
        """A model of what had ended by `now` (microseconds), with a policy if `tuned`."""
        log = self.log
        model = NeedsModel(log.resource, seed=self._seed).fit(log.readings, log.table, log.jobs, self._end < now)
        if tuned:
            model.policy = self._tune(now)
        self._model, self._fitted_at = model, now
        return model

    def advance(self, until: float, *, judged: bool) -> tuple[NDArray[np.int64], Allocation, UseForecast]:
        """The jobs that were submitted from the latest fit until then, what each would have been granted, and its forecast."""
        assert self._model is not None
        log = self.log
        now = self._usable & (self._submit >= self._fitted_at) & (self._submit < until)
        rows = np.flatnonzero(now)
        forecast = self._model.forecast(log.readings, log.table, log.jobs, now)
        allocation = self._model.policy.apply(forecast, log.readings[rows], log.table.request[rows], log.expected_weight[rows])
        if judged:
            self._granted[rows] = allocation.granted
        every = max(1, rows.size // (_MOST_TUNED // 4))
        self._forecasts.append((rows[::every], UseForecast(forecast.amounts[::every], forecast.chance[::every])))
        self._forecasts = self._forecasts[-round(TUNED_ON / BLOCK) * 2 :]
        return rows, allocation, forecast

    def _tune(self, now: float) -> Policy:
        """The policy for what comes now, from forecasts of the latest blocks whose jobs have ended."""
        log = self.log
        rows, amounts, chance = [], [], []
        width = max((part.amounts.shape[1] for _, part in self._forecasts), default=0)
        for places, part in self._forecasts:
            ended = self._end[places] < now
            missing = width - part.amounts.shape[1]
            rows.append(places[ended])
            amounts.append(np.pad(part.amounts[ended], ((0, 0), (0, missing)), mode="edge"))
            chance.append(np.pad(part.chance[ended], ((0, 0), (0, missing))))
        if not rows:
            return Policy(np.inf)
        which = np.concatenate(rows)
        past = PastForecasts(
            UseForecast(np.concatenate(amounts), np.concatenate(chance)),
            log.readings[which],
            log.table.request[which],
            log.table.used[which],
            log.table.weight(log.resource)[which],
            log.expected_weight[which],
        )
        return tune(past, log.resource, excess=self._excess(now))

    def _excess(self, now: float) -> float:
        """By how much more jobs than allowed were given too little so far, of those that have ended."""
        table = self.log.table
        rows = np.flatnonzero(~np.isnan(self._granted) & (self._end < now))
        if rows.size < FEWEST_JOBS:
            return 0.0
        under, own = (float((amounts[rows] < table.used[rows]).mean()) for amounts in (self._granted, table.request))
        return under - room_of(self.log.resource, own, rows.size)
