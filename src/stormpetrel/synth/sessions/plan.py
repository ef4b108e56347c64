"""Which sessions there will be, and when: the weeks of the log again, moved, thinned or multiplied as asked.

SessionBook + Wanted -> SessionPlan.chunks -> sessions in the order of their beginning, some ten thousand jobs at a time.

A new log follows the weeks of the old one (days, where the old one is short): who was active, how often, how much at a time.
Sessions are moved; what they hold is drawn anew. Beyond the end of the log, weeks are drawn from all of them. Each further
replica of the users follows other weeks, so that twice the users are not everybody twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.synth.contract import Wanted

DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S
JOBS_AT_ONCE: Final = 50_000
YEAR_BLOCKS: Final = 52
MOST_BLOCKS: Final = 5000  # at once
_FEWEST_WEEKS: Final = 4  # below that, days follow each other instead of weeks
MOST_USERS: Final = 5_000_000  # whose last job is remembered while others are made
MOST_GROWTH: Final = 20.0  # times as many jobs as the log, up or down, that a trend is carried on to
_MOST_OFTEN: Final = 2.0  # how often a session of a part of the users stands for those of the others
_FAR_SHIFT_S: Final = 2 * 3600.0  # how far a repeated session moves
_WHOLE: Final = 0.9  # of the log's length from which on a new log begins where the old one did


@dataclass(frozen=True, slots=True, eq=False)
class SessionBook:
    """The sessions of a log, block after block (a block is a week, or a day of a short log)."""

    user: Ints  # (sessions,)
    block: Ints
    start_s: Floats  # within the block
    jobs: Ints
    length_s: Floats
    mean_gap: Floats
    theme: Floats  # (sessions, themes) share of GPU jobs, largest size, usual run time, coarsely
    shift_s: Floats
    work: Floats  # core-seconds, coarsely
    block_s: float
    blocks: int
    growth: float  # of the number of jobs in a year, as a factor; 1 where no trend is visible

    def of_blocks(self) -> list[Ints]:
        """The rows of each block."""
        order = np.argsort(self.block, kind="stable")
        edges = np.searchsorted(self.block[order], np.arange(self.blocks + 1))
        return [order[begin:end] for begin, end in pairwise(edges)]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Sessions sorted by their beginning, in seconds from the beginning of the new log; jobs before `until_s` are complete."""

    user: Ints
    start_s: Floats
    jobs: Ints
    length_s: Floats
    mean_gap: Floats
    theme: Floats
    work: Floats
    until_s: float


