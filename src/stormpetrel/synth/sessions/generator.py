"""The default generator: users who come in sessions, and ask again for what they asked for before.

Workload -> fit -> SessionGenerator -> batches -> frames of new jobs. See docs/synth.md for what is learnt and what is not.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, NotEnoughJobsError, UsageError
from stormpetrel.records.times import UTC_TIME
from stormpetrel.synth.contract import Wanted
from stormpetrel.synth.sessions.columns import Coding, usable
from stormpetrel.synth.sessions.features import MOST_SHIFT_S
from stormpetrel.synth.sessions.kernel import AT, GAP, GAP_BEFORE, LONG_AGO_S, NOTHING_YET, SLOTS, SMOOTHED, generate
from stormpetrel.synth.sessions.leaf_forest import LeafForest
from stormpetrel.synth.sessions.learning import Learnt, learn
from stormpetrel.synth.sessions.plan import DAY_S, WEEK_S, Chunk, SessionPlan
from stormpetrel.synth.sessions.saving import load_learnt, save_learnt
from stormpetrel.synth.workload import ARRAY, SUBMIT, Workload

FEWEST_JOBS: Final = 20
ROWS_AT_ONCE: Final = 65_536
BLUR: Final = 0.03  # how much, as a share, run times are shaken
_PILOT_JOBS: Final = 20_000
_PILOTS: Final = 6
_NEAR: Final = 0.01  # of the requested odds: near enough
_FIRST_YEAR, _LAST_YEAR = 1900, 2999


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How the generator learns. `fewest_jobs` is k of the privacy rule: users with fewer jobs are learnt together only."""

    fewest_jobs: int = 20
    trees: int = 12
    leaf: int = 4
    seed: int = 0


