"""Profiles of a site: those of its model, the jobs of whoever looks."""

from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history import profiles as module
from stormpetrel.answers.history.profile_months import MonthOfProfiles
from stormpetrel.answers.history.profiles import EVERYBODY, make_view, profiles, view_of
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview import month
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.config import Settings
from stormpetrel.errors import AccessError, NotEnoughJobsError
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles, duration_table, resource_table, status_table, with_profile
from stormpetrel.records.jobs import never_started
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import make_log

LOG = make_log(500, 12, unfinished=0.02)
ADA = Viewer("user2", is_admin=False)


@pytest.fixture(scope="module")
def model():
    return JobProfiles(SUBMIT).fit(prepare(LOG).frame)


def view(model, log=LOG, *, own_only=False):
    return view_of(log, model, Settings(), version=1, own_only=own_only)


def test_the_tables_are_those_of_the_study(model):
    found = view(model)
    prepared = prepare(LOG).frame
    profiled = prepared.with_columns(model.assign(prepared))
    assert_frame_equal(found.tables.resources, resource_table(profiled))
    assert_frame_equal(found.tables.duration, duration_table(profiled))
    assert_frame_equal(found.tables.status, status_table(profiled))
    assert found.k == model.k_ == len(found.words)


def test_a_job_is_of_the_profile_that_its_forecast_saw(model):
    silent = LOG.with_columns(req_mem_bytes=pl.when(pl.int_range(pl.len()) % 3 != 0).then("req_mem_bytes"))
    seen = with_profile(silent, model).filter(~never_started())["profile"].value_counts().sort("profile")
    assert view(model, silent).tables.resources["jobs"].to_list() == seen.drop_nulls()["count"].to_list()


def test_how_jobs_ended_leaves_out_those_that_have_not(model):
    found = view(model)
    assert "RUNNING" not in found.labels["state"]
    assert found.labels["count"].sum() == LOG.filter(pl.col("state") != "RUNNING").height


def test_the_heat_map_begins_with_the_outcome(model):
    found = view(model)
    assert found.heat_names[0] == "failed"
    assert found.heat.shape == (len(found.heat_names),) * 2


def test_users_see_the_profiles_of_the_site_and_their_own_jobs(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, LOG)
        live = LiveSite(site)
        mine, all_jobs = (live.boards.profiles.wait(live, scope_of(viewer)).value for viewer in (ADA, LOCAL))
        answer = profiles(live, ADA)
    assert (answer.jobs, answer.own_only, [kind.words for kind in answer.profiles]) == (mine.jobs, True, list(mine.words))
    assert [kind.jobs for kind in answer.profiles if kind.jobs] == mine.tables.resources["jobs"].to_list()
    assert mine.words == all_jobs.words
    assert mine.own_only and not all_jobs.own_only
    assert mine.users["user"].unique().to_list() == ["user2"]
    assert mine.jobs + mine.never_started == LOG.filter(pl.col("user") == "user2").height < all_jobs.jobs
    assert all_jobs.never_started == LOG.select(never_started().sum()).item() > 0
    assert mine.tables.activity.drop("profile").sum_horizontal().max() == 1


def test_profiles_are_those_of_the_registry_where_it_has_some(tmp_path, model):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, LOG)
        live = LiveSite(site)
        assert profiles(live, LOCAL).version is None
        site.models.add("jobs-profiles", model.save, {})
        site.models.promote("jobs-profiles", 1)
        found = make_view(live, EVERYBODY, None)
    assert found.version == 1
    assert found.words == tuple(model.describe(profile) for profile in range(model.k_))


def test_profiles_without_a_model_are_searched_for_once(tmp_path, monkeypatch):
    fits = []
    monkeypatch.setattr(JobProfiles, "fit", lambda self, *rest, fit=JobProfiles.fit: fits.append(1) or fit(self, *rest))
    with make_site(tmp_path / "site") as site:
        put_jobs(site, LOG)
        live = LiveSite(site)
        profiles(live, LOCAL)
        profiles(live, ADA)
    assert len(fits) == 1


