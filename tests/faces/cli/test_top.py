"""What users ask the service, asked of a site: `top` once, as JSON and on a real terminal, and the jobs."""

from __future__ import annotations

import json

import pytest

from tests.builders import make_jobs, make_site, write_sacct
from tests.parts.alarm_findings import finding
from tests.parts.command_line import run_here, words_for
from tests.parts.raised_incidents import raise_incidents
from tests.parts.terminal import terminal


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top") / "site"
    with make_site(folder, site={"time_zone": "UTC"}) as made:
        raise_incidents(made, finding())
    file = write_sacct(folder.parent / "sacct.txt", make_jobs(12, failed=4))
    assert run_here(folder, "ingest", "jobs", str(file)).returncode == 0
    return folder


def test_once_prints_the_page_and_json_the_same_for_programs(site):
    done = run_here(site, "top", "--once", env={"COLUMNS": "120"})
    assert done.returncode == 0 and "Jobs at risk (0)" in done.stdout and "jobs (12)" in done.stdout.lower(), done.stderr
    answer = json.loads(run_here(site, "top", "--json").stdout)
    assert (answer["jobs_total"], len(answer["jobs"]), answer["incidents_total"]) == (12, 12, 1)
    assert answer["headline"] in done.stdout and answer["incidents"][0]["title"][:40] in done.stdout


def test_what_users_ask_the_service_an_administrator_asks_the_site(site):
    done = run_here(site, "jobs", "list", "--limit", "3")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr
    ids = run_here(site, "jobs", "list", "--ids").stdout.split()
    assert len(ids) == 12 and json.loads(run_here(site, "jobs", "list", "--json").stdout)["total"] == 12
    assert run_here(site, "jobs", "list", "--search", ids[0]).stdout.count(ids[0]) >= 1
    assert run_here(site, "jobs", "list", "--at-risk").stdout.strip() == "None."
    assert f"Job {ids[0]}" in run_here(site, "jobs", "show", ids[0]).stdout
    assert run_here(site, "waste").stdout == run_here(site, "jobs", "waste").stdout != ""


def test_without_a_terminal_it_names_the_way_out(site):
    done = run_here(site, "top")
    assert done.returncode == 2 and "stormpetrel top --once" in done.stderr and len(done.stderr.splitlines()) == 1


def test_on_a_terminal_a_job_is_opened(site, tmp_path):
    with terminal(tmp_path, words_for(site, "top", "--every", "2"), env={}) as shown:
        shown.wait_for("Jobs at risk (0)", "q quit")
        shown.keys("Tab", "Tab", "Enter")
        shown.wait_for("q back", "Job 1")
        shown.keys("q")
        shown.wait_for("q quit")
        shown.keys("q")
        shown.wait_for("ended with 0")
