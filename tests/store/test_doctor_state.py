"""What the doctor says of a state and a registry that do not belong to the tables."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from stormpetrel.faces.cli.main import app as command_line
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.doctor.store_checks import check_registry, check_state
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        ingest_jobs(opened, SacctText(write_sacct(tmp_path / "a", make_jobs(5))))
        yield opened


def save(folder):
    folder.mkdir(parents=True)
    (folder / "model.json").write_text("{}")


def test_a_missing_state_is_a_finding_and_no_new_one_is_made(site):
    site.close()
    for path in site.folder.glob("state.db*"):
        path.unlink()
    done = CliRunner().invoke(command_line, ["--site", str(site.folder), "doctor", "--json"])
    (found,) = json.loads(done.output)["findings"]
    assert done.exit_code == 1 and found["level"] == "problem" and "state.db is missing" in found["what"]
    assert not (site.folder / "state.db").exists()


def test_a_state_that_is_older_than_its_tables_is_a_problem(site):
    site.state.empty_log()
    state = (site.folder / "state.db").read_bytes()
    forget(site, "user1")
    assert [found.level for found in check_state(site)] == ["ok"]
    site.close()
    for path in site.folder.glob("state.db*"):
        path.unlink()
    (site.folder / "state.db").write_bytes(state)
    with open_site(site.folder) as again:
        (found,) = check_state(again)
    assert found.level == "problem" and "older than the tables" in found.what


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
