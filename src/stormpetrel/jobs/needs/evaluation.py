"""Evaluation of needs: what the model would have given each job, block by block in the order of time, beside the baselines.

job frame -> evaluate_needs -> NeedsEvaluation (the JSON of `jobs evaluate --needs`, and one row per judged job). Before each
block the forests are grown on what had ended, and the price is tuned on earlier blocks that were forecast in the same way.

Baselines of allocation: the users' own request, and three rules over what the same work used before.

readings of PastUse + requests -> amounts. None gives more than was requested, and all give the request where nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.allocation import Frontier, PastForecasts, Policy, judge, room_of, tune
from stormpetrel.jobs.needs.features import narrowest
from stormpetrel.jobs.needs.forecast import UseForecast
from stormpetrel.jobs.needs.model import FEWEST_JOBS, NeedsModel
from stormpetrel.jobs.needs.past_use import PastUse, UseTable, use_table
from stormpetrel.learn.splits import ROLLING_CUTS, TIME_CUT
from stormpetrel.records.arrays import Flags, Floats, Matrix
from stormpetrel.records.jobs import job_text

LEVELS: Final = (0.5, 0.9, 0.99)
JUDGED_FROM: Final = {"time": TIME_CUT, "rolling": ROLLING_CUTS[0]}
SMALL_JUDGED_FROM: Final = 0.3  # of a small log: a fifth of a thousand tasks would be chance
BLOCK: Final = 0.05  # of the log, between two fits
TUNED_ON: Final = 0.15  # of the log, before the block that is judged
_SMALL_LOG: Final = 5_000  # jobs below which a block is half as long: a workflow's tasks change as it goes on
_MOST_TUNED: Final = 8_000
REQUEST: Final = "request"
MAX_HEAD_ROOM: Final = 1.2


@dataclass(frozen=True, slots=True)
class NeedsEvaluation:
    """What one evaluation measured: figures of the model and the baselines, coverage of the quantiles, one row per judged job."""

    resource: str
    model: Frontier
    baselines: dict[str, Frontier]
    coverage: dict[str, float]  # by quantile: the share of jobs that used no more, ideally the level itself
    rows: pl.DataFrame
    seconds: float
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """The JSON of `jobs evaluate --needs` (DESIGN: stable, other programs read it)."""
        figures = {
            "model": {**self.model.as_json(), "coverage": self.coverage},
            "baselines": {name: figure.as_json() for name, figure in self.baselines.items()},
        }
        return {"needs": {self.resource: figures}, "seconds": round(self.seconds, 3), "notes": self.notes}


def evaluate_needs(
    jobs: pl.DataFrame,
    resource: str,
    *,
    protocol: str = "time",
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> NeedsEvaluation:
    """Judge allocations on the last fifth of a log (`rolling`: from 60 %, under 5,000 jobs: from 30 % on).

    Nothing is used that was not known at a job's submission.
    """
    began = time.monotonic()
    jobs = jobs.sort("submit_time", maintain_order=True)
    progress("past use")
    table = use_table(jobs, resource)
    readings = PastUse(resource).sweep(jobs, table)
    log = _Log(jobs, table, readings, resource)
    notes = log.notes()
    granted, quantiles = log.walk(JUDGED_FROM[protocol], seed, progress)
    judged = ~np.isnan(granted)
    if not judged.any():
        raise NotEnoughJobsError(
            f"{int(table.judged.sum())} ended jobs tell how much {resource} they used: too few to judge anything.",
            hint="Use a longer log, or one with the memory that jobs used (sacct's MaxRSS, Nextflow's peak_rss).",
        )
    used, weight = table.used[judged], table.weight(resource)[judged]
    amounts = baseline_amounts(readings[judged], table.request[judged])
    coverage = {f"p{round(100 * level)}": float((used <= quantiles[judged, at]).mean()) for at, level in enumerate(LEVELS)}
    rows = jobs.filter(judged).select(job=job_text()).with_columns(
        given=granted[judged], used=used, request=pl.Series(table.request[judged], nan_to_null=True),
        run_s=table.run_s[judged], cores=table.cores[judged],
    )  # fmt: skip
    return NeedsEvaluation(
        resource=resource,
        model=judge(granted[judged], used, weight),
        baselines={name: judge(amount, used, weight) for name, amount in amounts.items()},
        coverage=coverage,
        rows=rows,
        seconds=time.monotonic() - began,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Log:
    """A log in the order of submission, with what each job asked for and used, and what was known of past use."""

    jobs: pl.DataFrame
    table: UseTable
    readings: Matrix
    resource: str

    @property
    def judgeable(self) -> Flags:
        """Which jobs are judged: those that tell their use, and their request where the log tells requests at all."""
        judged, asks = self.table.judged, ~np.isnan(self.table.request)
        return judged & asks if (judged & asks).any() else judged

    def notes(self) -> list[str]:
        judged, asks = self.table.judged, ~np.isnan(self.table.request)
        if judged.any() and not (judged & asks).any():
            return [f"No job says how much {self.resource} it asked for: there is nothing to compare with."]
        silent = int((judged & ~asks).sum())
        return [f"{silent:,} jobs do not say how much {self.resource} they asked for, and are not judged."] if silent else []

    def walk(self, judged_from: float, seed: int, progress: Callable[[str], None]) -> tuple[Floats, Floats]:
        """Given amounts and quantiles of use, of the judged jobs; NaN for the others."""
        submit, end = (
            self.jobs[name].dt.epoch("us").cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("submit_time", "end_time")
        )
        usable, height = self.judgeable, self.jobs.height
        granted, quantiles = np.full(height, np.nan), np.full((height, len(LEVELS)), np.nan)
        if usable.sum() < FEWEST_JOBS + 10:
            return granted, quantiles
        small = usable.sum() < _SMALL_LOG
        block, judged_from = (BLOCK / 2, min(judged_from, SMALL_JUDGED_FROM)) if small else (BLOCK, judged_from)
        shares = np.arange(judged_from - TUNED_ON, 1.0 - 1e-9, block)
        cuts = np.unique(np.quantile(submit[usable], shares))
        past_blocks = _PastForecasts(self, end)
        for number, (cut, until) in enumerate(zip(cuts, [*cuts[1:], np.inf], strict=True)):
            progress(f"block {number + 1} of {len(cuts)}")
            model = NeedsModel(self.resource, seed=seed)
            try:
                model.fit(self.readings, self.table, self.jobs, end < cut)
            except NotEnoughJobsError:
                continue
            now = usable & (submit >= cut) & (submit < until)
            forecast = model.forecast(self.readings, self.table, self.jobs, now)
            if shares[min(number, len(shares) - 1)] >= judged_from - 1e-9:
                policy = past_blocks.tune(cut)
                granted[now] = policy.apply(forecast, self.readings[now], self.table.request[now], self._weight[now]).granted
                past_blocks.granted = granted
                quantiles[now] = forecast.quantiles(LEVELS)
            past_blocks.add(np.flatnonzero(now), forecast)
        return granted, quantiles

    @property
    def _weight(self) -> Floats:
        return self.table.weight(self.resource)


class _PastForecasts:
    """The forecasts of the latest blocks, from which the price is tuned once their jobs have ended."""

    def __init__(self, log: _Log, end: Floats) -> None:
        self._log, self._end = log, end
        self.granted = np.full(log.jobs.height, np.nan)
        self._parts: list[tuple[NDArray[np.int64], UseForecast]] = []

    def add(self, rows: NDArray[np.int64], forecast: UseForecast) -> None:
        """Keep a block's forecasts; of many jobs every so many-th."""
        every = max(1, rows.size // (_MOST_TUNED // 4))
        self._parts.append((rows[::every], UseForecast(forecast.amounts[::every], forecast.chance[::every])))
        self._parts = self._parts[-round(TUNED_ON / BLOCK) * 2 :]

    def tune(self, now: float) -> Policy:
        """The policy for what comes now."""
        log = self._log
        rows, amounts, chance = [], [], []
        width = max((part.amounts.shape[1] for _, part in self._parts), default=0)
        for places, part in self._parts:
            ended = self._end[places] < now
            missing = width - part.amounts.shape[1]
            rows.append(places[ended])
            amounts.append(np.pad(part.amounts[ended], ((0, 0), (0, missing)), mode="edge"))
            chance.append(np.pad(part.chance[ended], ((0, 0), (0, missing))))
        if not rows:
            return Policy(np.inf)
        which = np.concatenate(rows)
        forecast = UseForecast(np.concatenate(amounts), np.concatenate(chance))
        past = PastForecasts(forecast, log.readings[which], log.table.request[which], log.table.used[which], log._weight[which])
        return tune(past, log.resource, excess=self._excess(now))

    def _excess(self, now: float) -> float:
        """By how much more jobs than allowed were given too little so far, of those that have ended."""
        table = self._log.table
        rows = np.flatnonzero(~np.isnan(self.granted) & (self._end < now))
        if rows.size < FEWEST_JOBS:
            return 0.0
        under, own = (float((amounts[rows] < table.used[rows]).mean()) for amounts in (self.granted, table.request))
        return under - room_of(self._log.resource, own, rows.size)


def baseline_amounts(readings: Matrix, request: Floats) -> dict[str, Floats]:
    """What each baseline gives each job.

    `max_of_last`: the most of the last 32 runs × 1.2. `tovar`: the first allocation of Tovar et al. (2018), which costs least if
    whoever needs more is given the most that was seen. `witt`: the 95th percentile of Witt et al. (2019). All over the narrowest
    group of past jobs that is known.
    """
    rules = {
        "max_of_last": MAX_HEAD_ROOM * np.exp(narrowest(readings, "max")),
        "tovar": np.exp(narrowest(readings, "first_allocation")),
        "witt": np.exp(narrowest(readings, "q95")),
    }
    return {REQUEST: request, **{name: np.where(np.isnan(rule), request, np.fmin(rule, request)) for name, rule in rules.items()}}
