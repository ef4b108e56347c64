"""What the doctor says of a state and a registry that do not belong to the tables."""

import shutil

import pytest
import sqlalchemy as sa

from stormpetrel.sources.sacct_text import SacctText
from stormpetrel.store.backup import backup, restore
from stormpetrel.store.doctor import before_opening
from stormpetrel.store.doctor.state_checks import check_registry, check_state
from stormpetrel.store.ingest import ingest_jobs
from stormpetrel.store.site import open_site
from stormpetrel.store.state import meta
from tests.builders import make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        ingest_jobs(opened, SacctText(write_sacct(tmp_path / "a", make_jobs(5))))
        yield opened


def made(site, created):
    """Let the state say that it was made at another time, or not say it."""
    with site.state.transaction() as connection:
        connection.execute(sa.delete(meta).where(meta.c.key == "created"))
        if created:
            connection.execute(sa.insert(meta).values(key="created", value=created))


def save(folder):
    folder.mkdir(parents=True)
    (folder / "model.json").write_text("{}")


def test_a_state_that_was_made_with_its_tables_is_fine(site):
    (found,) = check_state(site)
    assert found.level == "ok"


def test_a_state_that_is_younger_than_its_tables_is_a_problem(site):
    made(site, "2099-01-01T00:00:00+00:00")
    (found,) = check_state(site)
    assert found.level == "problem" and "it is not the one they were written with" in found.what and "restore" in found.hint


def test_a_blank_state_from_before_times_were_noted_is_told_beside_tables_with_jobs(site):
    made(site, None)
    assert next(check_state(site)).level == "ok"
    with site.state.transaction() as connection:
        connection.execute(sa.text("delete from ingests"))
    assert next(check_state(site)).level == "warning"


def test_a_restored_site_has_the_state_of_its_tables(site, tmp_path):
    made(site, "2020-01-01T00:00:00+00:00")
    backup(site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "again") as again:
        assert [found.level for found in check_state(again)] == ["ok"]


def test_a_missing_state_is_told_before_a_new_one_is_made(tmp_path, site):
    assert before_opening(site.folder) == []
    site.close()
    for path in site.folder.glob("state.db*"):
        path.unlink()
    (found,) = before_opening(site.folder)
    assert found.level == "problem" and "state.db is missing" in found.what
    assert not (site.folder / "state.db").exists()


def test_a_new_site_misses_nothing(tmp_path):
    with make_site(tmp_path / "new") as site:
        assert [found.level for found in (*check_state(site), *check_registry(site))] == ["ok", "ok"]


def test_models_that_are_all_entered_are_fine(site):
    site.models.add("jobs-submit", save, {})
    (found,) = check_registry(site)
    assert found.level == "ok"


def test_a_model_in_use_whose_folder_is_gone_is_a_problem_and_an_old_one_a_warning(site):
    for _ in range(2):
        site.models.add("jobs-submit", save, {})
    site.models.promote("jobs-submit", 2)
    shutil.rmtree(site.folder / "models" / "jobs-submit")
    assert [(found.level, "in use" in found.what) for found in check_registry(site)] == [("warning", False), ("problem", True)]
    assert "tar -xf BACKUP" in next(check_registry(site)).hint


def test_folders_without_any_entry_mean_that_the_registry_was_lost(site):
    save(site.folder / "models" / "jobs-submit" / "00003")
    (found,) = check_registry(site)
    assert found.level == "problem" and "jobs-submit version 3" in found.what and "knows no model at all" in found.what


def test_a_folder_that_a_dead_training_left_is_a_warning(site):
    site.models.add("jobs-submit", save, {})
    save(site.folder / "models" / "jobs-submit" / "00002")
    (found,) = check_registry(site)
    assert found.level == "warning" and "jobs-submit version 2" in found.what


def test_opening_a_site_again_keeps_when_its_state_was_made(site):
    created = site.state.created()
    with open_site(site.folder) as again:
        assert again.state.created() == created is not None
