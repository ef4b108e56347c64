"""Incidents over the API: people and programs see them, act on them by POST, and nobody by opening a link."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.alarms import replay as replay_module
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.alarms.rehearsal import HISTORY, save_report
from stormpetrel.answers.alarms.replay import replay_alarms
from stormpetrel.answers.schemas.alarms import ReplayQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.faces.api.sample_site import small_world
from tests.faces.web.sample_site import BROWSER, OTHER_PAGE, client_of
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at, job, write_log
from tests.parts.raised_incidents import raise_incidents

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def alarmed(tmp_path_factory):
    with small_world(tmp_path_factory.mktemp("alarms") / "site") as world:
        raise_incidents(world.site, finding(when=NOW - HOUR, users=("ann", "bob")), batch_finding("bob", when=NOW - HOUR))
        yield world


def test_programs_get_what_the_command_line_prints(alarmed):
    listed, shown = list_incidents(alarmed.site, LOCAL), show_incident(alarmed.site, LOCAL, 1)
    assert alarmed.get("/alarms")["incidents"] == listed.model_dump(mode="json")["incidents"]
    assert alarmed.get("/alarms/1") == shown.model_dump(mode="json")
    assert [one["id"] for one in alarmed.get("/alarms?severity=page&since=2026-01-01T00:00:00Z")["incidents"]] == [1]


def test_a_user_gets_own_incidents_only(alarmed):
    assert [one["id"] for one in alarmed.get("/alarms", user="ann")["incidents"]] == [1]
    assert "bob" not in alarmed.ask("GET", "/alarms/1", user="ann").text
    assert alarmed.get("/alarms/1", user="ann") == show_incident(alarmed.site, Viewer("ann", is_admin=False), 1).model_dump(
        mode="json"
    )
    foreign, missing = (alarmed.ask("GET", f"/alarms/{number}", user="ann") for number in (2, 9))
    assert foreign.status_code == missing.status_code == 404 and foreign.text.replace("2", "9") == missing.text


REPORT = {
    "faults": {"oom_wave": {"severe": {"recall": 0.5, "delay_s": 120.0, "n": 2, "paged": None, "paged_delay_s": None}}},
    "false_pages_per_week": 1.5,
    "holes": ["A stalled scheduler would not be seen here: 0 of 2."],
}


def test_the_last_rehearsal_is_there_for_administrators_once_somebody_has_rehearsed(alarmed):
    missing = alarmed.ask("GET", "/alarms/rehearsal")
    assert missing.status_code == 404 and "stormpetrel rehearse" in missing.text
    save_report(alarmed.site.folder, HISTORY, REPORT)
    shown = alarmed.get("/alarms/rehearsal")
    assert {key: shown[key] for key in REPORT} == REPORT and shown["live"] is False
    assert alarmed.ask("GET", "/alarms/rehearsal?live=true").status_code == 404, "the one beside the live stream is another"
    assert alarmed.ask("GET", "/alarms/rehearsal", user="ann").status_code == 403
    assert alarmed.ask("POST", "/alarms/rehearsal").status_code == 405


@pytest.fixture
def past(tmp_path):
    with small_world(tmp_path / "site") as world:
        lines = [job(user, "n2", at(day, hour=k)) for day in range(6) for k, user in enumerate(("ann", "bob"))]
        lines += [job("bob", "n2", at(6, hour=8, minute=k), run_s=60, state="FAILED", name="fit") for k in range(12)]
        ingest_jobs(world.site, SacctText(write_log(tmp_path / "jobs.txt", lines)))
        yield world


def test_the_past_is_replayed_as_the_command_line_prints_it_and_to_a_user_for_own_jobs(past):
    given = past.get("/alarms/replay?models=false")
    assert given == replay_alarms(past.site, LOCAL, ReplayQuestion(models=False)).model_dump(mode="json")
    assert [one["kinds"] for one in given["incidents"]] == [["batch_fails"]]
    assert past.get("/alarms/replay?models=false", user="ann")["incidents"] == []
    assert past.get("/alarms/replay?models=false&until=2024-05-12T00:00:00Z")["incidents"] == []
    assert past.ask("GET", "/alarms/replay?since=2024-05-12T00:00:00").status_code == 422  # of which zone?


def test_a_second_replay_beside_one_that_runs_is_told_to_come_again(past):
    with replay_module._TURN:
        assert past.ask("GET", "/alarms/replay").status_code == 503


def test_an_act_is_posted_and_changes_the_state(alarmed):
    kept = alarmed.ask("POST", "/alarms/1/acts", json={"kind": "acknowledge", "note": "on my way"})
    assert kept.status_code == 201 and kept.json()["state"] == "acknowledged" and kept.json()["act"]["user"] == "the-admin"
    assert alarmed.get("/alarms/1")["acts"] == [kept.json()["act"]]
    assert alarmed.site.audit.recent()[0].action == "incident acknowledge"


def test_opening_a_link_changes_nothing(alarmed):
    for path in ("/alarms/2/acts", "/alarms/2/acts?kind=dismiss", "/alarms/mutes/1"):
        assert alarmed.ask("GET", path).status_code == 405
    assert alarmed.get("/alarms/2")["acts"] == [] and alarmed.get("/alarms/2")["state"] == "open"


def test_another_page_cannot_act_in_the_name_of_who_looks_at_it(tmp_path):
    """Neither with a form nor with a script, where the browser alone says who it is."""
    with small_world(tmp_path / "site", login="none") as world:
        raise_incidents(world.site, finding(when=NOW - HOUR))
        address, client = "/api/v1/alarms/1/acts", client_of(world.app)
        for body in ({"json": {"kind": "dismiss"}}, {"data": {"kind": "dismiss"}}):
            assert client.post(address, headers=OTHER_PAGE, **body).status_code == 403
        assert client.get("/api/v1/alarms/1").json()["acts"] == []
        assert client.post(address, json={"kind": "dismiss"}, headers=BROWSER).status_code == 201


def test_users_act_on_nothing(alarmed):
    acts = (
        ("POST", "/alarms/1/acts", {"kind": "note", "note": "mine"}),
        ("POST", "/alarms/mutes", {"kind": "node", "name": "n"}),
    )
    for method, path, body in acts:
        assert alarmed.ask(method, path, user="ann", json=body).status_code == 403
    assert alarmed.ask("DELETE", "/alarms/mutes/1", user="ann").status_code == 403
    assert alarmed.ask("GET", "/alarms/mutes", user="ann").status_code == 403


def test_a_subject_is_muted_listed_and_heard_again(alarmed):
    kept = alarmed.ask("POST", "/alarms/mutes", json={"kind": "node", "name": "n017", "hours": 8.0, "reason": "new disk"})
    assert kept.status_code == 201 and kept.json()["holds_back"] == [1]
    (mute,) = alarmed.get("/alarms/mutes")["mutes"]
    assert mute == kept.json()["mute"] and mute["reason"] == "new disk"
    assert alarmed.ask("DELETE", f"/alarms/mutes/{mute['id']}").status_code == 204
    assert alarmed.get("/alarms/mutes")["mutes"] == []
    assert alarmed.ask("DELETE", f"/alarms/mutes/{mute['id']}").status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/alarms/1/acts", {"kind": "note"}),
        ("/alarms/1/acts", {"kind": "resolve"}),
        ("/alarms/1/acts", {"kind": "note", "note": "x" * 4001}),
        ("/alarms/mutes", {"kind": "node", "name": "n017"}),
        ("/alarms/mutes", {"kind": "job", "name": "1", "hours": 1.0}),
        ("/alarms/mutes", {"kind": "node", "name": "n017", "hours": 9000.0}),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(alarmed, path, body):
    refused = alarmed.ask("POST", path, json=body)
    assert refused.status_code == 422 and refused.json()["error"]["what"]
