"""The compiled heart: it sees what the trees were grown on, and keeps limits."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.sessions.columns import encode, usable
from stormpetrel.synth.sessions.features import circumstances, find_sessions, session_themes, user_habits
from stormpetrel.synth.sessions.generator import _fresh_memory
from stormpetrel.synth.sessions.kernel import (
    AT,
    GAP,
    GAP_BEFORE,
    LONG_AGO_S,
    NOTHING_YET,
    REQUEST,
    RUNTIME,
    SMOOTHED,
    SMOOTHING,
    STATE,
    describe,
    draw,
    run_time,
    shaken,
)
from tests.synth.made_workloads import site_workload, with_columns


def replayed(encoded, coding, sessions, habits, themes):
    """The jobs of a log, described as the generator describes those that it makes: (before, submitted), each (jobs, features)."""
    features = coding.features()
    begin = encoded.submit_s[0] - encoded.submit_s[0] % 3600.0
    origin = begin % 86400.0
    memory = _fresh_memory(encoded.users)
    memory = memory[0] if isinstance(memory, tuple) else memory  # (users, slots)
    before, submitted = [], []
    x = np.empty(500, np.float32)
    for row, job in enumerate(sessions.order):
        session = sessions.session[row]
        first = sessions.order[sessions.begin[session]]
        user, position = encoded.user[job], int(sessions.position[row])
        mine, moment = memory[user], encoded.submit_s[job] - begin
        about = (
            sessions.jobs[session], sessions.mean_gap[session], themes[session],
            encoded.submit_s[first] - begin + origin, sessions.length_s[session],
        )  # fmt: skip
        if position:
            width = describe(x, habits[user], about, position, mine[AT] + origin, mine, features)
            before.append(x[:width].copy())
        gap = LONG_AGO_S if mine[REQUEST] < 0 else moment - mine[AT]
        mine[GAP_BEFORE], mine[GAP] = mine[GAP], np.log1p(gap)
        mine[SMOOTHED] = SMOOTHING * mine[SMOOTHED] + (1 - SMOOTHING) * mine[GAP]
        width = describe(x, habits[user], about, position, moment + origin, mine, features)
        submitted.append(x[:width].copy())
        mine[AT], mine[REQUEST], mine[STATE] = moment, encoded.request[job], encoded.state[job]
        mine[RUNTIME] = NOTHING_YET if np.isnan(encoded.runtime[job]) else encoded.runtime[job]
    return np.array(before), np.array(submitted)


def test_a_job_is_described_to_the_generator_as_it_was_to_the_trees():
    row = pl.int_range(pl.len())
    log = usable(with_columns(site_workload(700), runtime_s=pl.when(row % 9 != 0).then("runtime_s")))
    coding, encoded, _ = encode(log, fewest=20)
    sessions = find_sessions(encoded, 7 * 86400.0)
    habits = user_habits(encoded, coding, sessions, np.bincount(encoded.user) < 20)
    themes = session_themes(encoded, coding, sessions)
    learnt = circumstances(encoded, coding, sessions, habits, themes)
    before, submitted = replayed(encoded, coding, sessions, habits, themes)
    assert submitted.shape == learnt.submitted.shape and len(before) > 300
    np.testing.assert_allclose(submitted, learnt.submitted, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(before, learnt.before[sessions.position > 0], rtol=2e-5, atol=1e-4)
    np.testing.assert_array_equal(
        learnt.requested[:, -coding.features().shape[1] :], coding.features()[encoded.request[sessions.order]]
    )


def test_a_draw_is_a_value_of_the_leaf_that_the_row_falls_into():
    none = np.array([-1, -1], np.int32)
    forest = (
        np.array([1, *none], np.int32), np.array([2, *none], np.int32), np.array([0, -2, -2], np.int32),
        np.array([0.5, 0, 0], np.float32), np.array([0]), np.array([0, 0, 3]), np.array([7, 3, 4], np.int32),
    )  # fmt: skip
    assert {draw(forest, np.zeros(1, np.float32)) for _ in range(200)} == {0, 1, 2}
    assert {draw(forest, np.ones(1, np.float32)) for _ in range(200)} == {3, 4, 5, 6}


@pytest.mark.parametrize(
    ("seen", "seen_limit", "limit", "made"),
    [
        (50, 100, 80, 50),  # within the limit: as it was
        (100, 100, 80, 80),  # used all of it: uses all of it
        (107, 100, 80, 87),  # seven seconds of grace
        (90, 100, 80, 72),  # would not fit: the same share
        (50, np.nan, 80, 50),
        (50, 100, np.nan, 50),
    ],
)
def test_a_run_time_follows_the_limit(seen, seen_limit, limit, made):
    assert run_time(float(seen), float(seen_limit), float(limit)) == made


def test_a_run_time_without_a_limit_of_its_own_still_keeps_the_new_one():
    assert all(0 <= run_time(500.0, np.nan, 80.0) <= 80 for _ in range(100))


def test_a_run_time_is_shaken_on_its_side_of_the_limit():
    assert all(shaken(99.9, 100.0, 0.05) <= 100 for _ in range(200))
    assert all(shaken(103.0, 100.0, 0.05) > 100 for _ in range(200))
    assert shaken(100.0, 100.0, 0.05) == 100 and shaken(0.0, 100.0, 0.05) == 0
    assert len({shaken(5000.0, np.nan, 0.01) for _ in range(50)}) == 50


def test_a_run_time_that_is_not_known_stays_unknown():
    assert np.isnan(shaken(np.nan, 100.0, 0.01)) and np.isnan(run_time(np.nan, 50.0, 60.0))
