"""Jobs picked out of a site or a log, and the models in use: who may, and what becomes of the rows."""

from __future__ import annotations

import pytest

from stormpetrel.answers.jobs.models_in_use import models_in_use
from stormpetrel.answers.jobs.selection import prepare_selection, select_jobs, selection_of
from stormpetrel.answers.viewer import LOCAL, PREDICT, Viewer
from stormpetrel.errors import AccessError, ModelError
from tests.answers.live_sites import put_jobs
from tests.builders import make_jobs, make_site, write_sacct
from tests.jobs.logs import made_jobs

JOBS = ({"job_id": 1, "user": "ada", "submit": 0, "start": 60, "end": 120}, {"job_id": 2, "user": "kim", "submit": 30})


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, made_jobs(*JOBS))
        yield site


def test_a_site_shows_a_user_the_own_jobs_and_an_administrator_all(site):
    assert select_jobs(site, LOCAL).frame["job_id"].to_list() == [1, 2]
    assert select_jobs(site, Viewer("kim", is_admin=False)).frame["job_id"].to_list() == [2]
    with pytest.raises(AccessError):
        select_jobs(site, Viewer("kim", False, frozenset({PREDICT})))


def test_the_models_read_the_past_of_everybody_and_so_are_for_administrators(site):
    with pytest.raises(AccessError, match="Only administrators"):
        models_in_use(site, Viewer("kim", is_admin=False))
    with pytest.raises(ModelError, match="no job model yet"):
        models_in_use(site, LOCAL)


def test_preparation_keeps_the_records_that_it_counts_as_kept(tmp_path):
    selection = select_jobs(write_sacct(tmp_path / "log", make_jobs(20)), LOCAL)
    prepared = prepare_selection(selection, min_run_s=1)
    assert prepared.kept.height == prepared.prepared.counts["kept"] == 20
    assert prepare_selection(selection, min_run_s=10**7).kept.is_empty()


def test_a_frame_is_a_selection_up_to_the_last_thing_that_it_tells():
    frame = made_jobs(JOBS[0])
    assert selection_of(frame).as_of > frame["end_time"].max()
    assert selection_of(frame).earlier.is_empty()
