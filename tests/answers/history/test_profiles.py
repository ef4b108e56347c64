"""Profiles of a site: those of its model, the jobs of whoever looks."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history import profiles as module
from stormpetrel.answers.history.profiles import make_view, profiles, view_of
from stormpetrel.answers.live_site import LiveSite
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
        found = make_view(live, module._ALL, None)
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
