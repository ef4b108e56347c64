"""A site kept in memory: it follows what others commit, judges as one that was read anew, and survives whatever it meets.

What a site keeps between requests is its own, and goes with it.
"""

from __future__ import annotations

import gc
import shutil
import time
import weakref
from datetime import timedelta
from threading import Event, Thread

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.background import Background
from stormpetrel.answers.live_site import Boards, LiveSite
from stormpetrel.answers.overview.overview import TableQuery
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import ModelError, StoreError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.lifecycle import live as lifecycle
from stormpetrel.lifecycle.job_models import load_predictor
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import forget
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import make_site
from tests.faces.web.sample_site import wait_until
from tests.jobs.logs import known_at, one_thread
from tests.lifecycle.sites import day, steady_log, train
from tests.parts.watched_site import train_same_again

LIMIT_S = 20.0
BEGIN, END = day(30), day(33)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A site as it was known on day 30, and trained then."""
    folder = tmp_path_factory.mktemp("live") / "site"
    with one_thread(), make_site(folder) as site:
        put_jobs(site, known_at(steady_log(500), BEGIN), as_of=BEGIN)
        train(site, until=BEGIN)
    return folder


@pytest.fixture
def site(folder, tmp_path, monkeypatch):
    """A copy of it whose clock stands on day 30."""
    shutil.copytree(folder, tmp_path / "site")
    with open_site(tmp_path / "site") as site:
        monkeypatch.setattr(site, "now", lambda: BEGIN)
        yield site


def wait_for(holds):
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)


def same_risks(live, now):
    """The risks of some requests by the live history, and by one that was read anew."""
    asked = steady_log(500).tail(40).with_columns(submit_time=pl.lit(now))
    fresh = load_predictor(live.site, now=now)
    with live.lock:
        mine = {moment: live.predictor().risk(asked, moment, now) for moment in MOMENTS}
    return all(np.allclose(mine[moment], fresh.risk(asked, moment, now), atol=1e-6) for moment in MOMENTS)


def test_history_judges_as_one_that_was_read_anew(site, monkeypatch):
    live = LiveSite(site)
    assert live.refresh()
    assert same_risks(live, BEGIN)
    first = live.predictor().risk(steady_log(500).tail(40), Moment.SUBMIT, END)
    for moment in (BEGIN + timedelta(hours=7), BEGIN + timedelta(days=2), END):
        put_jobs(site, known_at(steady_log(500), moment), as_of=moment)
        monkeypatch.setattr(site, "now", lambda moment=moment: moment)
        assert live.refresh()
    assert same_risks(live, END)
    assert not np.allclose(first, live.predictor().risk(steady_log(500).tail(40), Moment.SUBMIT, END))


def test_version_counts_changes_and_stands_still_without_any(site):
    live = LiveSite(site)
    live.refresh()
    version = live.version
    assert not live.refresh()
    assert live.version == version
    put_predictions(site, said_about(steady_log(500).head(3)))
    assert live.refresh()
    assert live.version == version + 1


def test_a_model_that_is_promoted_is_taken_up(site):
    live = LiveSite(site)
    live.refresh()
    old, version = live.predictor(), live.version
    with one_thread():
        train(site, until=BEGIN - timedelta(days=5))
    assert live.refresh()
    assert live.version > version
    assert live.predictor().versions == dict.fromkeys(MOMENTS, 2)
    assert old.versions == dict.fromkeys(MOMENTS, 1)
    assert same_risks(live, BEGIN)


def test_a_model_that_cannot_be_read_leaves_the_old_one_in_use(site, monkeypatch):
    live = LiveSite(site)
    live.refresh()
    old = live.predictor()
    train_same_again(site)
    broken = site.models.folder_of("jobs-submit", 2)
    shutil.rmtree(broken)
    live._try(live.refresh)
    assert live.problem
    assert live.predictor() is old


def test_a_new_site_has_a_predictor_from_the_start_that_follows_its_jobs(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        assert live.refresh() and live.predictor().is_prior
        put_jobs(site, steady_log(30))
        assert live.refresh() and live.predictor().history.names
        assert not live.refresh(), "nothing has changed"


def test_without_a_model_there_is_an_overview_and_a_hint(tmp_path):
    with make_site(tmp_path / "site", jobs={"prior": False}) as site:
        live = LiveSite(site)
        assert not live.refresh()
        assert live.overview.page(LOCAL, TableQuery()).total == 0
        put_jobs(site, steady_log(30))
        assert live.refresh()
        assert live.overview.page(LOCAL, TableQuery()).total == 30
        with pytest.raises(ModelError, match="stormpetrel jobs train"):
            live.predictor()
        assert live.past().collect().height == 30


def test_a_large_site_has_its_sums_worked_out_before_anybody_opens_trends(tmp_path, monkeypatch):
    made, read = Event(), Event()

    def sums(live, key, before):
        made.set()
        return "sums"

    monkeypatch.setattr("stormpetrel.answers.live_site.book_background", lambda: Background(sums, rest_s=0.0))
    monkeypatch.setattr("stormpetrel.answers.live_site.read_work", lambda *_: read.set())
    monkeypatch.setattr("stormpetrel.answers.live_site._LARGE_SITE", 31)
    with make_site(tmp_path / "site", jobs={"prior": False}) as site:
        put_jobs(site, steady_log(30))
        live = LiveSite(site, refresh_s=0.01)
        live.start()
        wait_for(lambda: live.refreshed_at is not None)
        assert not made.is_set() and not read.is_set(), "a small site waits until somebody asks"
        put_jobs(site, steady_log(60))
        assert made.wait(LIMIT_S) and read.wait(LIMIT_S)
        live.stop()


def test_nobody_waits_for_a_history_that_is_still_being_read(site, monkeypatch):
    reading, go_on = Event(), Event()

    def slow(*words, **more):
        reading.set()
        assert go_on.wait(LIMIT_S)
        return real(*words, **more)

    real = lifecycle.open_stream
    monkeypatch.setattr("stormpetrel.answers.live_site.open_stream", slow)
    live = LiveSite(site, refresh_s=0.01)
    live.start()
    assert reading.wait(LIMIT_S)
    assert live.overview.page(LOCAL, TableQuery()).total
    with pytest.raises(ModelError, match="still being read"):
        live.predictor()
    go_on.set()
    wait_for(lambda: live.refreshed_at is not None)
    assert live.predictor().models
    live.stop()


def test_the_thread_sees_what_others_commit(site):
    live = LiveSite(site, refresh_s=0.01)
    live.start()
    try:
        assert live.overview.frame.height
        wait_for(lambda: live.refreshed_at is not None)
        version = live.version
        put_predictions(site, said_about(steady_log(500).head(3), risk=0.875))
        wait_for(lambda: live.version > version)
        assert live.overview.rows(LOCAL).filter(pl.col("risk") == 0.875).collect().height == 3
    finally:
        live.stop()
    assert live.problem is None


@pytest.mark.parametrize("error", [StoreError("The table is missing.", hint="Restore it."), RuntimeError("something odd")])
def test_the_thread_survives_an_error_and_tells_it(site, monkeypatch, error):
    live = LiveSite(site, refresh_s=0.01)
    live.refresh()

    def fails(_site, **_):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(live.overview, "refresh", fails)
        live.start()
        wait_for(lambda: live.problem is not None)
        assert str(error) in live.problem
        assert live.overview.page(LOCAL, TableQuery()).total
    try:
        wait_for(lambda: live.problem is None)
    finally:
        live.stop()


def test_a_stopped_site_can_be_started_again(site):
    live = LiveSite(site, refresh_s=0.01)
    for _ in range(2):
        live.start()
        live.stop()
        live.refreshed_at = None
    live.start()
    wait_for(lambda: live.refreshed_at is not None)
    live.stop()


def test_whole_rows_are_those_that_the_viewer_may_see(site):
    live = LiveSite(site)
    everybody = live.jobs(LOCAL).collect()
    mine = live.jobs(Viewer("user1", is_admin=False)).collect()
    assert mine.equals(everybody.filter(pl.col("user") == "user1"))
    assert 0 < mine.height < everybody.height


def test_a_running_server_drops_a_user_who_is_forgotten_beside_it(site):
    """From every page: the table of jobs, what is worked out in the background, and the history that forecasts are made from."""
    from stormpetrel.answers.history.profiles import EVERYBODY as ALL

    live = LiveSite(site, refresh_s=0.05)
    live.start()
    try:
        wait_for(lambda: live.refreshed_at is not None)
        user = live.overview.frame["user"].drop_nulls().mode().sort()[0]
        profiles = live.boards.profiles.wait(live, ALL)
        assert user in profiles.value.users["user"].to_list()
        history, version = live.predictor(), live.version
        with open_site(site.folder) as other:
            assert forget(other, user) > 0
        wait_for(lambda: live.version > version and live.overview.rows_of(user).is_empty())
        wait_for(lambda: live._stream is not None and live.predictor() is not history)
        seen = live.boards.profiles.peek(live, ALL)
        assert seen is None or user not in seen.value.users["user"].to_list()
        assert user not in live.boards.profiles.wait(live, ALL).value.users["user"].to_list()
    finally:
        live.stop()


def test_a_topic_has_one_background_per_site_and_no_two_sites_share_one():
    first, second = Boards(), Boards()
    assert first.capacity is first.capacity and first.cluster is first.cluster
    assert first.capacity is not second.capacity and first.cluster is not second.cluster


def test_a_board_goes_with_its_site(tmp_path):
    with make_site(tmp_path / "site") as site:
        live = LiveSite(site)
        assert live.boards.capacity.wait(live).value.record.known_weeks == 0
        kept = weakref.ref(live.boards.capacity)
        del live
        wait_until(lambda: gc.collect() >= 0 and kept() is None)  # the thread that worked it out lets go last


class _Outlooks:
    """In place of `site_outlook`: numbers instead of outlooks, each made when it is allowed."""

    def __init__(self) -> None:
        self.made = 0
        self.allowed = Event()
        self.allowed.set()

    def __call__(self, site, now):
        assert self.allowed.wait(LIMIT_S)
        self.made += 1
        return self.made


@pytest.fixture
def outlooks(monkeypatch):
    outlooks = _Outlooks()
    monkeypatch.setattr("stormpetrel.answers.jobs.outlook.site_outlook", outlooks)
    monkeypatch.setattr("stormpetrel.answers.live_site._OUTLOOK_REST_S", 0.0)
    return outlooks


def test_the_last_outlook_is_served_until_the_next_one_is_there(site, outlooks, monkeypatch):
    live = LiveSite(site, refresh_s=0.01)
    live.start()
    try:
        wait_for(lambda: live.refreshed_at is not None)
        assert live.outlook() == 1
        outlooks.allowed.clear()
        monkeypatch.setattr(site, "now", lambda: BEGIN + timedelta(minutes=2))
        assert live.outlook() == 1  # at once, though it is old
        outlooks.allowed.set()
        wait_for(lambda: live.outlook() == 2)
        made = outlooks.made
        wait_for(lambda: live.refreshed_at == BEGIN + timedelta(minutes=2))
        assert live.outlook() == outlooks.made == made  # not made again while it is fresh
    finally:
        live.stop()


def test_without_a_thread_an_old_outlook_is_made_anew(site, outlooks, monkeypatch):
    live = LiveSite(site)
    assert [live.outlook(), live.outlook()] == [1, 1]
    monkeypatch.setattr(site, "now", lambda: BEGIN + timedelta(minutes=2))
    assert live.outlook() == 2


def test_an_outlook_that_is_being_made_while_a_user_is_forgotten_is_not_kept(site, outlooks):
    live = LiveSite(site)
    live.refresh()
    before = live.memory
    outlooks.allowed.clear()
    answers: list[object] = []
    asking = Thread(target=lambda: answers.append(live.outlook()))
    asking.start()
    wait_for(live._making_outlook.locked)
    forget(site, "user1")
    live.refresh()
    outlooks.allowed.set()
    asking.join(LIMIT_S)
    assert answers == [1] and live.memory is not before and live.memory.outlook is None
