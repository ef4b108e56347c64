from datetime import timedelta

import pytest

from stormpetrel.alarms import batch_rules
from stormpetrel.alarms.batch_rules import FEWEST_JOBS, applications_failing, batches_failing, wave
from stormpetrel.alarms.job_rules import JobRules
from tests.parts.alarm_jobs import DAY0, as_at_once, asked, assert_same, at, everyday, job, known

END = at(8)
USERS = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal")


def failing(user, n, *, start=at(6, hour=8), name="solve", state="FAILED"):
    return [job(user, f"n{1 + k % 4}", start + timedelta(minutes=k), run_s=300, state=state, name=name) for k in range(n)]


def test_a_users_batch_fails_as_one_from_the_tenth_failure_on():
    batch = failing("ann", FEWEST_JOBS + 2, name="fit", start=at(7, hour=8))
    rows = batches_failing(known(everyday(), batch), DAY0, END).rows
    assert rows["name"].unique().to_list() == ["ann"] and rows["part"].unique().to_list() == ["fit"]
    assert rows["at"].to_list() == [row["end_time"] for row in batch[FEWEST_JOBS - 1 :]]
    assert rows["since"][0] == batch[0]["end_time"]


def test_what_was_usual_is_a_share_of_the_jobs_before_and_nothing_where_there_were_hardly_any():
    batch = failing("ann", FEWEST_JOBS, name="fit", start=at(7, hour=8))
    before = [job("ann", "n1", at(day, hour=9), state="FAILED" if day == 1 else "COMPLETED", name="fit") for day in range(1, 6)]
    told = [
        batches_failing(known(everyday(), batch, more), DAY0, END).rows["usual"].to_list() for more in ([], before[:3], before)
    ]
    assert told == [[None], [None], [0.2]]


def test_nine_failures_are_no_batch():
    assert not batches_failing(known(everyday(), failing("ann", FEWEST_JOBS - 1, name="fit")), DAY0, END).rows.height


def test_a_batch_of_which_a_quarter_succeeds_does_not_fail_as_one():
    good = [job("ann", "n1", at(6, hour=8, minute=3 * k), run_s=60, name="fit") for k in range(8)]
    assert not batches_failing(known(everyday(), good, failing("ann", 24, name="fit")), DAY0, END).rows.height


def test_failures_that_are_nothing_new_are_no_news():
    week = [row for day in range(6) for row in failing("ann", 6, start=at(day, hour=8), name="fit")]
    assert not batches_failing(known(week, failing("ann", 20, name="fit")), at(6), END).rows.height


def test_an_application_fails_when_it_does_so_for_three_users():
    parts = [failing(user, 5, name="fit", start=at(6, hour=9)) for user in USERS[:3]]
    rows = applications_failing(known(everyday(), *parts), DAY0, END).rows
    assert rows["name"].unique().to_list() == ["fit"]
    two = [failing(user, 9, name="fit", start=at(6, hour=9)) for user in USERS[:2]]
    assert not applications_failing(known(everyday(), *two), DAY0, END).rows.height


def timeouts(users, *, start=at(6, hour=12), state="TIMEOUT", each=1):
    return [
        job(user, f"n{1 + k}", start + timedelta(minutes=k), run_s=60 + n, state=state)
        for k, user in enumerate(users)
        for n in range(each)
    ]


@pytest.mark.parametrize("outcome", ["TIMEOUT", "OUT_OF_MEMORY"])
def test_many_users_that_lose_jobs_in_the_same_way_are_a_wave(outcome):
    triggers = wave(known(everyday(), timeouts(USERS, state=outcome, each=2)), outcome, DAY0, END)
    assert triggers.rows["name"].unique().to_list() == ["c1"] and triggers.rows["usual"][0] < 0.1
    assert triggers.members.height == 2 * len(USERS)
    other = {"TIMEOUT": "OUT_OF_MEMORY", "OUT_OF_MEMORY": "TIMEOUT"}[outcome]
    assert not wave(known(everyday(), timeouts(USERS, state=outcome)), other, DAY0, END).rows.height


def test_a_hundred_timeouts_of_one_user_are_no_wave():
    assert not wave(known(everyday(), timeouts(["ann"] * 100)), "TIMEOUT", DAY0, END).rows.height


def test_what_happens_every_day_is_no_wave():
    daily = [row for day in range(8) for hour in range(0, 24, 3) for row in timeouts(USERS, start=at(day, hour=hour))]
    assert not wave(known(everyday(), daily), "TIMEOUT", at(6), END).rows.height


def test_there_is_no_wave_before_there_is_an_everyday_to_compare_with():
    assert not wave(known(everyday(days=1), timeouts(USERS, start=at(1))), "TIMEOUT", DAY0, END).rows.height


def test_a_batch_that_fails_is_told_though_its_user_had_other_jobs_that_day():
    good = [job("ann", "n1", at(7, hour=6, minute=k), run_s=60, name="fit") for k in range(90)]
    batch = [job("ann", "n2", at(7, hour=8), run_s=1, state="FAILED", name="fit") for _ in range(30)]
    rows = batches_failing(known(everyday(), good, batch), DAY0, END).rows
    assert rows.height and rows["since"].unique().to_list() == [batch[0]["end_time"]]


def test_a_batch_that_goes_on_failing_is_told_to_its_end():
    batch = failing("new", 60, name="fit", start=at(7, hour=8))
    assert batches_failing(known(everyday(), batch), DAY0, END).rows["at"].max() == batch[-1]["end_time"]


def test_a_batch_that_pauses_and_goes_on_carries_what_decided_each_time():
    first, second = (failing("ann", n, name="fit", start=start) for n, start in ((15, at(7, hour=8)), (6, at(7, hour=10))))
    earlier, later = (one for one in JobRules(at(7)).step(known(everyday(), first, second), END) if one.subject.name == "ann")
    assert (earlier.figure("deciding_lost"), earlier.figure("deciding_tried")) == (FEWEST_JOBS, FEWEST_JOBS)
    assert earlier.figure("tried") == 15 and later.figure("tried") == 6  # each job is counted once
    assert later.figure("deciding_tried") == 16  # with those before the pause


@pytest.mark.parametrize("rule", [batches_failing, applications_failing])
def test_a_look_at_losing_groups_alone_fires_where_a_look_at_every_group_does(monkeypatch, rule):
    given = list(asked(rule))
    monkeypatch.setattr(batch_rules, "_losing", lambda jobs, keys, _after, _now: jobs.select(keys).unique())
    assert_same(given, asked(rule))


@pytest.mark.parametrize("outcome", ["TIMEOUT", "OUT_OF_MEMORY"])
def test_a_look_at_a_few_seconds_tells_of_the_waves_that_a_look_at_weeks_tells_of(outcome):
    def rule(jobs, after, now):
        return wave(jobs, outcome, after, now)

    assert_same(asked(rule), asked(as_at_once(rule)))
