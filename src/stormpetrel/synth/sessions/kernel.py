"""The compiled heart of the generator: sessions in, jobs out, one draw after the other.

For each session, for each of its jobs: the gap to the job before, whether the same is requested again, what is requested, what
becomes of it. Each is drawn from a forest (`leaf_forest`) in the circumstances of the moment. One file: numba's cache on disk
looks at the file of a function, not at those it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit

Compiled = TypeVar("Compiled", bound=Callable[..., Any])

LONG_AGO_S: Final = 1e6  # the gap before a user's first job
NOTHING_YET: Final = -2.0  # feature of "the job before" where there is none
SMOOTHING: Final = 0.85  # weight of what was in the smoothed gap
LEAST_LEFT: Final = 0.25  # of the mean gap: a session that is late does not hurry more than that
TRIES: Final = 8  # rows of like circumstances among which the one with the most similar limit gives the run time
OVERRUN_BLUR: Final = 5.0  # seconds beyond a limit are few: they are shaken more
# Of a user, between two of his jobs: time, two gaps, smoothed gap, request, state, run time.
AT, GAP, GAP_BEFORE, SMOOTHED, REQUEST, STATE, RUNTIME = range(7)
SLOTS: Final = 7
_NOW: Final = 6  # features of the moment: position, left, gap, gap before, hour, smoothed gap
THEMES: Final = 3  # share of GPU jobs, largest size, usual run time
_KNOWN: Final = 2 + THEMES  # features of the session: jobs, mean gap, themes
_RESULT: Final = 2  # features of the job before: state, run time
FEATURES: Final = _KNOWN + _NOW + _RESULT  # in addition to habits and requests


def _compiled(function: Compiled) -> Compiled:
    return cast("Compiled", njit(cache=True)(function))


@_compiled
def smoothed_gaps(log_gap: Any, first: Any) -> Any:
    """(jobs,) exponentially smoothed log gaps of each user; a user's memory begins with a long gap."""
    smooth = np.empty(len(log_gap))
    start = np.log1p(LONG_AGO_S)
    kept = start
    for row in range(len(log_gap)):
        if first[row]:
            kept = start
        kept = SMOOTHING * kept + (1.0 - SMOOTHING) * log_gap[row]
        smooth[row] = kept
    return smooth


@_compiled
def left_per_job(left_s: Any, jobs_left: Any, length_s: Any, jobs: Any) -> Any:
    """Seconds that a session has left for each job that is still to come."""
    mean = length_s / np.maximum(jobs - 1, 1)
    return np.maximum(left_s / np.maximum(jobs_left, 1), LEAST_LEFT * mean)


@_compiled
def draw(forest: Any, x: Any) -> int:
    """The place of a value in the leaf that `x` falls into, of a tree chosen at random."""
    left, right, feature, threshold, roots, first, count = forest
    node = roots[np.random.randint(len(roots))]
    while left[node] >= 0:
        node = left[node] if x[feature[node]] <= threshold[node] else right[node]
    return int(first[node] + np.random.randint(count[node]))


@_compiled
def copy(values: Any, x: Any, at: int) -> None:
    """Write the values into `x` from `at` on: a slice would take the compiler half a second for each kind of them."""
    for place in range(len(values)):
        x[at + place] = values[place]


@_compiled
def describe(x: Any, habits: Any, session: Any, position: int, moment_s: float, memory: Any, features: Any) -> int:
    """Write the circumstances of a job into `x`; how many they are. Mirrors `features.circumstances`."""
    jobs, mean_gap, theme, start_s, length_s = session
    at = len(habits)
    copy(habits, x, 0)
    x[at] = np.log1p(jobs)
    x[at + 1] = mean_gap
    copy(theme, x, at + 2)
    at += _KNOWN
    x[at] = np.log1p(position)
    mean = length_s / max(jobs - 1, 1)
    x[at + 1] = np.log1p(max((start_s + length_s - moment_s) / max(jobs - position, 1), LEAST_LEFT * mean))
    x[at + 2] = memory[GAP]
    x[at + 3] = memory[GAP_BEFORE]
    x[at + 4] = moment_s / 3600.0 % 24.0
    x[at + 5] = memory[SMOOTHED]
    at += _NOW
    x[at] = memory[STATE]
    x[at + 1] = memory[RUNTIME]
    at += _RESULT
    if memory[REQUEST] < 0:
        for place in range(features.shape[1]):
            x[at + place] = NOTHING_YET
    else:
        copy(features[int(memory[REQUEST])], x, at)
    return int(at + features.shape[1])


@_compiled
def run_time(seen_s: float, seen_limit_s: float, limit_s: float) -> float:
    """The run time of a job with this limit, after that of another one: never beyond the limit unless that one was."""
    if np.isnan(seen_s) or np.isnan(limit_s):
        return seen_s
    if not np.isnan(seen_limit_s) and seen_s >= seen_limit_s:
        return limit_s + (seen_s - seen_limit_s)
    if seen_s <= limit_s:
        return seen_s
    if np.isnan(seen_limit_s) or seen_limit_s <= 0:
        return float(np.floor(limit_s * np.random.random()))
    return float(np.floor(seen_s / seen_limit_s * limit_s))


