"""Trends of a site: the same as of its jobs, for those who may see them."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from stormpetrel.answers.background import Snapshot
from stormpetrel.answers.history.day_book import book_of, sum_jobs
from stormpetrel.answers.history.trends import group_names, trend_frames, trends
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.history import TrendsQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.config import Settings
from stormpetrel.errors import AccessError
from stormpetrel.jobs.trends import failure_trend, movers
from stormpetrel.records.jobs import never_started
from tests.answers.live_sites import put_jobs
from tests.builders import T0, make_site
from tests.jobs.logs import make_log

LOG = make_log(900, 8, days=60, unfinished=0.02)
ADA = Viewer("user2", is_admin=False)


def book(log=LOG, **site):
    return Snapshot(book_of({"": sum_jobs(log, Settings.model_validate({"site": site}))}), 1, T0)


def frames(made, viewer, **question):
    return trend_frames(made, viewer, TrendsQuestion.model_validate(question))


@pytest.mark.parametrize("by", ["user", "account", "application", "node", "partition", "profile"])
@pytest.mark.parametrize(("every", "zone"), [("1d", "UTC"), ("1w", "Europe/Stockholm"), ("1mo", "America/Santiago")])
def test_a_trend_is_that_of_the_jobs(by, every, zone):
    answer = frames(book(time_zone=zone), LOCAL, by=by, every=every, top=4)
    assert_frame_equal(answer.trend, failure_trend(LOG, by=by, every=every, time_zone=zone, top=4))
    assert_frame_equal(answer.movers, movers(failure_trend(LOG, by=by, every=every, time_zone=zone, top=None)))


def test_users_see_trends_of_their_own_jobs_only():
    answer = frames(book(), ADA, by="user")
    own = LOG.filter(pl.col("user") == "user2")
    assert answer.own_only
    assert answer.groups["group"].to_list() == ["user2"]
    assert_frame_equal(answer.trend, failure_trend(own, by="user"))
    assert_frame_equal(frames(book(), ADA, by="application").trend, failure_trend(own, by="application"))
    never = own.select(never_started().sum()).item()
    assert answer.jobs == own.filter(pl.col("state").is_in(["RUNNING"]).not_()).height - never
    assert answer.never_started == never > 0
    assert group_names(book(), ADA, by="user", most=10) == ["user2"]


def test_another_users_name_gives_a_user_nothing():
    answer = frames(book(), ADA, by="user", group="user4")
    assert answer.trend.is_empty()


def test_one_group_is_shown_however_few_jobs_it_has():
    few = LOG.with_columns(user=pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("rare")).otherwise("user"))
    answer = frames(book(few), LOCAL, by="user", group="rare")
    assert answer.trend["group"].unique().to_list() == ["rare"]
    assert "rare" not in answer.groups["group"]


def test_the_last_periods_are_the_last():
    answer = frames(book(), LOCAL, by="user", every="1w", last=3)
    assert answer.overall["period"].n_unique() == 3
    assert answer.overall["period"].max() == failure_trend(LOG, by="user")["period"].max()


def test_groups_say_how_they_stand_in_all_and_in_the_last_period():
    answer = frames(book(), LOCAL, by="account")
    row = answer.groups.filter(group="lab0").row(0, named=True)
    whole = failure_trend(LOG, by="account", top=None).filter(group="lab0")
    assert (row["jobs"], row["failed"]) == (whole["jobs"].sum(), whole["failed"].sum())
    assert row["last_rate"] == whole["rate"].item(-1)


@pytest.mark.parametrize("question", [{"by": "colour"}, {"every": "1h"}, {"every": "'; drop"}, {"last": 0}])
def test_what_makes_no_sense_is_no_question(question):
    with pytest.raises(ValidationError):
        TrendsQuestion.model_validate(question)


def test_reading_needs_the_scope():
    with pytest.raises(AccessError, match="read"):
        frames(book(), Viewer("user2", is_admin=False, scopes=frozenset({"predict"})))


def test_an_answer_goes_to_other_programs(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, LOG)
        answer = trends(LiveSite(site), LOCAL, TrendsQuestion(by="partition"))
    assert answer.jobs == sum(point.jobs for point in answer.trend)
    assert type(answer).model_validate_json(answer.model_dump_json()) == answer
