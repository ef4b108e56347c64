"""What is known of a user's other jobs when a job is submitted: the input of the sequence model of `jobs_sequence`.

job frame -> PastEvents -> events of each job as numbers, (job, event, number), oldest first.

Of an ended job the end is an event, with its outcome. Of one that is still pending or running the latest thing known is one: its
submission or start, with the time since. Outcomes count from the end of a job; at equal times the submission comes first, as in
`jobs.history`. Jobs without a user share one sequence, as they share one history there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.history.keys import stand_ins, with_request
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.jobs.training import TrainingSettings

Numbers = NDArray[np.float32]
Rows = NDArray[np.int64]

NONE: Final = -1  # in place of a row: no such event
MOST_ENDED: Final = 16
MOST_OPEN: Final = 4
ENDED, RUNNING, PENDING, FAILED, COMPLETED, TIMED_OUT, STOPPED = range(7)
NUMBERS: Final = (
    "ended", "running", "pending", "failed", "completed", "timed_out", "stopped",
    "since_event", "since_submit", "since_event_before", "run", "run_to_limit", "wait",
    "cpus_to_these", "limit_to_this", "memory_to_this",
    "same_request", "same_limit", "same_size", "same_application", "same_partition", "similarity",
)  # fmt: skip
_CHUNK: Final = 20_000  # jobs whose events are written at a time
_LOG_SCALE: Final = 10.0  # logarithms of seconds come out between 0 and 2


@dataclass(frozen=True, slots=True)
class PastEvents:
    """The jobs of a log in order of submission, as columns."""

    user: Rows
    submit: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    failed: NDArray[np.float64]  # NaN where the outcome does not count
    timed_out: NDArray[np.bool_]
    stopped: NDArray[np.bool_]  # cancelled, while it ran or before
    run_s: NDArray[np.float64]
    limit_s: NDArray[np.float64]
    sizes: NDArray[np.float64]  # (job, 3): logarithms of CPUs, time limit and memory; NaN where nothing is asked for
    same: Rows  # (job, 5): codes of request, limit, size, application and partition; NONE where the last two are unknown

    @classmethod
    def of(cls, jobs: pl.DataFrame, settings: TrainingSettings) -> PastEvents:
        """The columns of a job frame in the order of submission."""
        frame = with_request(jobs, stand_ins(jobs))
        times = event_times(frame)
        state = frame.select(failed(settings.failure_states, settings.dropped_states).cast(pl.Float64), outcome())
        sizes = frame.select(
            pl.col("asked_cpus").cast(pl.Float64).log1p(),
            pl.col("time_limit_s").log1p(),
            pl.col("req_mem_bytes").cast(pl.Float64).log1p(),
        )
        run = frame["elapsed_s"].to_numpy()
        return cls(
            user=_codes(frame, "user"),
            submit=times[:, 0],
            start=times[:, 1],
            end=times[:, 3],
            failed=state["failed"].fill_null(np.nan).to_numpy(),
            timed_out=(state["outcome"] == "TIMEOUT").fill_null(False).to_numpy(),
            stopped=state["outcome"].is_in(["CANCELLED", "NEVER_STARTED"]).fill_null(False).to_numpy(),
            run_s=np.where(np.isnan(run), times[:, 3] - times[:, 1], run),
            limit_s=frame["time_limit_s"].fill_null(np.nan).to_numpy(),
            sizes=sizes.fill_null(np.nan).to_numpy(),
            same=np.stack(
                [
                    _codes(frame, "asked_cpus", "asked_nodes", "asked_gpus", "limit_key", "req_mem_bytes"),
                    _codes(frame, "limit_key"),
                    _codes(frame, "asked_cpus", "asked_nodes", "asked_gpus"),
                    _known(_codes(frame, "family"), frame["family"]),
                    _known(_codes(frame, "partition"), frame["partition"]),
                ],
                axis=1,
            ),
        )

    def visible(self) -> Rows:
        """Rows of the user's jobs of which something is known at each submission, (job, event); NONE before the first.

        The last `MOST_ENDED` that have ended by then and the last `MOST_OPEN` that have not, by the time of what is known last.
        """
        rows = np.full((self.submit.size, MOST_ENDED + MOST_OPEN), NONE, dtype=np.int64)
        ended: dict[int, list[int]] = {}
        open_jobs: dict[int, dict[int, None]] = {}  # in the order of submission
        for is_end, job in self._in_time():
            user = int(self.user[job])
            over, still = ended.setdefault(user, []), open_jobs.setdefault(user, {})
            if is_end:
                over.append(job)
                del still[job]
                continue
            known = [*over[-MOST_ENDED:], *islice(reversed(still), MOST_OPEN)]
            known.sort(key=lambda row: (self._known_since(row, self.submit[job]), row))
            if known:
                rows[job, -len(known) :] = known
            still[job] = None
        return rows

    def numbers(self, visible: Rows) -> NDArray[np.float16]:
        """The events of `visible` as numbers, (job, event, number); zeros where there is none."""
        out = np.zeros((*visible.shape, len(NUMBERS)), dtype=np.float16)
        for begin in range(0, len(visible), _CHUNK):
            out[begin : begin + _CHUNK] = self._some_numbers(visible[begin : begin + _CHUNK], begin)
        return out

    def _some_numbers(self, rows: Rows, begin: int) -> Numbers:
        job = np.arange(begin, begin + len(rows))[:, None]  # (job, 1), against (job, event)
        now = self.submit[job]
        over, runs = self.end[rows] < now, self.start[rows] < now  # NaN: neither
        since = np.where(over, self.end[rows], np.where(runs, self.start[rows], self.submit[rows]))
        until = np.where(over, self.end[rows], now)  # nothing after this is known of that job
        run = np.where(over, self.run_s[rows], np.where(runs, now - self.start[rows], 0.0))
        wait = np.where(runs, self.start[rows], until) - self.submit[rows]
        difference = np.clip(np.nan_to_num(self.sizes[rows] - self.sizes[job]), -3.0, 3.0)
        same = (self.same[rows] == self.same[job]) & (self.same[rows] != NONE)
        before = np.concatenate([since[:, :1], since[:, :-1]], axis=1)
        before = np.where(np.roll(rows, 1, axis=1) == NONE, since, before)
        columns = [
            over, ~over & runs, ~over & ~runs,
            over & (self.failed[rows] == 1.0), over & (self.failed[rows] == 0.0), over & self.timed_out[rows],
            over & self.stopped[rows],
            _log(now - since), _log(now - self.submit[rows]), _log(since - before), _log(run),
            np.clip(np.nan_to_num(run / self.limit_s[rows]), 0.0, 2.0), _log(wait),
            *np.moveaxis(difference, -1, 0), *np.moveaxis(same, -1, 0), np.exp(-np.abs(difference).sum(axis=-1)),
        ]  # fmt: skip
        numbers: Numbers = np.stack([column.astype(np.float32) for column in columns], axis=-1)
        numbers[rows == NONE] = 0.0
        return numbers

    def _in_time(self) -> list[tuple[bool, int]]:
        """Every submission (False) and end (True) in the order of time; at equal times submissions first, as in the frame."""
        ends = np.flatnonzero(~np.isnan(self.end) & ~np.isnan(self.submit))
        submits = np.flatnonzero(~np.isnan(self.submit))
        job = np.concatenate([submits, ends])
        is_end = np.repeat([False, True], [submits.size, ends.size])
        order = np.lexsort((job, is_end, np.where(is_end, self.end[job], self.submit[job])))
        return list(zip(is_end[order].tolist(), job[order].tolist(), strict=True))

    def _known_since(self, row: int, now: float) -> float:
        """When the last thing that is known of a job at `now` happened: its end, its start or its submission."""
        latest = [time for time in (self.end[row], self.start[row]) if time < now]
        return float(latest[0] if latest else self.submit[row])


def _codes(frame: pl.DataFrame, *columns: str) -> Rows:
    """A number for each distinct combination of values; unknown is a value."""
    return frame.select(pl.struct(columns).rank("dense").cast(pl.Int64)).to_series().to_numpy()


def _known(codes: Rows, column: pl.Series) -> Rows:
    return np.where(column.is_null().to_numpy(), NONE, codes)


def _log(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log1p(np.clip(np.nan_to_num(seconds), 0.0, None)) / _LOG_SCALE