@_compiled
def shaken(seconds: float, limit_s: float, blur: float) -> float:
    """The run time moved by some percent, on the same side of its limit: no job has that of a job of the log."""
    if np.isnan(seconds) or np.isnan(limit_s) or seconds < limit_s:
        moved = seconds * np.exp(blur * np.random.normal())
        return float(moved) if np.isnan(limit_s) or np.isnan(seconds) else float(min(moved, limit_s))
    return float(limit_s + (seconds - limit_s) * np.exp(OVERRUN_BLUR * blur * np.random.normal()))


@_compiled
def outcome(forest: Any, x: Any, runtimes: Any, limits: Any, limit_s: float) -> int:
    """The place of an outcome: of some in like circumstances, the one whose limit is nearest."""
    best = draw(forest, x)
    if np.isnan(limit_s):
        return best
    wanted = np.log1p(max(limit_s, 0.0))
    distance = abs(np.log1p(max(limits[best], 0.0)) - wanted) if not np.isnan(limits[best]) else 1e9
    for _ in range(TRIES - 1):
        if distance == 0.0:
            break
        other = draw(forest, x)
        away = abs(np.log1p(max(limits[other], 0.0)) - wanted) if not np.isnan(limits[other]) else 1e9
        if away < distance:
            best, distance = other, away
    return best


@_compiled
def nearer(balance: float, work: float, other: float) -> bool:
    """Whether the other job's work leaves the balance of work nearer to nothing."""
    return bool(abs(balance - other) < abs(balance - work))


@_compiled
def generate(
    sessions: Any, origin_s: float, habits: Any, habit_of: Any, memory: Any, features: Any, limits: Any, sizes: Any,
    forests: Any, values: Any, numbers: Any, ledger: Any, band: float, blur: float, seed: int,
) -> Any:  # fmt: skip
    """Jobs of these sessions.

    sessions: user, start, jobs, length, mean gap, work (each (sessions,)), themes (sessions, themes);
    forests: gap, same, request, outcome; values: gap, same, request, state, run time, limit in the order of the leaves.
    Times count from the log's beginning; `origin_s` is its time of day. The memory of the users goes on from call to call,
    and so does the ledger: the work that the sessions so far should have brought, less what they did. Where that is more than
    `band`, the outcome of two that brings it nearer to nothing is taken: else a few large jobs decide on a machine's load.
    """
    np.random.seed(seed)
    user, start, jobs, length, mean_gap, theme, work = sessions
    gap_forest, same_forest, request_forest, outcome_forest = forests
    gap_values, same_values, request_values, state_values, runtime_values, limit_values = values
    total = jobs.sum()
    submit = np.empty(total)
    who = np.empty(total, np.int64)
    which = np.empty(total, np.int64)  # session
    request = np.empty(total, np.int64)
    state = np.empty(total, np.int64)
    runtime = np.empty(total)
    extra = np.empty((total, numbers.shape[1]))
    x = np.empty(habits.shape[1] + FEATURES + 2 * features.shape[1] + 1, np.float32)
    row = 0
    for s in range(len(jobs)):
        mine = memory[user[s]]
        habit = habits[habit_of[user[s]]]
        about = (jobs[s], mean_gap[s], theme[s], start[s] + origin_s, length[s])
        moment = start[s]
        ledger[0] += work[s]
        gap = LONG_AGO_S if mine[REQUEST] < 0 else max(moment - mine[AT], 0.0)
        for position in range(jobs[s]):
            if position:
                describe(x, habit, about, position, moment + origin_s, mine, features)
                gap = gap_values[draw(gap_forest, x)]
                moment += gap
            mine[GAP_BEFORE] = mine[GAP]
            mine[GAP] = np.log1p(gap)
            mine[SMOOTHED] = SMOOTHING * mine[SMOOTHED] + (1.0 - SMOOTHING) * mine[GAP]
            at = describe(x, habit, about, position, moment + origin_s, mine, features)
            again = mine[REQUEST] >= 0 and same_values[draw(same_forest, x)] > 0
            next_request = int(mine[REQUEST]) if again else request_values[draw(request_forest, x)]
            x[at] = 1.0 if again else 0.0
            copy(features[next_request], x, at + 1)
            place = outcome(outcome_forest, x, runtime_values, limit_values, limits[next_request])
            seconds = run_time(runtime_values[place], limit_values[place], limits[next_request])
            if abs(ledger[0]) > band:
                second = outcome(outcome_forest, x, runtime_values, limit_values, limits[next_request])
                other = run_time(runtime_values[second], limit_values[second], limits[next_request])
                if nearer(ledger[0], seconds * sizes[next_request], other * sizes[next_request]):
                    place, seconds = second, other
            if not np.isnan(seconds):
                ledger[0] -= seconds * sizes[next_request]
            seconds = shaken(seconds, limits[next_request], blur)
            submit[row], who[row], which[row], request[row] = moment, user[s], s, next_request
            state[row], runtime[row] = state_values[place], seconds
            copy(numbers[place], extra[row], 0)
            mine[AT], mine[REQUEST], mine[STATE] = moment, next_request, state_values[place]
            mine[RUNTIME] = NOTHING_YET if np.isnan(seconds) else seconds
            row += 1
    return submit, who, which, request, state, runtime, extra
