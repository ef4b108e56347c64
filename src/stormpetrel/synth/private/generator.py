"""A generator with a guarantee: what it makes hardly depends on any one user (differential privacy, pure, per user).

Workload -> fit -> PrivateGenerator -> batches -> frames of new jobs. docs/synth-private.md has the guarantee and its cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
import polars as pl

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelFormatError, NotEnoughJobsError, UsageError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.arrays import Ints
from stormpetrel.records.times import UTC_TIME
from stormpetrel.synth.contract import Wanted
from stormpetrel.synth.private.layout import CLASSES, MOST_WEEKS, Categories, Layout
from stormpetrel.synth.private.learning import noisy_tables, settle
from stormpetrel.synth.private.noise import FROM_SYSTEM, Noise, SystemNoise
from stormpetrel.synth.sessions.columns import usable
from stormpetrel.synth.workload import ARRAY, KNOWN, SUBMIT, WAIT, WHO, Workload

FORMAT_VERSION: Final = 1
MOST_JOBS: Final = 16
MOST_SESSIONS: Final = 8
LEAST_EPSILON: Final = 1e-6
UNITS: Final = ("user", "job")
ENOUGH_FOR_CLASSES: Final = 3.0  # epsilon from which on busy and occasional users are distinguished
ROWS_AT_ONCE: Final = 65_536
_FIRST_YEAR, _LAST_YEAR = 1900, 2999
_WEEK_S: Final = 7 * 86_400
_MONDAY_S: Final = 4 * 86_400  # 1970 began on a Thursday


class PrivateGenerator:
    """Users, sessions and jobs from noisy counts.

    `epsilon` bounds what anyone can learn about one user: with or without all of his jobs, no model is more than exp(epsilon)
    times as likely. At most `most_sessions` sessions and `most_jobs` jobs of each user are counted. `unit` "job" protects single
    jobs instead of users, for logs without users. `since` and `weeks` are the period; where they are left out it is that of
    the log in whole weeks, and counts as public. `names` are words of columns that are public (`{"partition": ["cpu"]}`).
    `noise` is for tests: anything but the operating system's random bits undoes the guarantee.
    """

    kind: ClassVar[str] = "synth-private"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        most_jobs: int = MOST_JOBS,
        most_sessions: int = MOST_SESSIONS,
        unit: str = "user",
        since: datetime | None = None,
        weeks: int | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        noise: Noise | None = None,
    ) -> None:
        if not (math.isfinite(epsilon) and epsilon >= LEAST_EPSILON):
            raise UsageError(
                f"epsilon = {epsilon} makes no sense.",
                hint=f"It is a number above 0, such as 1: smaller is safer, and below {LEAST_EPSILON:g} there is only noise.",
            )
        if not (1 <= most_sessions <= most_jobs <= 1_000_000):
            raise UsageError(
                "most_sessions and most_jobs are whole numbers above 0, and there are no more sessions than jobs.",
                hint="Leave them out for the defaults.",
            )
        if unit not in UNITS:
            raise UsageError(f"unit = {unit!r} is not known.", hint=f"Known: {', '.join(UNITS)}.")
        if weeks is not None and not 1 <= weeks <= MOST_WEEKS:
            raise UsageError(f"{weeks} weeks make no sense.", hint=f"A period has 1 to {MOST_WEEKS:,} weeks.")
        self.epsilon = float(epsilon)
        self.unit = unit
        self.most_jobs = most_jobs if unit == "user" else 1
        self.most_sessions = most_sessions if unit == "user" else 1
        self.since = since
        self.weeks = weeks
        self.names = {name: tuple(values) for name, values in (names or {}).items()}
        self.seed = seed  # of nothing: noise has no seed, and a sample has its own
        self._noise = noise
        self.layout_: Layout | None = None
        self.counts_: dict[str, Ints] = {}
        self.source_ = FROM_SYSTEM

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Count, add noise, forget the log."""
        workload = usable(workload)
        if not workload.height:
            raise NotEnoughJobsError("There is no job with a time of submission.", hint="Check the column of submit times.")
        if self.unit == "user" and ("user" not in workload.jobs.columns or not workload.jobs["user"].count()):
            raise NotEnoughJobsError(
                "No job of this log has a user: what belongs to one person cannot be told.",
                hint='Use another --model, or protect single jobs instead: PrivateGenerator(unit="job").',
            )
        layout = self._layout_of(workload)
        noise = self._noise or SystemNoise()
        progress(0.1, "counting")
        self.counts_ = noisy_tables(workload.jobs, layout, self._exact_epsilon, noise)
        self.layout_, self.source_ = layout, noise.source
        progress(1.0, "counted, with noise")
        return self

    @property
    def layout(self) -> Layout:
        """The public frame; ModelError before `fit`."""
        if self.layout_ is None:
            raise ModelError("The generator has not learnt from a log yet.", hint="Call fit, or: stormpetrel synth fit")
        return self.layout_

    @property
    def notes(self) -> tuple[str, ...]:
        """The guarantee in words, and what it rests on. Nothing in them comes from the jobs."""
        layout = self.layout
        whom = "user" if layout.has_users else "single job"
        bound = (
            f" (at most {layout.most_jobs} jobs in {layout.most_sessions} sessions of each are counted)"
            if layout.has_users
            else ""
        )
        begin = datetime.fromtimestamp(layout.begin_s, UTC).date()
        notes = [
            f"Differential privacy for every {whom}{bound}: epsilon = {self.epsilon:g}, delta = 0.",
            f"Taken as public: the names of the columns, and the period, {layout.weeks:,} weeks from {begin}.",
        ]
        if self.source_ != FROM_SYSTEM:
            notes[0] = f"No guarantee: the noise comes from {self.source_}. A model to be shared must be fitted without it."
        if layout.has_users:
            notes.append("Jobs without a user are left out, and so are groups, accounts and arrays.")
        texts = [
            name for name in layout.columns if isinstance(layout.grid(name), Categories) and name not in (*layout.names, "state")
        ]
        if texts:
            notes.append(f"Words of {', '.join(texts)} are not kept: the columns have new ones.")
        return tuple(notes)

    def groups(self) -> dict[str, str]:
        """None: groups of users are not learnt."""
        return {}

    def guarantee(self) -> dict[str, Any]:
        """What is promised, for programs: `holds` is false where the noise could be drawn again."""
        tables = self.layout.tables()
        return {
            "holds": self.source_ == FROM_SYSTEM,
            "unit": self.unit,
            "epsilon": self.epsilon,
            "delta": 0,
            "mechanism": "discrete Laplace noise on bounded counts",
            "noise_from": self.source_,
            "tables": {
                name: {"sensitivity": table.bound, "epsilon": float(self._exact_epsilon * table.share)}
                for name, table in tables.items()
            },
        }

    def batches(self, wanted: Wanted) -> Iterator[pl.DataFrame]:
        """New jobs in the order of submission; the same seed makes the same jobs."""
        refused = [name for name in wanted.conditions if name != "users"]
        if refused:
            raise UsageError(
                f"The generator 'private' cannot change {', '.join(refused)}.", hint="Use the default generator (sessions)."
            )
        if wanted.seed < 0:
            raise UsageError(f"The seed {wanted.seed} is negative.", hint="A seed is a whole number from 0 on.")
        return self._batches(self.layout, wanted, *_beginning(wanted, self.layout))

    def _batches(self, layout: Layout, wanted: Wanted, origin: datetime, skip_s: float) -> Iterator[pl.DataFrame]:
        days = wanted.days if wanted.days is not None or wanted.jobs is not None else layout.weeks * 7.0
        until_s = skip_s + days * 86_400.0 if days is not None else np.inf
        left = wanted.jobs if wanted.jobs is not None else math.inf
        empty = True
        for frame in self._jobs(layout, wanted):
            inside = frame.filter((pl.col("_at") >= skip_s) & (pl.col("_at") < until_s))
            inside = inside.head(int(left)) if left < inside.height else inside
            left -= inside.height
            time = (pl.lit(origin) + pl.duration(seconds=pl.col("_at").cast(pl.Int64))).cast(UTC_TIME)
            for part in inside.select(time.alias(SUBMIT), pl.exclude("_at")).iter_slices(ROWS_AT_ONCE):
                empty = False
                yield part
            if left <= 0 or (frame.height and frame["_at"][-1] >= until_s):
                break
        if empty:
            yield frame.head(0).select(pl.lit(origin).cast(UTC_TIME).alias(SUBMIT), pl.exclude("_at"))

    def _jobs(self, layout: Layout, wanted: Wanted) -> Iterator[pl.DataFrame]:
        """Frames with `_at`, seconds from the beginning, in order, for ever: one period of the same users after the other."""
        from stormpetrel.synth.private.sampling import draw_jobs, draw_people, draw_sessions

        chances = settle(self.counts_, layout, self._exact_epsilon)
        rng = np.random.default_rng(wanted.seed)
        people = draw_people(chances, layout, wanted.users, rng)
        late_s, waiting = 0.0, pl.DataFrame()
        while True:
            for jobs_drawn, until_s in draw_jobs(draw_sessions(people, chances, layout, rng), chances, layout, rng):
                waiting = pl.concat(
                    [waiting, jobs_drawn.with_columns(pl.col("_at") + late_s)], how="vertical" if waiting.width else "diagonal"
                )
                ready = pl.col("_at") < until_s + late_s
                yield waiting.filter(ready).sort("_at", maintain_order=True)
                waiting = waiting.filter(~ready)
            late_s += layout.weeks * _WEEK_S

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet: public settings and noisy counts, nothing else."""
        metadata = {
            "guarantee": self.guarantee(),
            "layout": self.layout.record(),
            "counts": {name: table.ravel().tolist() for name, table in self.counts_.items()},
        }
        save_model(folder, kind=self.kind, format_version=FORMAT_VERSION, metadata=metadata, files={})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read it; ModelFormatError says what is wrong with it."""
        record, _ = load_model_bytes(folder, kind=cls.kind, format_version=FORMAT_VERSION)
        try:
            layout = Layout.of_record(record["layout"])
            guarantee = record["guarantee"]
            generator = cls(
                epsilon=float(guarantee["epsilon"]),
                most_jobs=layout.most_jobs,
                most_sessions=layout.most_sessions,
                unit=str(guarantee["unit"]),
                weeks=layout.weeks,
                names=layout.names,
            )
            generator.source_ = str(guarantee["noise_from"])
            tables = layout.tables()
            generator.counts_ = {
                name: np.array(record["counts"][name], dtype=np.int64).reshape(table.shape) for name, table in tables.items()
            }
            generator.layout_ = layout
            if any(np.abs(table.astype(np.float64)).max() > 2.0**53 for table in generator.counts_.values()):
                raise ValueError("its counts are beyond all bounds")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UsageError) as error:
            raise ModelFormatError(
                f"The generator in {folder} is damaged: {str(error)[:200]}", hint="Fit it again: stormpetrel synth fit"
            ) from None
        return generator

    @property
    def _exact_epsilon(self) -> Fraction:
        return Fraction(repr(self.epsilon))

    def _layout_of(self, workload: Workload) -> Layout:
        """The public frame of a log: its columns, and its period where none was given."""
        columns = tuple(name for name in workload.attributes if name not in (*WHO, ARRAY, WAIT))
        times = workload.submit_s()
        begin_s = _monday(times.min() if self.since is None else _seconds(self.since))
        weeks = self.weeks or int((times.max() - begin_s) // _WEEK_S) + 1
        types = {name: _type(workload.jobs[name]) for name in columns if name not in KNOWN}
        names = {name: values for name, values in self.names.items() if name in columns}
        return Layout(
            columns, types, self.most_jobs, self.most_sessions, begin_s, min(max(weeks, 1), MOST_WEEKS), self.unit == "user",
            workload.has_clock, names, CLASSES if self.epsilon >= ENOUGH_FOR_CLASSES else 1,
        )  # fmt: skip


def _type(column: pl.Series) -> str:
    if not column.dtype.is_numeric():
        return "text"
    return "whole" if column.dtype.is_integer() else "number"


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _monday(time_s: float) -> float:
    """The beginning of the week (UTC) of a moment."""
    return float((time_s - _MONDAY_S) // _WEEK_S * _WEEK_S + _MONDAY_S)


def _beginning(wanted: Wanted, layout: Layout) -> tuple[datetime, float]:
    """The Monday that second 0 stands for, and the seconds until the start asked for."""
    if wanted.start is None:
        return datetime.fromtimestamp(layout.begin_s, UTC), 0.0
    if not _FIRST_YEAR <= wanted.start.year <= _LAST_YEAR:
        raise UsageError(f"A log cannot begin in {wanted.start.year}.", hint=f"Choose a year from {_FIRST_YEAR} to {_LAST_YEAR}.")
    begin_s = _monday(_seconds(wanted.start))
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=begin_s), _seconds(wanted.start) - begin_s