class SessionPlan:
    """The sessions of one new log; `seed` decides on all of them."""

    def __init__(self, book: SessionBook, wanted: Wanted, *, users: int, weights: Floats) -> None:
        self._book = book
        self._rng = np.random.default_rng([wanted.seed, 1])
        self._weights = weights  # (sessions,) how many of each, on average
        self._rows = book.of_blocks()
        self._jobs_in = np.array([(book.jobs[rows] * weights[rows]).sum() for rows in self._rows])
        factor = wanted.users * float(np.clip(book.growth**wanted.later_years, 1 / MOST_GROWTH, MOST_GROWTH))
        planned = np.bincount(book.user, book.jobs * weights, minlength=users).astype(np.float64)
        self._shares = replicas(factor, planned, self._rng)  # (replicas, users)
        self.users = users
        self.replicas = len(self._shares)
        self._later = wanted.later_years != 0
        self._needed = self._length(wanted, factor)
        self.first_block = 0 if self._later else self._begin()
        self._turns = self._rng.integers(1, max(book.blocks, 2), size=self.replicas)
        self._rest = self._rng.random(self.replicas)  # (replicas,) of a session that did not fit into the block before
        left = weights * self._shares.sum(0)[book.user] * (book.block >= (self._recent if self._later else 0))
        if not left.any():
            raise UsageError("Nothing is left to generate under these conditions.", hint="Ask for another group, or other years.")

    @property
    def _recent(self) -> int:
        """The first block of the log's last year."""
        return max(0, self._book.blocks - YEAR_BLOCKS)

    def _length(self, wanted: Wanted, factor: float) -> float:
        """How many blocks the new log will have, about."""
        if wanted.jobs is not None:
            return wanted.jobs / max(float(self._jobs_in.mean()) * factor, 1e-9)
        return self._book.blocks if wanted.days is None else wanted.days * DAY_S / self._book.block_s

    def _begin(self) -> int:
        """A new log that is much shorter than the old one begins anywhere in it."""
        blocks = self._book.blocks
        if self._needed >= _WHOLE * blocks:
            return 0
        busy = np.flatnonzero(self._jobs_in[: blocks - int(self._needed)])
        return int(self._rng.choice(busy)) if len(busy) else 0

    def chunks(self) -> Iterator[Chunk]:
        """Sessions for ever."""
        parts: list[tuple[Ints, Ints, Floats]] = []
        jobs, turn, enough = 0, 0, min(int(self._needed) + 3, YEAR_BLOCKS)
        while True:
            for replica, shares in enumerate(self._shares):
                rows = self._rows[self._source(turn, replica)]
                if len(rows):
                    rows = np.repeat(rows, self._times(rows, shares, replica))
                    parts.append((rows, self._book.user[rows] + replica * self.users, self._starts(rows, turn, replica)))
                    jobs += int(self._book.jobs[rows].sum())
            turn += 1
            if parts and (jobs >= JOBS_AT_ONCE or turn >= enough):
                yield from self._chunks(parts, turn)
                parts, jobs, enough = [], 0, turn + min(2 * turn, MOST_BLOCKS)  # a log with few jobs has many blocks at once

    def _source(self, turn: int, replica: int) -> int:
        """The block of the log that this one follows."""
        blocks = self._book.blocks
        if self._later:
            return int(self._rng.integers(self._recent, blocks))
        at = self.first_block + turn
        if at >= blocks:
            return int(self._rng.integers(blocks))
        return int((at + self._turns[replica] * (replica > 0)) % blocks)

    def _times(self, rows: Ints, shares: Floats, replica: int) -> Ints:
        """(rows,) how many there are of each. Their sum, and that of those with GPUs, is as asked for: the rest is chance."""
        often = self._weights[rows] * shares[self._book.user[rows]]
        order = np.argsort(self._book.theme[rows, 0], kind="stable")
        steps = np.cumsum(np.append(self._rest[replica], often[order]))
        times = np.empty(len(rows), np.int64)
        times[order] = np.diff(np.floor(steps))
        self._rest[replica] = steps[-1] % 1.0
        return times

    def _starts(self, rows: Ints, turn: int, replica: int) -> Floats:
        """When they begin. A session that occurs twice, or that belongs to another replica, moves to another hour of it."""
        book = self._book
        shift = book.shift_s[rows] * self._rng.uniform(-1, 1, len(rows))
        again = np.concatenate([[False], rows[1:] == rows[:-1]]) if len(rows) else np.zeros(0, bool)
        shift = np.where(again | (replica > 0), self._rng.uniform(-1, 1, len(rows)) * _FAR_SHIFT_S, shift)
        return np.maximum(np.round(book.start_s[rows] + shift) + turn * book.block_s, 0.0)

    def _chunks(self, parts: list[tuple[Ints, Ints, Floats]], turn: int) -> Iterator[Chunk]:
        """The sessions of some blocks in order, not many more than `JOBS_AT_ONCE` jobs at a time."""
        rows, user, start = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(start, kind="stable")
        rows, user, start, book = rows[order], user[order], start[order], self._book
        until = turn * book.block_s - _FAR_SHIFT_S  # the next block's sessions may move back by that much
        jobs_until = np.cumsum(book.jobs[rows])
        pieces = max(1, int(jobs_until[-1]) // JOBS_AT_ONCE) if len(jobs_until) else 1
        edges = np.unique(np.searchsorted(jobs_until, np.arange(1, pieces) * JOBS_AT_ONCE) + 1)
        for part in np.split(np.arange(len(rows)), edges[edges < len(rows)]):
            rest = start[part[-1] + 1 :] if len(part) else start
            yield Chunk(
                user=user[part],
                start_s=start[part],
                jobs=book.jobs[rows[part]],
                length_s=book.length_s[rows[part]],
                mean_gap=book.mean_gap[rows[part]],
                theme=book.theme[rows[part]],
                work=book.work[rows[part]],
                until_s=min(until, rest[0]) if len(rest) else until,
            )


def replicas(factor: float, jobs: Floats, rng: np.random.Generator) -> Floats:
    """(replicas, users) who is there, and how often their sessions are: so that there are `factor` times as many jobs.

    A part of the users is taken evenly over large and small ones; as it never holds exactly that part of the jobs, its sessions
    are thinned or repeated. jobs: (users,) planned for each.
    """
    whole, part = int(factor), factor % 1.0
    if max(factor, 1) * len(jobs) > MOST_USERS:
        raise UsageError(f"{factor:g} times {len(jobs):,} users are too many.", hint=f"At most {MOST_USERS:,} can be made.")
    rows = [np.ones(len(jobs))] * whole
    there = np.argsort(-jobs, kind="stable")[: np.count_nonzero(jobs)]
    if part > 1e-9 and len(there):
        steps = np.floor(np.arange(len(there) + 1) * part + rng.random())
        chosen = there[np.diff(steps) > 0]
        chosen = chosen if len(chosen) else rng.choice(there, 1)
        shares = np.zeros(len(jobs))
        shares[chosen] = min(part * jobs.sum() / max(jobs[chosen].sum(), 1e-9), _MOST_OFTEN)
        rows.append(shares)
    return np.array(rows) if rows else np.zeros((1, len(jobs)))


def block_length_s(span_s: float) -> float:
    """Weeks follow each other, or days where the log is short."""
    return WEEK_S if span_s >= _FEWEST_WEEKS * WEEK_S else DAY_S


def growth_of(jobs_per_block: Floats, block_s: float) -> float:
    """By which factor the number of jobs grows in a year: the trend of the logarithm of weekly counts; 1 under ten weeks."""
    inner = jobs_per_block[:-1]  # the last block is not over
    busy = inner > 0
    if block_s < WEEK_S or busy.sum() < 10:
        return 1.0
    weeks = np.flatnonzero(busy)
    slope = np.polyfit(weeks, np.log(inner[busy]), 1)[0]
    return float(np.exp(np.clip(slope * YEAR_BLOCKS, -np.log(MOST_GROWTH), np.log(MOST_GROWTH))))
