"""The past of an outlook: what jobs have used and how the queue was, taken in span by span, so that a span can be kept in a file.

job frame -> OutlookPast.advance -> past use, queue, and the waits that the levels of a model follow; `to_arrays`, `restore`.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.history import event_times, in_order
from stormpetrel.jobs.history.keys import SIZE_COLUMNS, stand_ins, with_request
from stormpetrel.jobs.needs.past_use import TIME, PastUse, use_table
from stormpetrel.jobs.wait.queue_state import REQUEST_FEATURES, QueueState, WaitTable, feature_names, queue_features, wait_table
from stormpetrel.jobs.wait.training import MOST_FOLLOWED, QueueLog, expected_run
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.records.jobs import JOB_SCHEMA, KEY

_OPEN_SCHEMA: Final = pl.Schema({**{name: JOB_SCHEMA[name] for name in KEY}, "run_s": pl.Float64(), "followed": pl.Int64()})
_TIMES: Final = 3  # submission, start, end


@dataclass
class OutlookPast:
    """What an outlook knows of the jobs of a site.

    Parameters
    ----------
    resources
        What past use is kept of, beside run times.
    follow_from
        Unix seconds: the queue that jobs met which were submitted since then is kept, for levels that follow their waits.
    stand_in
        Which allocated column stands in for a request that the whole log lacks.
    """

    resources: Collection[str]
    follow_from: float
    stand_in: dict[str, str]
    queue: QueueState = field(init=False)
    past_use: dict[str, PastUse] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = QueueState(dict(self.stand_in))
        self.past_use = {resource: PastUse(resource, dict(self.stand_in)) for resource in sorted({*self.resources, TIME})}
        self._open = pl.DataFrame(schema=_OPEN_SCHEMA)
        self._features: Matrix = np.zeros((0, len(feature_names())), np.float32)  # of the jobs that are followed
        self._times: Floats = np.zeros((0, _TIMES))  # when each was submitted, started, ended; NaN: not yet

    @classmethod
    def of(cls, jobs: pl.DataFrame, resources: Collection[str], follow_from: float) -> Self:
        """The past that has taken in everything about these jobs."""
        past = cls(resources, follow_from, stand_ins(jobs))
        past.advance(jobs, since=-np.inf, until=np.inf)
        return past

    def advance(self, jobs: pl.DataFrame, *, since: float, until: float) -> None:
        """Take in what happened to these jobs from `since` to before `until` (Unix seconds), in the order of time.

        `jobs` are all those of which anything happened then; those of which something happened before `since` must be among
        the ones that were open then.
        """
        jobs = in_order(with_request(jobs, self.stand_in))
        table = wait_table(jobs)
        happened = event_times(jobs)[:, [0, 1, 3]]
        with np.errstate(invalid="ignore"):
            events = np.where((happened >= since) & (happened < until), happened, np.nan)
            submitted = ~np.isnan(events[:, 0])
            wanted = submitted & ~(table.end < min(self.follow_from, until))
        runs = self.past_use[TIME].sweep(jobs, use_table(jobs, TIME), wanted, events)
        for resource, use in self.past_use.items():
            if resource != TIME:
                use.sweep(jobs, use_table(jobs, resource), np.zeros(jobs.height, bool), events)
        before = jobs.select(KEY).join(self._open, on=list(KEY), how="left", nulls_equal=True, maintain_order="left")
        run_s = np.where(submitted, expected_run(runs, table), before["run_s"].to_numpy())
        readings = self.queue.sweep(jobs, table, run_s, wanted, events)
        known = np.where(happened < until, happened, np.nan)
        followed = np.flatnonzero(submitted & (table.submit >= self.follow_from))
        number = before["followed"].fill_null(-1).to_numpy().copy()
        number[followed] = len(self._times) + np.arange(followed.size)
        features = queue_features(readings[followed], jobs[followed], table.rows(followed), run_s[followed])
        self._features = np.concatenate([self._features, features])
        self._times = np.concatenate([self._times, known[followed]])
        earlier = np.flatnonzero((number >= 0) & ~submitted)
        self._times[number[earlier]] = known[earlier]
        is_open = pl.Series(submitted | before["run_s"].is_not_null().to_numpy()) & pl.Series(np.isnan(known[:, 2]))
        self._open = jobs.select(KEY).with_columns(run_s=pl.Series(run_s), followed=pl.Series(number)).filter(is_open)
        self._forget_early(MOST_FOLLOWED)

    def _forget_early(self, most: int) -> None:
        """Follow the latest jobs only."""
        early = max(0, len(self._times) - most)
        if early:
            self._features, self._times = self._features[early:], self._times[early:]
            self._open = self._open.with_columns(followed=(pl.col("followed") - early).clip(-1))

    def followed(self) -> QueueLog:
        """The jobs that are followed, as `levels_now` reads them."""
        submit, start, end = self._times.T
        unknown = np.full(len(submit), np.nan)
        readings = self._features[:, : self._features.shape[1] - len(REQUEST_FEATURES)]
        return QueueLog(pl.DataFrame(), WaitTable(submit, start, end, unknown, unknown), self._features, readings)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that it remembers, as plain arrays."""
        content = io.BytesIO()
        self._open.write_ipc(content)
        arrays: dict[str, NDArray[Any]] = {
            "open": np.frombuffer(content.getvalue(), np.uint8),
            "features": self._features,
            "times": self._times,
        }
        for resource, use in self.past_use.items():
            arrays |= use.to_arrays(f"use.{resource}")
        return arrays | self.queue.to_arrays("queue")

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Remember what `to_arrays` has written; KeyError or ValueError where something lacks or cannot be."""
        jobs = pl.read_ipc(io.BytesIO(arrays["open"].tobytes()))
        features, times = np.array(arrays["features"], order="C"), np.array(arrays["times"], order="C")
        good = jobs.schema == _OPEN_SCHEMA and features.dtype == np.float32 and times.dtype == np.float64
        good = good and features.shape == (len(times), len(feature_names())) and times.shape == (len(times), _TIMES)
        if not good or not jobs["followed"].is_between(-1, len(times) - 1).all():
            raise ValueError("what it followed is not whole")
        for resource, use in self.past_use.items():
            use.restore(arrays, f"use.{resource}")
        self.queue.restore(arrays, "queue")
        self._open, self._features, self._times = jobs, features, times


def filled_requests(jobs: pl.DataFrame) -> dict[str, bool]:
    """Which of the columns that decide about stand-ins hold anything: two spans of a log have the same, or not."""
    return {name: jobs[name].null_count() < jobs.height for name in SIZE_COLUMNS}


def stand_ins_of(filled: Mapping[str, bool]) -> dict[str, str]:
    """What `stand_ins` says of jobs with these columns."""
    row = {name: 1 if filled[name] else None for name in SIZE_COLUMNS}
    return stand_ins(pl.DataFrame([row], schema={name: JOB_SCHEMA[name] for name in SIZE_COLUMNS}))