class SessionGenerator:
    """Users, sessions, jobs."""

    kind: ClassVar[str] = "synth-sessions"

    def __init__(self, *, fewest_jobs: int = 20, trees: int = 12, leaf: int = 4, seed: int = 0) -> None:
        if min(fewest_jobs, trees, leaf) < 1 or seed < 0:
            raise UsageError(
                "fewest_jobs, trees and leaf are whole numbers above 0, the seed is none below 0.",
                hint="Leave them out for the defaults.",
            )
        self.settings = SessionSettings(fewest_jobs, trees, leaf, seed)
        self.learnt_: Learnt | None = None

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Learn the sessions of a workload, and how its users go on from one job to the next."""
        workload = usable(workload)
        if workload.height < FEWEST_JOBS:
            raise NotEnoughJobsError(
                f"{workload.height} jobs are too few to learn a workload from: it takes {FEWEST_JOBS}.",
                hint="Read a longer log; some weeks with some thousand jobs make a good one.",
            )
        self.learnt_ = learn(
            workload, self.settings.fewest_jobs, self.settings.trees, self.settings.leaf, self.settings.seed, progress
        )
        return self

    @property
    def learnt(self) -> Learnt:
        """What was learnt; ModelError before `fit`."""
        if self.learnt_ is None:
            raise ModelError("The generator has not learnt from a log yet.", hint="Call fit, or: stormpetrel synth fit")
        return self.learnt_

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how the log was learnt."""
        return self.learnt.notes

    def groups(self) -> dict[str, str]:
        """The groups of users, under their new names."""
        return describe_groups(self.learnt)

    def batches(self, wanted: Wanted) -> Iterator[pl.DataFrame]:
        """New jobs in the order of submission."""
        return _cut(self._jobs(wanted, self._weights(wanted)), wanted, *_beginning(wanted, self.learnt), self.learnt)

    def _weights(self, wanted: Wanted) -> npt.NDArray[np.float64]:
        """How many of each session there will be: 0 outside the group, more or less of those that use GPUs."""
        book = self.learnt.book
        weights = np.ones(len(book.user))
        if wanted.group is not None:
            weights *= named_group(self.learnt, wanted.group)[book.user]
        if wanted.gpu_jobs == 1:
            return weights
        share = float(np.average(book.theme[:, 0], weights=book.jobs * weights)) if weights.any() else 0.0
        if not 0 < share < 1:
            which = "Every" if share > 0 else "No"
            raise UsageError(f"{which} job of this log asks for a GPU: their share cannot change.", hint="Leave --gpu-jobs out.")
        target = share * wanted.gpu_jobs
        if target >= 1:
            raise UsageError(
                f"{share:.0%} of the jobs ask for a GPU already; {wanted.gpu_jobs:g} times as many are more than all.",
                hint=f"Ask for less than {1 / share:.2f}.",
            )
        return self._balanced(wanted, weights, share, target)

    def _balanced(self, wanted: Wanted, weights: npt.NDArray[np.float64], share: float, target: float) -> npt.NDArray[np.float64]:
        """Weights under which the share of GPU jobs is the one requested: tried out on a small sample, and corrected."""
        book, theme, aim = self.learnt.book, self.learnt.book.theme[:, 0], target
        for _ in range(_PILOTS):
            tried = weights * (theme * aim / share + (1 - theme) * (1 - aim) / (1 - share))
            planned, drawn = self._pilot(wanted, tried)
            # A sample is of some weeks only: what counts is how far it is from the plan for these weeks.
            reached = _odds(float(np.average(theme, weights=book.jobs * tried))) * _odds(drawn) / _odds(planned)
            if abs(reached / _odds(target) - 1) < _NEAR:
                break
            odds = _odds(aim) * _odds(target) / reached
            aim = odds / (1 + odds)
        return tried

    def _pilot(self, wanted: Wanted, weights: npt.NDArray[np.float64]) -> tuple[float, float]:
        """The share of GPU jobs in a small sample: as its sessions had it in the log, and as it was made."""
        learnt = self.learnt
        plan = SessionPlan(learnt.book, replace(wanted, jobs=_PILOT_JOBS, days=None), users=learnt.users, weights=weights)
        memory, habit_of = _fresh_memory(plan.users * plan.replicas), np.tile(learnt.habit_of, plan.replicas)
        rng = np.random.default_rng([wanted.seed, 3])
        jobs, planned, drawn = 0, 0.0, 0
        for chunk in plan.chunks():
            jobs += int(chunk.jobs.sum())
            planned += float(chunk.jobs @ chunk.theme[:, 0])
            drawn += int((_make(learnt, chunk, memory, habit_of, rng)["gpus"] > 0).sum())
            if jobs >= _PILOT_JOBS:
                break
        return planned / jobs, drawn / jobs

    def _jobs(self, wanted: Wanted, weights: npt.NDArray[np.float64]) -> Iterator[pl.DataFrame]:
        """Frames with `_at`, seconds from the beginning of the new log, for ever."""
        learnt = self.learnt if wanted.group is None else charged_to(self.learnt, wanted.group)
        plan = SessionPlan(learnt.book, wanted, users=learnt.users, weights=weights)
        memory = _fresh_memory(plan.users * plan.replicas)
        habit_of = np.tile(learnt.habit_of, plan.replicas)
        rng = np.random.default_rng([wanted.seed, 2])
        waiting: pl.DataFrame | None = None
        arrays = 0
        for chunk in plan.chunks():
            drawn = _make(learnt, chunk, memory, habit_of, rng)
            drawn = attach_names(drawn, learnt, chunk, plan.users, rng)
            if ARRAY in drawn.columns:
                drawn, arrays = _number_arrays(drawn, arrays)
            waiting = drawn if waiting is None else pl.concat([waiting, drawn])
            over = waiting["_at"] < chunk.until_s
            ready = waiting.filter(over).sort("_at", maintain_order=True)
            waiting = waiting.filter(~over)
            if ready.height:
                yield ready

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet."""
        save_learnt(self.learnt, self.settings, folder, kind=self.kind)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The generator that was saved in a folder."""
        learnt, settings = load_learnt(folder, kind=cls.kind)
        loaded = cls(**settings)
        loaded.learnt_ = learnt
        return loaded


def _odds(share: float) -> float:
    kept = min(max(share, 1e-6), 1 - 1e-6)
    return kept / (1 - kept)


