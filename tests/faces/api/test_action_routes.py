"""Acting over the API: the ledger and the switch for administrators, a job's own cancel for its owner, and nothing by a link."""

from __future__ import annotations

import pytest

from stormpetrel.answers.actions.questions import actions_status, list_acts
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.actions import ActQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.client import Client
from stormpetrel.faces.web.app import create_app
from tests.faces.api.sample_site import ADMIN, SERVE, World
from tests.faces.web.sample_site import BROWSER, OTHER_PAGE, client_of, running
from tests.parts.acting_site import acting_site, flag, job_ref, turn


@pytest.fixture
def acting(tmp_path):
    with acting_site(tmp_path, serve=SERVE) as (site, slurm):
        flag(site)
        turn(site)
        live = LiveSite(site)
        live.refresh()
        yield World(site, live, create_app(live)), slurm


def test_programs_get_what_the_command_line_prints(acting):
    world, _ = acting
    assert world.get("/actions") == actions_status(world.site, LOCAL).model_dump(mode="json")
    assert world.get("/actions/acts?mode=dry") == list_acts(world.site, LOCAL, ActQuestion()).model_dump(mode="json")
    assert world.ask("GET", "/actions", user="ada").status_code == 403


def test_the_owner_cancels_over_the_api_and_somebody_else_does_not_find_it(acting):
    world, slurm = acting
    path = f"/jobs/{job_ref(world.site)}/cancel"
    assert world.ask("POST", path, user="eve", json={"confirm": "7"}).status_code == 404
    assert world.ask("POST", path, user="ada", json={"confirm": ""}).status_code == 403
    assert world.ask("POST", path, user="ada", scopes=("read", "write"), json={"confirm": "7"}).status_code == 403
    assert slurm.calls() == []
    assert world.ask("POST", path, user="ada", json={"confirm": "7"}).json()["state"] == "done"
    assert slurm.calls() == ["scancel 7"]


def test_no_link_and_no_other_page_acts(acting):
    world, slurm = acting
    path = f"/api/v1/jobs/{job_ref(world.site)}/cancel"
    browser = client_of(world.app)
    assert browser.post("/login", data={"token": world.token("ada")}, headers=BROWSER).status_code == 303
    assert browser.get(path, headers=BROWSER).status_code == 405
    assert browser.post(path, headers=OTHER_PAGE, json={"confirm": "7"}).status_code == 403
    assert slurm.calls() == []
    assert browser.post(path, headers=BROWSER, json={"confirm": "7"}).status_code == 200


def test_the_client_reads_turns_and_cancels(acting):
    world, slurm = acting
    with running(world.app) as url, Client(url, world.token(ADMIN)) as client:
        assert client.actions().policies[0].name == "cancel" and len(client.acts(policy="cancel", mode="dry")) == 1
        assert client.turn_actions(on=False, why="upgrade").why == "upgrade"
        assert client.cancel_job(str(job_ref(world.site)), confirm="7").state == "off" and slurm.calls() == []
        client.turn_actions(on=True)
        assert client.cancel_job(str(job_ref(world.site)), confirm="7").state == "done"