@pytest.mark.parametrize(("viewer", "words"), [(LOCAL, "The site has no jobs"), (ADA, "You have no jobs")])
def test_without_jobs_there_is_a_sentence(tmp_path, viewer, words):
    with make_site(tmp_path / "site") as site, pytest.raises(NotEnoughJobsError, match=words):
        profiles(LiveSite(site), viewer)


def test_reading_needs_the_scope(tmp_path):
    with make_site(tmp_path / "site") as site, pytest.raises(AccessError):
        profiles(LiveSite(site), Viewer("user2", is_admin=False, scopes=frozenset()))


def test_one_job_is_a_view_as_well(model):
    for log in (LOG.head(1), LOG.filter(pl.col("state") == "RUNNING").head(1)):
        assert view(model, log).jobs == 1


@pytest.mark.parametrize("viewer", [LOCAL, ADA], ids=["everybody", "user"])
def test_many_jobs_are_counted_by_month_to_the_same_view(tmp_path, monkeypatch, model, viewer):
    with make_site(tmp_path / "site") as site:
        log = make_log(500, 12, unfinished=0.02, days=70)
        put_jobs(site, log.with_columns(req_mem_bytes=pl.when(pl.int_range(pl.len()) % 5 > 0).then("req_mem_bytes")))
        live = LiveSite(site)
        monkeypatch.setattr(module, "_model_of", lambda _live: (model, 3))
        whole = make_view(live, scope_of(viewer), None)
        monkeypatch.setattr(module, "AT_ONCE", 40)
        monkeypatch.setattr(month, "PIECE_JOBS", 20)
        mine = live.jobs(viewer).collect()
        monkeypatch.setattr(module, "latest_rows", lambda *_: mine.sort("submit_time"))  # else medians are those of the latest 40
        pieces = make_view(live, scope_of(viewer), None)
    assert len(pieces.months) > 2
    assert (pieces.jobs, pieces.never_started, pieces.words) == (whole.jobs, whole.never_started, whole.words)
    assert_frame_equal(pieces.labels, whole.labels)
    assert_frame_equal(pieces.users, whole.users)
    for name in ("resources", "duration", "activity", "status", "types"):
        assert_frame_equal(getattr(pieces.tables, name), getattr(whole.tables, name))
    assert pieces.heat_names == whole.heat_names and (pieces.heat == whole.heat).all()


def test_months_that_were_counted_are_kept_and_only_changed_ones_counted_anew(tmp_path, monkeypatch, model):
    calls = []
    count = MonthOfProfiles.of.__func__
    monkeypatch.setattr(MonthOfProfiles, "of", classmethod(lambda *words: calls.append(words[1].height) or count(*words)))
    monkeypatch.setattr(module, "AT_ONCE", 40)
    monkeypatch.setattr(module, "_model_of", lambda _live: (model, 3))
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(500, 12, days=70))
        first = make_view(LiveSite(site), EVERYBODY, None)
        assert sum(calls) == 500
        calls.clear()
        again = make_view(LiveSite(site), EVERYBODY, None)
        assert not calls and again.basis == first.basis
        assert_frame_equal(again.tables.resources, first.tables.resources)
        make_view(LiveSite(site), scope_of(ADA), None)
        own = make_log(500, 12, days=70).filter(pl.col("user") == ADA.user).height
        assert sum(calls) == (own if own > 40 else 0), "of one user nothing is kept"
        calls.clear()
        late = make_log(10, 6).with_columns(pl.col("job_id") + 10_000, pl.col("submit_time", "end_time") + timedelta(days=65))
        put_jobs(site, late)
        newer = make_view(LiveSite(site), EVERYBODY, again)
        assert newer.labels["count"].sum() == first.labels["count"].sum() + 10
        assert 0 < sum(calls) < 510
