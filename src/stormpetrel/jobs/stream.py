"""The stream: jobs as they come, start, run and end, each judged once at each of its moments.

job frame + predictor -> JobStream; what the table shows now -> advance -> prediction frame. The prediction for a moment depends
on what happened before it, not on when or in how many pieces the stream was fed. When it was written (`predicted_at`, `late`) is
empty: that is known to whoever commits it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix, matrix_of
from stormpetrel.jobs.history.history import Advanced, event_times, in_order
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.outcomes import OUTCOMES
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.jobs.reasons import reasons
from stormpetrel.records.jobs import KEY
from stormpetrel.records.predictions import PREDICTION_SCHEMA

LOOKBACK: Final = timedelta(days=1)  # what is heard of later than this after it happened is history, not news
TOP_REASONS: Final = 8
_BITS: Final = np.array([1, 2, 4, 8], dtype=np.uint8)  # submission, start, two minutes, end
_OVER: Final = 8
Mask = NDArray[np.bool_]
Times = NDArray[np.float64]


class JobStream:
    """A predictor whose history is kept current, and which knows what it has predicted already."""

    def __init__(
        self,
        predictor: JobPredictor,
        *,
        horizon: datetime,
        began: datetime | None = None,
        began_at: Mapping[Moment, datetime] | None = None,
    ) -> None:
        self.predictor = predictor
        self.horizon = horizon  # everything that happened up to here has been taken in
        self.began = began or horizon  # nothing is predicted for moments up to here
        self._silent_until = self._first_prediction_times(began_at or {})
        self._done = pl.DataFrame(schema={**{name: PREDICTION_SCHEMA[name] for name in KEY}, "done": pl.UInt8})

    def _first_prediction_times(self, began_at: Mapping[Moment, datetime]) -> Times:
        """Of each event, up to when nothing is said about it: later where a model came later, for ever where there is none."""
        since = [max(self.began, began_at.get(moment, self.began)) for moment in MOMENTS]
        silent = [then.timestamp() if at in self.predictor.models else np.inf for at, then in zip(MOMENTS, since, strict=True)]
        return np.array([*silent, np.inf])

    @property
    def open_jobs(self) -> int:
        """How many jobs wait or run, as far as the stream has heard."""
        return int((self._done["done"] & _OVER == 0).sum())

    def recall(self, past: pl.DataFrame, predicted: pl.DataFrame | None = None, *, cut: datetime | None = None) -> None:
        """Take in the past up to the horizon, silently; from `cut` on, where the history holds what was before.

        `predicted` (KEY and `moment`) is what was predicted before. A moment of the last day that is missing there was heard of
        late, just before a restart: it is left to the next `advance`, and with it what happened to that job afterwards.
        """
        jobs = in_order(past.filter(pl.col("submit_time") <= self.horizon))
        happened = event_times(jobs)
        is_past = happened <= self.horizon.timestamp()
        missing = np.zeros(is_past.shape, dtype=bool)
        if predicted is not None:
            judged = happened > np.maximum(self._silent_until, (self.horizon - LOOKBACK).timestamp())
            missing[:, :3] = (is_past & judged)[:, :3] & ~_is_predicted(jobs, predicted)
        taken = is_past & ~np.logical_or.accumulate(missing, axis=1)
        done = ~taken if cut is None else ~taken | (happened < cut.timestamp())
        self._take_in(jobs, done, since=-np.inf, until=self.horizon)
        self._remember(jobs, taken)

    def news(self) -> pl.Expr:
        """Which rows of the job table the next `advance` has to see; it may be given others as well."""
        waiting = self._done.filter(pl.col("done") & _OVER == 0)["job_id"].unique()
        return (
            (pl.col("submit_time") > self.horizon - LOOKBACK)
            | (pl.col("start_time") > self.horizon)
            | (pl.col("end_time") > self.horizon)
            | pl.col("job_id").is_in(waiting.implode())
        ).fill_null(False)

    def advance(self, jobs: pl.DataFrame, *, until: datetime, judge: bool = True) -> pl.DataFrame:
        """Take in what has happened up to `until`, in the order of time, and judge each job at each moment that came."""
        jobs = in_order(jobs.filter(pl.col("submit_time") <= until))
        happened, done = event_times(jobs), self._done_of(jobs)
        due = (happened <= until.timestamp()) & ~done
        fresh = due.any(axis=1) & ~self._is_history(jobs, happened, done)
        jobs, happened, done = jobs.filter(fresh), happened[fresh], done[fresh]
        since = self.horizon.timestamp()
        profiled, advanced = self._take_in(jobs, done, since=since, until=until, moments=MOMENTS if judge else ())
        to_judge = advanced.due & (happened > self._silent_until) & judge
        predictions = [_NO_PREDICTION]
        for column, moment in enumerate(MOMENTS):
            rows = np.flatnonzero(to_judge[:, column])
            if rows.size:
                times = happened[rows, column]
                as_of = np.maximum(times, since)
                predictions.append(self._judge(profiled, advanced, moment, rows, times, as_of))
        self.horizon = max(self.horizon, until)
        self._remember(jobs, done | advanced.due)
        return pl.concat(predictions).sort("as_of", "moment_time", "job_id", maintain_order=True)

    def _take_in(
        self, jobs: pl.DataFrame, done: Mask, *, since: float, until: datetime, moments: Collection[Moment] = ()
    ) -> tuple[pl.DataFrame, Advanced]:
        profiled = self.predictor.profiled(jobs)
        history = self.predictor.history
        return profiled, history.advance(profiled, done, since=since, until=until.timestamp(), moments=moments)

    def _judge(
        self, jobs: pl.DataFrame, advanced: Advanced, moment: Moment, rows: NDArray[np.int64], times: Times, as_of: Times
    ) -> pl.DataFrame:
        history, zone = self.predictor.history, self.predictor.time_zone
        features = matrix_of(jobs, advanced.readings, history, moment, time_zone=zone).rows(rows)
        model = self.predictor.models[moment]
        predicted = model.predict_proba(features)
        threshold = self.predictor.threshold_at(moment)
        likeliest, probability = likeliest_failure(predicted, model.failure_outcomes_)
        frame = (
            jobs[rows]
            .select(*KEY, pl.col("profile").cast(pl.Int32))
            .with_columns(
                moment=pl.lit(str(moment)),
                moment_time=_utc(times),
                as_of=_utc(as_of),
                predicted_at=pl.lit(None),
                late=pl.lit(None),
                model_version=pl.lit(self.predictor.versions.get(moment, 0), dtype=pl.Int32),
                risk=predicted["risk"],
                threshold=pl.lit(threshold),
                flagged=pl.Series(self.predictor.flags_of(moment, predicted["risk"].to_numpy())),
                known=predicted["known"],
                likeliest=likeliest,
                likeliest_probability=probability,
                **_reasons(self.predictor, moment, features),
            )
        )
        return frame.select([pl.col(name).cast(dtype) for name, dtype in PREDICTION_SCHEMA.items()])

    def _done_of(self, jobs: pl.DataFrame) -> Mask:
        joined = jobs.select(KEY).join(self._done, on=list(KEY), how="left", nulls_equal=True, maintain_order="left")
        return (joined["done"].fill_null(0).to_numpy()[:, None] & _BITS) > 0

    def _is_history(self, jobs: pl.DataFrame, happened: Times, done: Mask) -> Mask:
        """Jobs that were over before the last day and are not remembered any more."""
        old: Mask = (jobs["submit_time"] <= self.horizon - LOOKBACK).to_numpy()
        before: Mask = np.nanmax(happened, axis=1, initial=-np.inf) <= self.horizon.timestamp()
        return old & before & ~done.any(axis=1)

    def _remember(self, jobs: pl.DataFrame, done: Mask) -> None:
        """Note what is done of these jobs; those that are over and older than a day are dropped."""
        changed = jobs.select(KEY).with_columns(done=pl.Series((done * _BITS).sum(axis=1), dtype=pl.UInt8))
        kept = self._done.join(changed, on=list(KEY), how="anti", nulls_equal=True)
        lives = (pl.col("done") & _OVER == 0) | (pl.col("submit_time") > self.horizon - LOOKBACK)
        self._done = pl.concat([kept, changed]).filter(lives)


_NO_PREDICTION: Final = pl.DataFrame(schema=PREDICTION_SCHEMA)


def _is_predicted(jobs: pl.DataFrame, predicted: pl.DataFrame) -> Mask:
    """Which moments of these jobs have been judged: (job, moment)."""
    keyed = predicted.select(*KEY, "moment").unique().with_columns(yes=pl.lit(True))
    columns = []
    for moment in MOMENTS:
        of_moment = keyed.filter(pl.col("moment") == str(moment)).drop("moment")
        joined = jobs.select(KEY).join(of_moment, on=list(KEY), how="left", nulls_equal=True, maintain_order="left")
        columns.append(joined["yes"].fill_null(False).to_numpy())
    return np.stack(columns, axis=1)


def _utc(seconds: Times) -> pl.Series:
    return pl.Series(np.round(seconds * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))


def likeliest_failure(predicted: pl.DataFrame, failures: Collection[str]) -> tuple[pl.Series, pl.Series]:
    """The failure that each row would most likely be, and its probability; an outcome that is no failure is none."""
    names = [name for name in OUTCOMES if f"p_{name}" in predicted.columns and name in failures]
    if not names:
        return pl.Series([None] * predicted.height, dtype=pl.String), pl.Series([None] * predicted.height, dtype=pl.Float32)
    table = predicted.select(f"p_{name}" for name in names).to_numpy()
    best = table.argmax(axis=1)
    return pl.Series([names[position] for position in best]), pl.Series(table[np.arange(len(best)), best])


def _reasons(predictor: JobPredictor, moment: Moment, features: FeatureMatrix) -> Mapping[str, Any]:
    explained = predictor.models[moment].explain(features)
    of_jobs = [reasons(explained, features, job, top=TOP_REASONS) for job in range(len(features.values))]
    return {
        "base": pl.lit(explained.base),
        "reason_features": pl.Series([[reason.feature for reason in several] for several in of_jobs]),
        "reason_words": pl.Series([[reason.words for reason in several] for several in of_jobs]),
        "reason_contributions": pl.Series([[reason.contribution for reason in several] for several in of_jobs]),
    }
