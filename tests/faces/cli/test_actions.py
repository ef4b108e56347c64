"""`stormpetrel actions`: what is said, and the switch that works when the database does not."""

import json

import pytest

from stormpetrel.store.actions import OFF_FILE
from tests.parts.acting_site import acting_site, flag, turn
from tests.parts.command_line import run_here


@pytest.fixture
def world(tmp_path):
    with acting_site(tmp_path) as (site, slurm):
        flag(site)
        turn(site)
        yield site.folder, slurm


def output(folder, *words):
    done = run_here(folder, "actions", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_status_says_that_it_runs_dry_and_what_is_missing(world):
    text = output(world[0], "status")
    assert "Acting is on." in text and "cancel: cancel, dry; two minutes in, risk 0.9 or more; users *" in text
    assert "1 case, 0 settled" in text and "cannot be armed yet" in text


def test_a_policy_is_armed_by_saying_that_its_dry_run_is_not_over(world):
    refused = run_here(world[0], "actions", "arm", "cancel")
    assert refused.returncode == 2 and "--without-dry-run" in refused.stderr
    assert "is armed" in output(world[0], "arm", "cancel", "--without-dry-run")
    assert "It is armed." in output(world[0], "ledger", "cancel")
    assert "runs dry" in output(world[0], "disarm", "cancel")


def test_what_was_decided_is_listed_and_shown(world):
    (act,) = json.loads(output(world[0], "list", "--json"))["acts"]
    assert (act["state"], act["job"], act["evidence"]["moment"]) == ("dry", "7", "2min")
    assert "known then: risk 0.95" in output(world[0], "show", act["key"])


def test_a_test_prints_the_commands_and_gives_none(world):
    assert "scancel 7" in output(world[0], "test", "cancel") and world[1].calls() == []


def test_a_job_is_cancelled_after_a_question(world):
    refused = run_here(world[0], "actions", "cancel", "7")
    assert refused.returncode != 0 and world[1].calls() == []
    assert "Job 7, cancel: done" in output(world[0], "cancel", "7", "--yes") and world[1].calls() == ["scancel 7"]


def test_off_is_off_until_it_is_on(world):
    output(world[0], "off", "--why", "upgrade")
    assert "Acting is OFF" in output(world[0], "status") and "upgrade" in output(world[0], "status")
    output(world[0], "on")
    assert json.loads(output(world[0], "status", "--json"))["switch"]["on"] is True


def test_off_works_when_the_database_does_not(world):
    (world[0] / "state.db").write_bytes(b"no database")
    done = run_here(world[0], "actions", "off")
    assert done.returncode == 0 and "ACTIONS_OFF says so" in done.stdout and (world[0] / OFF_FILE).exists()