def _fresh_memory(users: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each user did last, and the ledger of work."""
    memory = np.full((users, SLOTS), NOTHING_YET)
    memory[:, AT] = -LONG_AGO_S
    memory[:, [GAP, GAP_BEFORE, SMOOTHED]] = np.log1p(LONG_AGO_S)
    return memory, np.zeros(1)


def _make(learnt: Learnt, chunk: Chunk, memory: Any, habit_of: Any, rng: np.random.Generator) -> pl.DataFrame:
    """The jobs of some sessions, not yet in order."""
    sessions = (chunk.user, chunk.start_s, chunk.jobs, chunk.length_s, chunk.mean_gap, chunk.theme, chunk.work)
    coding: Coding = learnt.coding
    forests = tuple(forest.arrays() for forest in learnt.forests)
    users, ledger = memory
    submit, who, which, request, state, runtime, extra = generate(
        sessions, learnt.origin_s, learnt.habits, habit_of, users, learnt.features, learnt.limits, learnt.coding.sizes(),
        forests, learnt.values, learnt.numbers, ledger, learnt.band, BLUR, int(rng.integers(2**31)),
    )  # fmt: skip
    frame = coding.decode(request, state, _rounded(runtime, learnt.limits[request], 0 if coding.whole_runtime else 2), extra)
    own = {"_at": np.round(submit, 3 if learnt.fractional else 0), "_who": who, "_session": which, "_request": request}
    return frame.with_columns(pl.Series(name, values) for name, values in own.items())


def _rounded(runtime: Any, limit: Any, digits: int) -> Any:
    """Run times rounded, but none of them beyond a limit that it kept."""
    rounded = np.round(runtime, digits)
    return np.where((rounded > limit) & (runtime <= limit), np.floor(runtime), rounded)


def _number_arrays(jobs: pl.DataFrame, count: int) -> tuple[pl.DataFrame, int]:
    """Array tasks of one session with one request are one array; their flags become its number."""
    requests = int(jobs["_request"].max() or 0) + 1  # type: ignore[arg-type]
    _, number = np.unique(jobs["_session"].to_numpy() * requests + jobs["_request"].to_numpy(), return_inverse=True)
    numbers = pl.Series(number + 1 + count, dtype=pl.Int64)
    return jobs.with_columns(numbers.set(~jobs[ARRAY].cast(pl.Boolean), None).alias(ARRAY)), count + jobs.height


def _cut(
    frames: Iterator[pl.DataFrame], wanted: Wanted, origin: datetime, skip_s: float, learnt: Learnt
) -> Iterator[pl.DataFrame]:
    """The frames from the requested beginning, until as many jobs or days as asked for; times as times."""
    days = wanted.days if wanted.days is not None or wanted.jobs is not None else (learnt.span_s + MOST_SHIFT_S) / DAY_S
    until_s = skip_s + days * DAY_S if days is not None else np.inf
    left = wanted.jobs if wanted.jobs is not None else np.inf
    columns = [name for name in learnt.coding.columns if name != SUBMIT]
    empty = True
    for frame in frames:
        inside = frame.filter((pl.col("_at") >= skip_s) & (pl.col("_at") < until_s))
        inside = inside[: int(left)] if left < inside.height else inside
        left -= inside.height
        time = (pl.lit(origin) + pl.duration(microseconds=(pl.col("_at") * 1e6).round().cast(pl.Int64))).cast(UTC_TIME)
        for part in inside.select(time.alias(SUBMIT), *columns).iter_slices(ROWS_AT_ONCE):
            empty = False
            yield part
        if left <= 0 or frame["_at"][-1] >= until_s:
            break
    if empty:
        yield pl.DataFrame(schema={SUBMIT: UTC_TIME, **learnt.schema()}).select(SUBMIT, *columns)


def _beginning(wanted: Wanted, learnt: Learnt) -> tuple[datetime, float]:
    """The moment that second 0 of the new log stands for, and how many seconds are left out until the start asked for.

    Second 0 has the weekday and the hour of the log's beginning, so that nights stay nights.
    """
    begin = datetime.fromtimestamp(learnt.begin_s, UTC)
    if wanted.start is None:
        try:
            return begin + timedelta(weeks=round(wanted.later_years * 365.25 / 7)), 0.0
        except OverflowError:
            raise UsageError(f"No calendar has {wanted.later_years:g} years after this log.", hint="Give a start date.") from None
    if not _FIRST_YEAR <= wanted.start.year <= _LAST_YEAR:
        raise UsageError(f"A log cannot begin in {wanted.start.year}.", hint=f"Choose a year from {_FIRST_YEAR} to {_LAST_YEAR}.")
    start = wanted.start if wanted.start.tzinfo else wanted.start.replace(tzinfo=UTC)
    period = WEEK_S if learnt.book.block_s >= WEEK_S else DAY_S
    late = (start - begin).total_seconds() % period
    return start - timedelta(seconds=late), late


__all__ = ["FEWEST_JOBS", "LeafForest", "SessionGenerator", "SessionSettings"]


_GROUP, _ACCOUNT = 1, 2
_COLUMN: Final = {_GROUP: "group", _ACCOUNT: "account"}
_MOST_GROUPS: Final = 50
_FEWEST_MEMBERS: Final = 3  # a smaller group would be a person


def attach_names(jobs: pl.DataFrame, learnt: Learnt, chunk: Chunk, users: int, rng: np.random.Generator) -> pl.DataFrame:
    """The frame with `user`, `group` and `account` where the log had them; a session is charged to one account."""
    columns: list[pl.Series] = []
    who = jobs["_who"].to_numpy()
    if "user" in learnt.coding.columns:
        columns.append(_names(learnt, "user", who, 4).set(pl.Series(who % users == learnt.nameless), None))
    entries = _entries(learnt, chunk.user % users, rng)[jobs["_session"].to_numpy()]
    for place, name in _COLUMN.items():
        if name in learnt.coding.columns:
            numbers = learnt.pairs[entries, place]
            columns.append(_names(learnt, name, numbers, 2).set(pl.Series(numbers < 0), None))
    return jobs.with_columns(columns)


def _names(learnt: Learnt, column: str, numbers: Any, digits: int) -> pl.Series:
    counted = pl.Series(numbers + 1, dtype=pl.Int64).cast(pl.String).str.zfill(digits)
    return (learnt.coding.prefixes[column] + counted).alias(column)


def charged_to(learnt: Learnt, group: str) -> Learnt:
    """The same, with nothing charged to other groups than this one of `describe_groups`."""
    place = _column_of_groups(learnt)
    number = int(group.removeprefix(learnt.coding.prefixes[_COLUMN[place]])) - 1
    theirs = learnt.pairs[:, place] == number
    return replace(learnt, pairs=learnt.pairs[theirs], pair_weight=learnt.pair_weight[theirs])


def _entries(learnt: Learnt, user: Any, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """(sessions,) an entry of the table of accounts for each session, by the user's shares."""
    owners = learnt.pairs[:, 0]
    known = np.isin(user, owners)
    owner = np.where(known, user, -1)  # small users share one table
    first = np.searchsorted(owners, owner, "left")
    last = np.searchsorted(owners, owner, "right") - 1
    whole = np.cumsum(learnt.pair_weight)
    base = np.concatenate([[0.0], whole])[first]
    drawn = np.searchsorted(whole, base + rng.random(len(user)) * (whole[last] - base), "right")
    return np.asarray(np.clip(drawn, first, last), dtype=np.int64)


def _column_of_groups(learnt: Learnt) -> int:
    return _GROUP if "group" in learnt.coding.columns else _ACCOUNT


def _members(learnt: Learnt) -> dict[str, npt.NDArray[np.int64]]:
    """Group -> users whose jobs are mostly in it, of those users that are known one by one."""
    column = _column_of_groups(learnt)
    if not {"group", "account"} & set(learnt.coding.columns):
        return {}
    rows = pl.DataFrame({"user": learnt.pairs[:, 0], "group": learnt.pairs[:, column], "share": learnt.pair_weight})
    known = rows.filter((pl.col("user") >= 0) & (pl.col("group") >= 0))
    shares = known.group_by("user", "group", maintain_order=True).agg(pl.col("share").sum())
    main = shares.sort("share", descending=True, maintain_order=True).unique("user", keep="first", maintain_order=True)
    return {
        f"{learnt.coding.prefixes[_COLUMN[column]]}{int(group[0]) + 1:02d}": part["user"].to_numpy()
        for group, part in main.sort("group").group_by("group", maintain_order=True)
        if part.height >= _FEWEST_MEMBERS
    }


def describe_groups(learnt: Learnt) -> dict[str, str]:
    """Groups by their new names, the largest first."""
    members = _members(learnt)
    jobs = {name: int(learnt.jobs_of[users].sum()) for name, users in members.items()}
    largest = sorted(members, key=lambda name: -jobs[name])[:_MOST_GROUPS]
    return {name: f"{len(members[name]):,} users, {jobs[name]:,} jobs" for name in largest}


def named_group(learnt: Learnt, name: str) -> npt.NDArray[np.float64]:
    """(users,) 1 for the members of a group."""
    members = _members(learnt)
    if name not in members:
        close = difflib.get_close_matches(name, members, n=1)
        known = ", ".join(list(describe_groups(learnt))[:8]) or f"none has {_FEWEST_MEMBERS} users who can be told apart"
        raise UsageError(
            f"There is no group '{name[:60]}'.", hint=f"{f'Did you mean {close[0]!r}? ' if close else ''}Known: {known}."
        )
    chosen = np.zeros(learnt.users)
    chosen[members[name]] = 1.0
    return chosen
