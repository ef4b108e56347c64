"""Learning from a log: its sessions, its users' habits, and the forests that draw what comes next.

Workload -> learn -> Learnt. Nothing of a user with fewer than k jobs is kept apart from other such users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.engine import Progress
from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.synth.sessions.columns import Coding, Encoded, encode
from stormpetrel.synth.sessions.features import (
    Circumstances,
    Sessions,
    circumstances,
    find_sessions,
    session_themes,
    session_work,
    user_habits,
)
from stormpetrel.synth.sessions.leaf_forest import LeafForest, grow
from stormpetrel.synth.sessions.plan import DAY_S, SessionBook, block_length_s, growth_of
from stormpetrel.synth.workload import ARRAY, KNOWN, Workload

_RATIO_WEIGHT: Final = 0.5  # of run time ÷ limit among what the outcome's trees explain


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """All that a generator keeps of a log."""

    coding: Coding
    book: SessionBook
    users: int
    jobs_of: Ints  # (users,) only of users with enough jobs; small ones have the mean of small ones
    nameless: int
    habits: Any  # (rows, habits) float32
    habit_of: Ints  # (users,)
    pairs: Ints  # (entries, 3) user, group, account: where each user's jobs are charged
    pair_weight: Floats  # (entries,) share of the user's jobs
    forests: tuple[LeafForest, LeafForest, LeafForest, LeafForest]
    values: tuple[Any, ...]  # gap, same, request, state, run time, limit in the order of the leaves
    numbers: Any  # (outcome values, columns)
    features: Any  # (requests, columns)
    limits: Any  # (requests,)
    begin_s: float  # Unix time of the log's second 0
    origin_s: float  # its time of day
    span_s: float
    fractional: bool  # times have fractions of seconds
    notes: tuple[str, ...]
    jobs: int

    @property
    def band(self) -> float:
        """How far, in core-seconds, the work of a new log may stray: what comes in six hours on average."""
        return float(self.book.work.sum() / max(self.span_s, 1.0)) * 6 * 3600.0

    def schema(self) -> dict[str, Any]:
        """Types of the columns of new jobs."""
        own = {name: getattr(pl, dtype) for name, dtype in self.coding.dtypes.items()}
        return {name: KNOWN.get(name, own.get(name, pl.String)) for name in self.coding.columns}


def learn(workload: Workload, fewest: int, trees: int, leaf: int, seed: int, progress: Progress) -> Learnt:
    """Learn a workload; users with fewer than `fewest` jobs are one crowd."""
    progress(0.0, "finding sessions")
    coding, encoded, notes = encode(workload, fewest=fewest)
    begin = float(encoded.submit_s[0] - encoded.submit_s[0] % 3600.0)
    block_s = block_length_s(float(encoded.submit_s[-1] - begin))
    sessions = find_sessions(encoded, block_s)
    jobs_of = np.bincount(encoded.user, minlength=encoded.users)
    small = jobs_of < fewest
    habits = user_habits(encoded, coding, sessions, small)
    themes = session_themes(encoded, coding, sessions)
    rng = np.random.default_rng([seed, 0])
    book = _book(encoded, sessions, themes, session_work(encoded, coding, sessions), small, (begin, block_s), rng)
    progress(0.1, "describing jobs")
    around = circumstances(encoded, coding, sessions, habits, themes)
    forests, values, numbers = _forests(encoded, coding, sessions, around, (trees, leaf, seed), progress)
    pairs, weights = _pairs(encoded, small)
    rows, habit_of = np.unique(habits, axis=0, return_inverse=True)
    if small.any():
        jobs_of = np.where(small, round(float(jobs_of[small].mean())), jobs_of)
        notes = (*notes, f"{int(small.sum()):,} users with fewer than {fewest} jobs are learnt together, not one by one.")
    return Learnt(
        coding=coding,
        book=book,
        users=encoded.users,
        jobs_of=jobs_of,
        nameless=encoded.nameless,
        habits=rows,
        habit_of=habit_of.reshape(-1).astype(np.int64),
        pairs=pairs,
        pair_weight=weights,
        forests=forests,
        values=values,
        numbers=numbers,
        features=coding.features(),
        limits=coding.limits(),
        begin_s=begin,
        origin_s=begin % DAY_S,
        span_s=float(encoded.submit_s[-1] - begin) + 1.0,
        fractional=bool(np.any(encoded.submit_s % 1.0 != 0)),
        notes=(*workload.notes, *notes),
        jobs=workload.height,
    )


def _book(
    encoded: Encoded,
    sessions: Sessions,
    themes: Floats,
    work: Floats,
    small: Any,
    blocks_at: tuple[float, float],
    rng: np.random.Generator,
) -> SessionBook:
    """The sessions by week. Their times are shaken once here, so that the exact ones are not in the model."""
    begin, block_s = blocks_at
    start = encoded.submit_s[sessions.order][sessions.begin] - begin
    shift = sessions.shift_s / 2
    start = np.maximum(start + shift * rng.uniform(-1, 1, len(start)), 0.0)
    block = (start // block_s).astype(np.int64)
    user = encoded.user[sessions.order][sessions.begin]
    jobs = sessions.jobs.copy()
    length, gap, theme = sessions.length_s.copy(), sessions.mean_gap.copy(), themes.copy()
    theirs = np.flatnonzero(small[user])
    if len(theirs):  # one crowd: when and how long are shuffled apart, and who it was is drawn, so that not even counts are kept
        crowd = np.flatnonzero(small)  # each of them has a session at least; whose the others are is chance
        user[theirs] = rng.permutation(np.concatenate([crowd, rng.choice(crowd, len(theirs) - len(crowd))]))
        mixed = rng.permutation(theirs)
        jobs[theirs] = jobs[mixed]
        for values in (length, gap, theme, shift, work):
            values[theirs] = values[mixed]
    blocks = max(int(block.max()), int((encoded.submit_s[-1] - begin) // block_s)) + 1
    counts = np.bincount(block, jobs, minlength=blocks).astype(np.float64)
    return SessionBook(
        user=user,
        block=block,
        start_s=start - block * block_s,
        jobs=jobs,
        length_s=length,
        mean_gap=gap,
        theme=theme,
        shift_s=shift,
        work=work,
        block_s=block_s,
        blocks=blocks,
        growth=growth_of(counts, block_s),
    )


def _pairs(encoded: Encoded, small: Any) -> tuple[Ints, Floats]:
    """Groups and accounts of each user, with their shares; small users have those of all small users together."""
    frame = pl.DataFrame({"user": np.where(small[encoded.user], -1, encoded.user), "place": encoded.place})
    counted = frame.group_by("user", "place", maintain_order=True).len().sort("user", "place")
    places = encoded.places.to_numpy()[counted["place"].to_numpy()]
    share = counted.select((pl.col("len") / pl.col("len").sum().over("user")).alias("share"))["share"].to_numpy()
    return np.column_stack([counted["user"].to_numpy(), places]).astype(np.int64), share.astype(np.float64)


def _forests(
    encoded: Encoded, coding: Coding, sessions: Sessions, around: Circumstances, knobs: tuple[int, int, int], progress: Progress
) -> tuple[tuple[LeafForest, LeafForest, LeafForest, LeafForest], tuple[Any, ...], Any]:
    """The four forests, and the values in their leaves: what is kept is values by leaf, never rows of jobs."""
    trees, leaf, seed = knobs
    order = sessions.order
    request, state, runtime = encoded.request[order], encoded.state[order], encoded.runtime[order]
    limit = coding.limits()[request]
    within = np.flatnonzero(sessions.position > 0)
    again = np.flatnonzero(~sessions.first_of_user)
    fresh = np.flatnonzero(around.same == 0)
    everything = np.arange(len(order))

    def grown(x: Any, y: Any, rows: Ints, number: int) -> tuple[LeafForest, Ints]:
        rows = rows if len(rows) else everything[:1]
        progress(0.2 + 0.2 * number, ("gaps", "repetitions", "requests", "outcomes")[number])
        forest, places = grow(x[rows], _standard(y[rows]), trees=trees, leaf=leaf, seed=seed + 1000 * number)
        return forest, rows[places]

    gap, in_gap = grown(around.before, np.log1p(sessions.gap_s)[:, None], within, 0)
    same, in_same = grown(around.submitted, around.same[:, None], again, 1)
    requested, in_request = grown(around.submitted, _request_targets(coding, request), fresh, 2)
    ended, in_ended = grown(around.requested, _end_targets(state, runtime, limit), everything, 3)
    values = (
        sessions.gap_s[in_gap] if len(within) else np.zeros(len(in_gap)),
        around.same[in_same].astype(np.uint8),
        request[in_request].astype(np.int32),
        state[in_ended].astype(np.int32),
        runtime[in_ended],
        limit[in_ended],
    )
    return (gap, same, requested, ended), values, encoded.numbers[order][in_ended]


def _request_targets(coding: Coding, request: Ints) -> Floats:
    features = coding.features()
    return np.log1p(np.maximum(features, 0)).astype(np.float64)[request] if features.shape[1] else np.zeros((len(request), 1))


def _end_targets(state: Ints, runtime: Floats, limit: Floats) -> Floats:
    """State, run time, and what share of its limit a job used; whether it used all of it."""
    share = np.where(limit > 0, np.minimum(runtime / np.where(limit > 0, limit, 1.0), 1.2), 0.5)
    known = [state, np.log1p(np.nan_to_num(runtime)), np.nan_to_num(share, nan=0.5), runtime >= limit]
    return np.column_stack([np.asarray(column, np.float64) for column in known])


def _standard(y: Floats) -> Floats:
    """Columns with mean 0 and variance 1; the last two of an outcome count less."""
    scaled = (y - y.mean(0)) / (y.std(0) + 1e-9)
    if scaled.shape[1] == 4:
        scaled[:, 2:] *= _RATIO_WEIGHT
    return np.asarray(scaled, dtype=np.float64)


__all__ = ["ARRAY", "Learnt", "learn"]
