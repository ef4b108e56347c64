"""What would have been predicted for jobs of the past, each at its own moments, from what was known then.

JobsAsOf -> judged_jobs -> a risk per job at its latest moment; JobsAsOf with one wanted job -> verdicts -> Verdict per moment.
The command line, the notebook and `why` all ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix, matrix_of
from stormpetrel.jobs.history.history import Readings, event_times, in_order
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, Verdict, known_by
from stormpetrel.jobs.stream import likeliest_failure
from stormpetrel.records.jobs import JobRef
from stormpetrel.records.states import UNFINISHED

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

Progress = Callable[[float], None]  # share of the work that is done

_PREDICTION_COLUMNS: Final = pl.Schema(
    {
        "row": pl.Int64(),
        "moment": pl.String(),
        "risk": pl.Float64(),
        "threshold": pl.Float64(),
        "known": pl.Boolean(),
        "likeliest": pl.String(),
    }
)


@dataclass(frozen=True, slots=True)
class JobsAsOf:
    """All jobs that count, in the order of submission and as known at `as_of`; `wanted` are those to be judged."""

    jobs: pl.DataFrame
    wanted: NDArray[np.bool_]
    as_of: datetime

    def only(self, ref: JobRef) -> JobsAsOf:
        """Return one job and what was there until its last moment: whatever came later cannot have been known."""
        this = self.jobs.select(ref.is_row()).to_series().fill_null(False)
        happened = event_times(self.jobs.filter(this))[:, : len(MOMENTS)]
        last = np.nanmax(happened, initial=-np.inf)
        before = self.jobs["submit_time"].dt.epoch("us") <= last * 1e6
        return JobsAsOf(self.jobs.filter(before), this.filter(before).to_numpy(), self.as_of)


def judged_jobs(
    predictor: JobPredictor, known: JobsAsOf, *, moments: Collection[Moment], progress: Progress = lambda _: None
) -> pl.DataFrame:
    """Return the wanted jobs, each with `moment`, `risk`, `threshold`, `known`, `likeliest` at the latest moment it has seen."""
    predictions = _PREDICTION_COLUMNS.to_frame()
    for number, (moment, rows, features) in enumerate(_features_of(predictor, known, moments), 1):
        model = predictor.models[moment]
        risks = model.predict_proba(features)
        fresh = risks.select("risk", "known").with_columns(
            row=pl.Series(rows, dtype=pl.Int64),
            moment=pl.lit(str(moment)),
            threshold=pl.lit(predictor.threshold_at(moment)),
            likeliest=likeliest_failure(risks, model.failure_outcomes_)[0],
        )
        predictions = pl.concat(
            [predictions, fresh.select(pl.col(name).cast(dtype) for name, dtype in _PREDICTION_COLUMNS.items())]
        )
        progress(number / len(moments))
    latest = predictions.unique("row", keep="last", maintain_order=True)
    numbered = known.jobs.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
    return numbered.join(latest, on="row", how="inner", maintain_order="left").drop("row")


def verdicts(predictor: JobPredictor, known: JobsAsOf) -> Iterator[Verdict]:
    """Yield the verdict on the wanted job at each moment that it has reached, with reasons."""
    for moment, rows, features in _features_of(predictor, known, list(predictor.models)):
        if rows.size:
            yield from predictor.verdicts(features, predictor.profiled(known.jobs[rows])["profile"], moment)


def verdicts_on(site: Site, predictor: JobPredictor, job: pl.DataFrame, *, now: datetime) -> Iterator[Verdict]:
    """Yield the verdict on a job of a site (one row) at each moment that it has reached; the predictor's history must be empty.

    What came after its last moment cannot have been known, and what was before is taken from a snapshot where there is one.
    """
    from stormpetrel.lifecycle.history_snapshot import carry_history, unsettled
    from stormpetrel.lifecycle.job_telemetry import with_telemetry

    job = known_by(job, now)
    if job.is_empty():
        return
    happened = event_times(job)[0, : len(MOMENTS)]
    last = float(np.nanmax(happened))
    cut = carry_history(site, predictor, until=job["submit_time"].item())
    jobs = in_order(known_by(unsettled(site, cut, until=datetime.fromtimestamp(last, UTC)), now))
    done = event_times(jobs) < (-np.inf if cut is None else cut.timestamp())
    advanced = predictor.history.advance(
        predictor.profiled(jobs), done, since=-np.inf, until=last, moments=list(predictor.models)
    )
    this = np.flatnonzero(jobs.select(JobRef.of(job.row(0, named=True)).is_row()).to_series().fill_null(False).to_numpy())
    profiled = predictor.profiled(with_telemetry(site, job))
    for moment, time in zip(MOMENTS, happened, strict=True):
        if moment in predictor.models and time <= now.timestamp():
            of_job = _rows_of(advanced.readings, moment, this)
            features = matrix_of(profiled, of_job, predictor.history, moment, time_zone=predictor.time_zone)
            yield from predictor.verdicts(features, profiled["profile"], moment)


def site_jobs(site: Site, *, now: datetime, last: int | None) -> JobsAsOf:
    """Return the jobs of a site as known at `now`; wanted are those that wait or run, or the `last` N submitted ones."""
    from stormpetrel.lifecycle.job_telemetry import with_telemetry

    jobs = known_by(site.jobs.read_jobs(until=now).collect(), now).sort("submit_time", maintain_order=True)
    jobs = with_telemetry(site, jobs)
    wanted = jobs["state"].is_in([str(state) for state in UNFINISHED]).to_numpy()
    if last:
        wanted = np.arange(jobs.height) >= jobs.height - last
    return JobsAsOf(jobs, wanted, now)


def _features_of(
    predictor: JobPredictor, known: JobsAsOf, moments: Collection[Moment]
) -> Iterator[tuple[Moment, NDArray[np.int64], FeatureMatrix]]:
    """Each moment, the wanted jobs that have reached it, and what was known of them then.

    One sweep per moment, and features of the wanted jobs only: all moments of all jobs at once would take six times the memory.
    """
    profiled = predictor.profiled(known.jobs)
    happened = event_times(known.jobs)
    for column, moment in enumerate(MOMENTS):
        if moment not in moments:
            continue
        history = predictor.empty_history()
        readings = history.sweep(profiled, [moment])
        seen = ~np.isnan(readings.at[moment][:, readings.names.index("site.failed_rate_1h")])
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(known.wanted & seen & (happened[:, column] <= known.as_of.timestamp()))
        yield (
            moment,
            rows,
            matrix_of(profiled[rows], _rows_of(readings, moment, rows), history, moment, time_zone=predictor.time_zone),
        )


def _rows_of(readings: Readings, moment: Moment, rows: NDArray[np.intp]) -> Readings:
    """What was read at one moment for some jobs."""
    return Readings(
        readings.names,
        readings.similarity[rows],
        {moment: readings.at[moment][rows]},
        {at: nodes[rows] for at, nodes in readings.nodes.items()},
    )
