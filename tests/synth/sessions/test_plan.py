"""Which sessions there will be: the weeks of the log again, as many as asked for, in order, some at a time."""

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.synth.contract import Wanted
from stormpetrel.synth.sessions import plan as session_plan
from stormpetrel.synth.sessions.plan import DAY_S, WEEK_S, SessionBook, SessionPlan, block_length_s, growth_of, replicas

USERS = 30


def book_of(sessions=600, blocks=12, jobs=8, **changes):
    """Sessions of thirty users, the first with most, over twelve weeks; the last fifth of each week with GPUs."""
    generator = np.random.default_rng(0)
    start = generator.uniform(0, WEEK_S, sessions)
    shares = 1.0 / np.arange(1, USERS + 1)
    made = SessionBook(
        user=generator.choice(USERS, sessions, p=shares / shares.sum()),
        block=generator.integers(0, blocks, sessions),
        start_s=start,
        jobs=np.full(sessions, jobs),
        length_s=np.full(sessions, 600.0),
        mean_gap=np.full(sessions, 4.0),
        theme=np.column_stack([start > 0.8 * WEEK_S, np.zeros((sessions, 2))]).astype(float),
        shift_s=np.full(sessions, 300.0),
        work=np.full(sessions, 1000.0),
        block_s=WEEK_S,
        blocks=blocks,
        growth=1.0,
    )
    return replace(made, **changes)


def plan_of(book, weights=None, **wanted):
    return SessionPlan(book, Wanted(**wanted), users=USERS, weights=np.ones(len(book.user)) if weights is None else weights)


def chunks_of(plan, count):
    return list(islice(plan.chunks(), count))


def test_the_sessions_of_a_plan_come_in_order_and_for_ever():
    chunks = chunks_of(plan_of(book_of()), 4)
    starts = np.concatenate([chunk.start_s for chunk in chunks])
    assert all(np.all(np.diff(chunk.start_s) >= 0) for chunk in chunks) and starts.max() > 100 * WEEK_S and starts.min() >= 0


def test_what_is_complete_stays_complete():
    chunks = chunks_of(plan_of(book_of(), users=2.5), 5)
    for before, after in pairwise(chunks):
        assert after.start_s.min() >= before.until_s and after.until_s >= before.until_s


def test_the_first_weeks_are_those_of_the_log():
    book = book_of()
    chunk = chunks_of(plan_of(book), 1)[0]
    week = chunk.start_s // WEEK_S
    for number in range(1, 12):
        assert abs(np.sum(week == number) - np.sum(book.block == number)) <= 2  # some move over midnight


def test_sessions_move_but_not_far():
    book = book_of()
    chunk = chunks_of(plan_of(book), 1)[0]
    old = np.sort(book.block * WEEK_S + book.start_s)
    moved = np.abs(np.sort(chunk.start_s)[: len(old)] - old)
    assert np.median(moved) > 0 and moved.max() <= 600


@pytest.mark.parametrize(("jobs", "users"), [(400, 1.0), (8, 60.0)])
def test_not_many_more_jobs_than_wanted_at_once(monkeypatch, jobs, users):
    monkeypatch.setattr(session_plan, "JOBS_AT_ONCE", 5000)
    sizes = [int(chunk.jobs.sum()) for chunk in chunks_of(plan_of(book_of(jobs=jobs), users=users), 12)]
    assert max(sizes) <= 2 * 5000 + jobs and min(sizes) > 0


def test_a_session_larger_than_a_chunk_is_a_chunk(monkeypatch):
    monkeypatch.setattr(session_plan, "JOBS_AT_ONCE", 50)
    book = book_of()
    book.jobs[7] = 1000
    chunks = chunks_of(plan_of(book, jobs=600 * 8), 60)
    assert all(len(chunk.user) for chunk in chunks)
    assert all(after.start_s.min() >= before.until_s for before, after in pairwise(chunks))


def test_a_log_with_few_jobs_has_many_blocks_at_once():
    sparse = book_of(sessions=20, blocks=1000)
    assert chunks_of(plan_of(sparse, jobs=10_000), 4)[-1].until_s > 1000 * WEEK_S


def test_a_short_new_log_begins_anywhere_in_a_long_one():
    assert len({plan_of(book_of(), days=7, seed=seed).first_block for seed in range(20)}) > 5
    assert plan_of(book_of(), days=84).first_block == 0


