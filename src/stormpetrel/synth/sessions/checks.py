"""Whether what a generator's file says fits together: the file comes from somewhere, and the compiled code does not look.

Learnt -> check_learnt -> nothing, or ModelFormatError.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelFormatError
from stormpetrel.synth.sessions.columns import PREFIXES, Coding
from stormpetrel.synth.sessions.features import LONGEST_PAUSE_S, MOST_SHIFT_S
from stormpetrel.synth.sessions.kernel import FEATURES, THEMES
from stormpetrel.synth.sessions.learning import Learnt
from stormpetrel.synth.sessions.plan import DAY_S, MOST_GROWTH, WEEK_S, SessionBook
from stormpetrel.synth.sessions.usable_log import INNER, RUNTIME
from stormpetrel.synth.workload import ARRAY, KNOWN, STATE, SUBMIT, WHO

_AGAIN: Final = "Fit it again: stormpetrel synth fit"
_MOST_BLOCKS: Final = 600_000  # weeks: more than a calendar has
_MOST_JOBS: Final = 1_000_000_000
_MOST_WORK: Final = 1e40  # core-seconds of a session
_MOST_NUMBER: Final = 1_000_000_000  # of a group or an account
_CALENDAR_S: Final = (-62_135_596_800.0, 253_402_300_799.0)  # the years 1 to 9999


def check_learnt(learnt: Learnt) -> None:
    """ModelFormatError where an index leads out of an array, or a number would never end."""
    for part, good in (
        ("columns", _columns_fit(learnt.coding)),
        ("sessions", _book_fits(learnt.book, learnt)),
        ("users", _users_fit(learnt)),
        ("values", _values_fit(learnt)),
        ("times", _times_fit(learnt)),
    ):
        if not good:
            raise ModelFormatError(f"The {part} of the generator do not fit together.", hint=_AGAIN)
    _check_forests(learnt)


def _columns_fit(coding: Coding) -> bool:
    requests, numbers = coding.requests, coding.numbers
    types = {**KNOWN, ARRAY: pl.Boolean}
    drawn = {STATE, RUNTIME, SUBMIT, *WHO, *INNER}
    made = {SUBMIT, *WHO, *requests.columns, *numbers}
    made |= ({STATE} if coding.states else set()) | ({RUNTIME} if coding.has_runtime else set())
    return (
        requests.height > 0
        and not drawn & {*requests.columns, *numbers}
        and all(types.get(name, dtype) == dtype for name, dtype in requests.schema.items())
        and not {*numbers} & {*requests.columns, *KNOWN}
        and all(coding.dtypes.get(name) in ("Int64", "Float64") for name in numbers)
        and len({*coding.columns}) == len(coding.columns)
        and SUBMIT in coding.columns
        and {*coding.columns} <= made
        and all(re.fullmatch(f"(new){{0,20}}{usual}", coding.prefixes[name]) for name, usual in PREFIXES.items())
    )


def _book_fits(book: SessionBook, learnt: Learnt) -> bool:
    sessions = len(book.user)
    columns = (book.block, book.start_s, book.jobs, book.length_s, book.mean_gap, book.theme, book.shift_s, book.work)
    return (
        all(len(column) == sessions > 0 for column in columns)
        and book.block_s in (DAY_S, WEEK_S)
        and 0 < book.blocks <= _MOST_BLOCKS
        and 0.99 / MOST_GROWTH <= book.growth <= 1.01 * MOST_GROWTH
        and book.theme.shape[1] == THEMES
        and _between(book.theme[:, 0], 0, 1 + 1e-9)
        and _inside(book.user, learnt.users)
        and _inside(book.block, book.blocks)
        and _between(book.jobs, 1, _MOST_JOBS)
        and int(book.jobs.sum(dtype=np.float64)) == learnt.jobs
        and _between(book.start_s, 0, book.block_s)
        and _between(book.shift_s, 0, MOST_SHIFT_S)
        and _between(book.length_s, 0, book.block_s)
        and _between(book.work, 0, _MOST_WORK)
        and bool(np.isfinite(book.mean_gap).all() and np.isfinite(book.theme).all())
    )


def _users_fit(learnt: Learnt) -> bool:
    pairs, owners = learnt.pairs, learnt.pairs[:, 0]
    return (
        len(learnt.habit_of) == len(learnt.jobs_of) == learnt.users
        and _inside(learnt.habit_of, len(learnt.habits))
        and bool(np.isfinite(learnt.habits).all())
        and _between(learnt.jobs_of, 0, _MOST_JOBS)
        and pairs.shape[1] == 3
        and len(pairs) == len(learnt.pair_weight) > 0
        and bool(np.all(np.diff(owners) >= 0))
        and _between(owners, -1, learnt.users - 1)
        and _between(pairs[:, 1:], -1, _MOST_NUMBER)
        and _between(learnt.pair_weight, 0, 1 + 1e-9)
        and (owners[0] == -1 or len(np.unique(owners)) == learnt.users)  # every user has a row, or that of all small ones
    )


def _values_fit(learnt: Learnt) -> bool:
    gap, _same, request, state, runtime, limit = learnt.values
    return (
        _between(gap, 0, LONGEST_PAUSE_S)
        and _inside(request, learnt.coding.requests.height)
        and _inside(state, max(len(learnt.coding.states), 1))
        and _between(runtime[~np.isnan(runtime)], 0, np.finfo(np.float64).max)
        and _between(limit[~np.isnan(limit)], 0, np.finfo(np.float64).max)
        and learnt.numbers.shape[1] == len(learnt.coding.numbers)
        and not bool(np.isinf(learnt.numbers).any())
    )


def _times_fit(learnt: Learnt) -> bool:
    return (
        _CALENDAR_S[0] <= learnt.begin_s <= _CALENDAR_S[1]
        and 0 <= learnt.origin_s < DAY_S
        and 0 <= learnt.span_s <= _CALENDAR_S[1] - _CALENDAR_S[0]
    )


def _check_forests(learnt: Learnt) -> None:
    requested = learnt.features.shape[1]
    known = learnt.habits.shape[1] + FEATURES + requested
    gap, same, request, *ended = (len(values) for values in learnt.values)
    places = (gap, same, request, min(*ended, len(learnt.numbers)))
    for forest, values, columns in zip(learnt.forests, places, (known, known, known, known + 1 + requested), strict=True):
        forest.check(columns, values)


def _inside(numbers: Any, count: int) -> bool:
    return _between(numbers, 0, count - 1)


def _between(numbers: Any, least: float, most: float) -> bool:
    """Whether all are, and none is NaN."""
    return bool(np.all((numbers >= least) & (numbers <= most)))
