"""Whose history a job belongs to, and what stands in for a request."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.jobs.history.keys import FEW, SPACES, families, family, key, keys_of_few, stand_ins, with_request
from stormpetrel.jobs.moments import Moment, known_from
from tests.jobs.logs import made_jobs, make_log, small_logs

SPACE_NAMES = tuple(space.name for space in SPACES)

SIZES = {"asked_cpus": ("req_cpus", "cpus"), "asked_nodes": ("req_nodes", "nodes"), "asked_gpus": ("req_gpus", "gpus")}


def keys_of(jobs):
    return with_request(jobs, {}).select(key(space) for space in SPACES)


def test_every_space_leans_on_one_before_it():
    for place, space in enumerate(SPACES):
        assert space.parent is None if place == 0 else space.parent in SPACE_NAMES[:place]
    assert len(set(SPACE_NAMES)) == len(SPACES)


def test_keys_are_made_of_what_is_known_at_submission():
    assert {known_from(column) for space in SPACES for column in space.columns} == {Moment.SUBMIT}


@pytest.mark.parametrize("asked", SIZES)
def test_the_allocation_stands_in_only_where_no_job_says_what_it_asked_for(asked):
    requested, allocated = SIZES[asked]
    jobs = make_log(20).with_columns(pl.lit(2).cast(pl.Int64).alias(allocated), pl.lit(None, dtype=pl.Int64).alias(requested))
    assert stand_ins(jobs)[asked] == allocated
    first_says = pl.when(pl.int_range(pl.len()) == 0).then(3).cast(pl.Int64).alias(requested)
    assert asked not in stand_ins(jobs.with_columns(first_says))
    assert asked not in stand_ins(jobs.with_columns(pl.lit(None, dtype=pl.Int64).alias(allocated)))


def test_nothing_stands_in_for_the_requests_of_an_empty_log():
    assert stand_ins(make_log(5).head(0)) == {}


def test_a_missing_request_stays_missing_where_others_have_one():
    jobs = made_jobs({"submit": 0, "req_cpus": None, "cpus": 8}, {"submit": 1, "req_cpus": 4, "cpus": 8})
    assert with_request(jobs, stand_ins(jobs))["asked_cpus"].to_list() == [None, 4]
    alone = jobs.head(1)
    assert with_request(alone, stand_ins(alone))["asked_cpus"].to_list() == [8]


def test_a_key_is_null_where_what_it_is_about_is_unknown():
    nothing = made_jobs(
        dict.fromkeys(("user", "job_name", "partition", "work_dir", "time_limit_s", "req_cpus", "req_nodes")) | {"submit": 0}
    )
    keys = keys_of(nothing).row(0, named=True)
    assert keys["site"] is not None and keys["user"] is not None
    assert {name for name, text in keys.items() if text is None} == set(SPACE_NAMES) - {"site", "user"}


def test_jobs_that_agree_in_the_columns_of_a_space_share_its_key():
    one = {"submit": 0, "job_name": "fit_1", "time_limit_s": 600.0}
    keys = keys_of(made_jobs(one, {**one, "submit": 9, "job_name": "fit_2"}, {**one, "time_limit_s": 700.0}))
    assert all(keys[name][0] == keys[name][1] for name in SPACE_NAMES)
    differ = {name for name in SPACE_NAMES if keys[name][0] != keys[name][2]}
    assert differ == {"shape", "user_limit", "user_shape", "retry"}


NAMES = st.text("ab/ -", min_size=1, max_size=4) | st.none()


@settings(max_examples=60, deadline=None)
@given(NAMES, NAMES, NAMES, NAMES)
def test_other_users_or_directories_have_other_keys(user, directory, other_user, other_directory):
    keys = keys_of(
        made_jobs(
            {"submit": 0, "user": user, "work_dir": directory or "."},
            {"submit": 0, "user": other_user, "work_dir": other_directory or "."},
        )
    )
    same = (user, directory or ".") == (other_user, other_directory or ".")
    assert (keys["user_directory"][0] == keys["user_directory"][1]) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"user": "a\x1fb", "work_dir": "c"}, {"user": "a", "work_dir": "b\x1fc"}),
        ({"user": None, "work_dir": "c"}, {"user": "\x00", "work_dir": "c"}),
    ],
    ids=["separator", "null"],
)
def test_hostile_names_do_not_share_a_key(one, other):
    keys = keys_of(made_jobs({"submit": 0, **one}, {"submit": 0, **other}))
    assert keys["user_directory"].n_unique() == 2


@pytest.mark.parametrize("limit", [float("inf"), float("nan"), 1e19])
def test_an_absurd_time_limit_is_a_limit_like_any_other(limit):
    assert with_request(made_jobs({"submit": 0, "time_limit_s": limit}), {}).height == 1


@settings(max_examples=60, deadline=None)
@given(small_logs(), st.lists(st.text(max_size=5) | st.none(), min_size=10, max_size=10))
def test_a_few_jobs_have_the_same_keys_one_by_one_as_all_at_once(jobs, names):
    named = jobs.with_columns(work_dir=pl.Series(names[: jobs.height], dtype=pl.String))
    asked = with_request(named, {})
    assert [tuple(keys) for keys in keys_of_few(asked)] == asked.select(key(space) for space in SPACES).rows()


@settings(max_examples=40, deadline=None)
@given(small_logs())
def test_columns_that_are_empty_tell_nothing_about_the_application(jobs):
    assert with_request(jobs, {})["family"].to_list() == jobs.select(family())["family"].to_list()


ODD = st.text("aZ0f/.-_ \nÄ", max_size=12)
USUAL = st.from_regex(r"[a-z]{2,5}[_-]?[0-9a-f]{0,10}(\.sh|\.py|/)?", fullmatch=True)
TEXTS = ODD | USUAL | st.none()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=5))
def test_the_application_of_a_few_jobs_is_told_as_that_of_many(texts):
    rows = [{"submit": 0, "job_name": name, "script_path": script, "work_dir": folder} for name, script, folder in texts]
    jobs = made_jobs(*rows)
    assert with_request(jobs, {})["family"].to_list() == jobs.select(family())["family"].to_list()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=8))
def test_the_application_is_told_of_distinct_texts_as_of_each_job(texts):
    rows = [{"submit": 0, "job_name": name, "script_path": script, "work_dir": folder} for name, script, folder in texts]
    jobs = pl.concat([made_jobs(*rows)] * FEW).head(FEW + 1)
    assert families(jobs).to_list() == jobs.select(family())["family"].to_list()
    assert families(jobs.clear()).to_list() == []