def test_replicas_follow_other_weeks():
    book = book_of()
    busy = np.bincount(book.block, minlength=12)
    chunk = chunks_of(plan_of(book, users=2), 1)[0]
    week = np.minimum((chunk.start_s // WEEK_S).astype(int), 12)
    first, second = (np.bincount(week[chunk.user // USERS == replica], minlength=13)[:12] for replica in (0, 1))
    assert np.corrcoef(first, busy)[0, 1] > 0.9 > 0.7 > np.corrcoef(second, busy)[0, 1]


def test_weights_thin_and_multiply_sessions():
    book = book_of()
    gpu = book.theme[:, 0] > 0
    chunk = chunks_of(plan_of(book, weights=np.where(gpu, 1.5, 0.5)), 1)[0]
    inside = chunk.start_s < 11.9 * WEEK_S
    assert np.sum(chunk.theme[inside, 0] > 0) == pytest.approx(1.5 * gpu.sum(), rel=0.08)
    assert np.sum(chunk.theme[inside, 0] == 0) == pytest.approx(0.5 * (~gpu).sum(), rel=0.08)


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 1.3, 2.0, 3.75])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_so_many_users_with_so_many_jobs(factor, seed):
    jobs = 1000.0 / np.arange(1, 101)
    shares = replicas(factor, jobs, np.random.default_rng(seed))
    assert np.count_nonzero(shares) == pytest.approx(100 * factor, abs=1)
    assert (shares * jobs).sum() == pytest.approx(factor * jobs.sum(), rel=0.01)


def test_less_than_one_user_is_one_who_comes_less_often():
    shares = replicas(0.25, np.array([0.0, 100.0, 0.0]), np.random.default_rng(0))
    assert shares.tolist() == [[0.0, 0.25, 0.0]]


def test_users_outside_the_conditions_are_never_chosen():
    jobs = np.where(np.arange(50) < 5, 10.0, 0.0)
    assert all(replicas(0.5, jobs, np.random.default_rng(seed))[0, :5].any() for seed in range(10))
    assert not any(replicas(0.5, jobs, np.random.default_rng(seed))[0, 5:].any() for seed in range(10))


def test_nobody_left_is_one_sentence():
    with pytest.raises(UsageError, match="Nothing is left to generate"):
        plan_of(book_of(), weights=np.zeros(600))


def test_nobody_in_the_last_year_is_one_sentence_where_later_years_are_asked_for():
    book = book_of(blocks=200)
    early = (book.block < 100).astype(float)
    assert len(chunks_of(plan_of(book, weights=early), 1)[0].user)
    with pytest.raises(UsageError, match="Nothing is left to generate"):
        plan_of(book, weights=early, later_years=1)


def test_later_years_follow_the_last_year_and_grow():
    book = book_of(blocks=104, sessions=3000, growth=2.0)
    book.theme[:, 1] = book.block
    chunk = chunks_of(plan_of(book, later_years=1, days=364), 1)[0]
    assert chunk.theme[:, 1].min() >= 52
    assert np.sum(chunk.start_s < 52 * WEEK_S) == pytest.approx(2 * np.sum(book.block >= 52), rel=0.1)


@pytest.mark.parametrize("yearly", [0.5, 1.0, 3.0])
def test_growth_is_that_of_a_year(yearly):
    counts = 200 * yearly ** (np.arange(60) / 52)
    assert growth_of(counts, WEEK_S) == pytest.approx(yearly, rel=0.01)


def test_growth_is_bounded_and_needs_ten_weeks():
    assert growth_of(2.0 ** np.arange(30), WEEK_S) == pytest.approx(session_plan.MOST_GROWTH)
    assert growth_of(2.0 ** np.arange(10), WEEK_S) == 1 and growth_of(2.0 ** np.arange(30), DAY_S) == 1


def test_an_outage_is_no_decline():
    counts = np.full(40, 100.0)
    counts[20:24] = 0
    assert growth_of(counts, WEEK_S) == pytest.approx(1)


def test_short_logs_go_by_days():
    assert block_length_s(27 * DAY_S) == DAY_S and block_length_s(28 * DAY_S) == WEEK_S
