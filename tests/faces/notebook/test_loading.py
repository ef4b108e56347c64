from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import SettingsError, SourceError, SourceFormatError, UsageError
from stormpetrel.faces.notebook import load_jobs
from stormpetrel.faces.notebook.loading import as_loaded
from stormpetrel.store.site import open_site
from tests.builders import T0, make_jobs, write_sacct
from tests.faces.notebook.hostile import assert_is_text, made_hostile, write_hostile_log
from tests.jobs.logs import made_jobs

FIGURE_14 = "job_id job_name user_id start_time end_time state_jobs exit_code gid submit cpulimit cpu mem node".split()


def test_the_last_days_of_a_site_are_loaded_as_known_now(practice_site, jobs):
    with open_site(practice_site) as site:
        now, everything = site.now(), site.jobs.read_jobs().collect()
    assert jobs.as_of == now
    assert jobs.frame["submit_time"].min() >= now - timedelta(days=4)
    assert jobs.frame.height == everything.filter(pl.col("submit_time") >= now - timedelta(days=4)).height
    assert {"RUNNING", "PENDING"} & set(jobs.frame["state"])


def test_an_open_site_is_taken_too_and_stays_open(practice_site, jobs):
    with open_site(practice_site) as site:
        assert load_jobs(site, last_days=4).frame.height == jobs.frame.height
        assert site.models.versions()


def test_everything_is_loaded_where_no_days_are_named(practice_site, jobs):
    assert load_jobs(str(practice_site)).frame.height > 2 * jobs.frame.height


def test_the_table_has_the_columns_that_the_literature_shows(jobs):
    assert jobs.table.columns == FIGURE_14
    row = jobs.table.row(0, named=True)
    assert row["exit_code"].count(":") == 1


def test_what_is_shown_is_a_few_rows_and_a_sentence(jobs):
    html = jobs._repr_html_()
    assert html.count("<tr>") == 6
    assert f"{jobs.frame.height:,} jobs of" in html
    assert repr(jobs) == jobs.summary()


def test_a_log_is_read_whole_and_its_earlier_part_is_remembered(tmp_path):
    path = write_sacct(tmp_path / "sacct.txt", make_jobs(60))
    shares: list[float] = []
    jobs = load_jobs(path, last_days=0.01, progress=shares.append)
    assert (jobs.frame.height, jobs.earlier.height) == (4, 56)
    assert jobs.as_of > jobs.frame["end_time"].max()
    assert shares[-1] == 1.0


def test_what_a_log_refuses_is_told(tmp_path):
    path = write_sacct(tmp_path / "sacct.txt", make_jobs(5))
    path.write_text(path.read_text() + "not-a-job|x|y\n")
    assert any("refused" in note for note in load_jobs(path).notes)


def test_an_empty_log_is_said_to_be_empty(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(SourceFormatError):
        load_jobs(tmp_path / "empty.txt")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceError, match="nowhere"):
        load_jobs(tmp_path / "nowhere.txt")


def test_a_folder_that_is_no_site_is_refused(tmp_path):
    with pytest.raises((UsageError, SettingsError), match="no site"):
        load_jobs(tmp_path)


@pytest.mark.parametrize("days", [0, -1, float("nan")])
def test_a_span_of_no_days_is_refused(practice_site, days):
    with pytest.raises(UsageError, match="last_days"):
        load_jobs(practice_site, last_days=days)


def test_a_frame_of_ones_own_is_taken_as_jobs():
    loaded = as_loaded(made_jobs({"submit": 0, "start": 60, "end": 120}))
    assert loaded.as_of == T0 + timedelta(seconds=121)


def test_a_frame_that_is_something_else_is_refused():
    with pytest.raises(UsageError, match="'job_id' is missing"):
        as_loaded(pl.DataFrame({"cluster": ["a"], "submit_time": [T0]}))


def test_a_span_without_jobs_says_so(jobs):
    nothing = replace(jobs, frame=jobs.frame.clear())
    assert len(nothing) == 0
    assert "no job" in nothing.summary() and "no job" in nothing._repr_html_()


def test_hostile_names_are_shown_as_text(jobs, tmp_path):
    for loaded in (replace(jobs, frame=made_hostile(jobs.frame)), load_jobs(write_hostile_log(tmp_path / "sacct.txt"))):
        html = loaded._repr_html_()
        assert "&lt;img" in html
        assert_is_text(html)
