"""Sessions of users in a log, and the circumstances in which each of its jobs was submitted.

Encoded -> find_sessions -> Sessions; -> circumstances -> features of each job. The compiled generator builds the same features
while it makes jobs (`kernel.describe`): the two belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.synth.sessions.columns import Coding, Encoded
from stormpetrel.synth.sessions.kernel import LONG_AGO_S, NOTHING_YET, left_per_job, smoothed_gaps

LONGEST_PAUSE_S: Final = 3600.0  # a longer gap between two jobs of a user ends a session
SHORTEST_PAUSE_S: Final = 60.0
# A user who submits all day (or many behind one masked name) has shorter pauses: the gap that only a tenth of his gaps exceed.
PAUSE_QUANTILE: Final = 0.9
_FEWEST_GAPS: Final = 20
MOST_SHIFT_S: Final = 1800.0


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """The jobs by user and time, and the sessions in them; arrays of rows follow `order`."""

    order: Ints  # (jobs,) row numbers by user, then time
    first_of_user: npt.NDArray[np.bool_]
    gap_s: Floats  # since the same user's job before
    session: Ints  # (jobs,) which session
    position: Ints  # (jobs,) place within it
    begin: Ints  # (sessions,) place of the first job in `order`
    jobs: Ints  # (sessions,)
    length_s: Floats  # (sessions,) first to last submission
    mean_gap: Floats  # (sessions,) mean of log(1 + gap)
    shift_s: Floats  # (sessions,) how far it can be moved without meeting the neighbouring sessions of the same user


def find_sessions(encoded: Encoded, longest_s: float) -> Sessions:
    """Runs of jobs of one user without a pause. Those of a script that submits for months are cut: no week is without it."""
    submit, user = encoded.submit_s, encoded.user
    order = np.lexsort((np.arange(len(submit)), submit, user))
    times, users = submit[order], user[order]
    first = np.concatenate([[True], users[1:] != users[:-1]])
    gap = np.concatenate([[0.0], np.diff(times)])
    gap[first] = LONG_AGO_S
    starts = first | (gap > _pauses(users, first, gap, encoded.users)[users])
    since = times - times[np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))]
    starts |= np.diff(since // longest_s, prepend=0.0) > 0
    session = np.cumsum(starts) - 1
    begin = np.flatnonzero(starts)
    jobs = np.diff(np.append(begin, len(order)))
    position = np.arange(len(order)) - begin[session]
    within = np.where(position > 0, np.log1p(gap), 0.0)
    before = np.where(first[begin], MOST_SHIFT_S, gap[begin])
    after = np.append(before[1:], MOST_SHIFT_S)
    return Sessions(
        order=order,
        first_of_user=first,
        gap_s=gap,
        session=session,
        position=position,
        begin=begin,
        jobs=jobs,
        length_s=times[begin + jobs - 1] - times[begin],
        mean_gap=np.bincount(session, within, minlength=len(begin)) / np.maximum(jobs - 1, 1),
        shift_s=np.minimum(MOST_SHIFT_S, 0.5 * np.minimum(before, after)),
    )


def _pauses(users: Ints, first: npt.NDArray[np.bool_], gap: Floats, count: int) -> Floats:
    """(users,) the gap that ends a session of each."""
    pause = np.full(count, LONGEST_PAUSE_S)
    edges = np.append(np.flatnonzero(first), len(users))
    for begin, end in pairwise(edges):
        if end - begin > _FEWEST_GAPS:
            usual = float(np.quantile(gap[begin + 1 : end], PAUSE_QUANTILE))
            pause[users[begin]] = min(LONGEST_PAUSE_S, max(usual, SHORTEST_PAUSE_S))
    return pause


def user_habits(encoded: Encoded, coding: Coding, sessions: Sessions, small: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """(users, habits) what is usual for each: sizes, limits, run times, gaps, luck, number of jobs. Small users share one row."""
    user, count = encoded.user, np.bincount(encoded.user, minlength=encoded.users)
    features = coding.features()[encoded.request] if coding.features().shape[1] else np.zeros((len(user), 1), np.float32)
    gap = np.empty(len(user))
    gap[sessions.order] = np.log1p(sessions.gap_s)
    rows = [*np.log1p(np.maximum(features, 0)).T, np.log1p(np.nan_to_num(encoded.runtime)), gap, encoded.state == 0]
    habits = np.column_stack([np.bincount(user, row, minlength=encoded.users) for row in rows] + [count * np.log1p(count)])
    if small.any():
        habits[small] = habits[small].sum(0) * (count[small, None] / max(count[small].sum(), 1))
    return (habits / np.maximum(count, 1)[:, None]).astype(np.float32)


def session_themes(encoded: Encoded, coding: Coding, sessions: Sessions) -> Floats:
    """(sessions, themes) the share of jobs that ask for a GPU, the largest size, the usual run time: coarsely, in powers of two.

    Without them a new log has the right jobs at the wrong moments, and a scheduler fed with it the wrong queues.
    """
    request = encoded.request[sessions.order]
    sizes = np.log2(1.0 + np.maximum(coding.sizes()[request], 0))
    lengths = np.log2(1.0 + np.nan_to_num(encoded.runtime[sessions.order]))
    gpus = coding.gpus()[request].astype(np.float64)
    share, length = (np.bincount(sessions.session, row, minlength=len(sessions.begin)) / sessions.jobs for row in (gpus, lengths))
    return np.column_stack([share, np.round(np.maximum.reduceat(sizes, sessions.begin)), np.round(length)])


def session_work(encoded: Encoded, coding: Coding, sessions: Sessions) -> Floats:
    """(sessions,) core-seconds of their jobs, in steps of a fifth."""
    each = np.nan_to_num(encoded.runtime * coding.sizes()[encoded.request])[sessions.order]
    whole = np.bincount(sessions.session, each, minlength=len(sessions.begin))
    return np.where(whole > 0, 2.0 ** (np.round(4 * np.log2(np.maximum(whole, 1.0))) / 4), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Circumstances:
    """Features of each job by user and time: just before it is submitted, when its time is known, when its request is."""

    before: Any  # (jobs, features) at the user's job before
    submitted: Any  # (jobs, features)
    requested: Any  # (jobs, features)
    same: Floats  # (jobs,) 1 where the request is that of the user's job before


def circumstances(encoded: Encoded, coding: Coding, sessions: Sessions, habits: Any, themes: Floats) -> Circumstances:
    """What is known of each job at the three moments at which something is drawn."""
    order, first = sessions.order, sessions.first_of_user
    times, users = encoded.submit_s[order], encoded.user[order]
    wanted = coding.features()[encoded.request[order]]
    log_gap = np.log1p(sessions.gap_s)
    long_ago = np.log1p(LONG_AGO_S)
    one_back = _previous(log_gap, first, long_ago)
    two_back = _previous(one_back, first, long_ago)
    smooth = smoothed_gaps(log_gap, first)
    smooth_back = _previous(smooth, first, smoothed_gaps(np.array([long_ago]), np.array([True]))[0])
    known = np.column_stack([habits[users], np.log1p(sessions.jobs)[sessions.session], sessions.mean_gap[sessions.session],
                             themes[sessions.session]])  # fmt: skip
    result = np.column_stack([_previous(encoded.state[order].astype(float), first, NOTHING_YET),
                              _previous(np.nan_to_num(encoded.runtime[order], nan=NOTHING_YET), first, NOTHING_YET)])  # fmt: skip
    requested = np.column_stack(
        [_previous(column.astype(float), first, NOTHING_YET) for column in wanted.T] or [np.zeros((len(order), 0))]
    )
    end = times[sessions.begin + sessions.jobs - 1][sessions.session]
    request = encoded.request[order]
    same = (~first & (request == np.concatenate([[-1], request[:-1]]))).astype(np.float64)

    def at(moment: Floats, gap: Floats, gap_before: Floats, smoothed: Floats) -> Any:
        left = left_per_job(end - moment, sessions.jobs[sessions.session] - sessions.position,
                            sessions.length_s[sessions.session], sessions.jobs[sessions.session])  # fmt: skip
        now = np.column_stack([np.log1p(sessions.position), np.log1p(left), gap, gap_before, moment / 3600.0 % 24.0, smoothed])
        return np.column_stack([known, now, result, requested]).astype(np.float32)

    submitted = at(times, log_gap, one_back, smooth)
    return Circumstances(
        before=at(np.concatenate([times[:1], times[:-1]]), one_back, two_back, smooth_back),
        submitted=submitted,
        requested=np.column_stack([submitted, same, wanted]).astype(np.float32),
        same=same,
    )


def _previous(values: Floats, first: npt.NDArray[np.bool_], start: float) -> Floats:
    moved = np.concatenate([[start], values[:-1]]).astype(np.float64)
    moved[first] = start
    return moved
