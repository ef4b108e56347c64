"""`stormpetrel store forget` asks before it acts."""

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        ingest_jobs(opened, SacctText(write_sacct(tmp_path / "a", make_jobs(20))))
        opened.tokens.add("grafana", user="user1", scopes=["read"])
        yield opened


@pytest.fixture
def terminal(monkeypatch):
    """Somebody sits there and can be asked."""
    monkeypatch.setattr("stormpetrel.faces.cli.store._can_ask", lambda: True)


def forget(site, *words, answer=""):
    return CliRunner().invoke(app, ["--site", str(site.folder), "store", "forget", "user1", *words], input=answer)


def jobs_of_user1(site):
    return site.jobs.read_jobs().collect()["user"].to_list().count("user1")


def test_who_says_no_keeps_everything_and_has_seen_what_would_go(site, terminal):
    done = forget(site, answer="n\n")
    assert "Of user1 there is 4 jobs and 1 token. It will be deleted for good." in done.output
    assert done.exit_code == 1 and "Nothing was deleted" in done.output
    assert jobs_of_user1(site) == 4


def test_an_empty_answer_is_a_no(site, terminal):
    assert forget(site, answer="\n").exit_code == 1
    assert jobs_of_user1(site) == 4


def test_who_says_yes_deletes(site, terminal):
    done = forget(site, answer="y\n")
    assert done.exit_code == 0 and "4 jobs of user1 were deleted" in done.output
    assert jobs_of_user1(site) == 0


def test_a_script_says_yes_beforehand(site):
    assert forget(site, "--yes").exit_code == 0
    assert jobs_of_user1(site) == 0


def test_without_a_terminal_and_without_yes_nothing_is_deleted(site):
    done = forget(site)
    assert isinstance(done.exception, UsageError) and "Add --yes" in str(done.exception)
    assert jobs_of_user1(site) == 4
