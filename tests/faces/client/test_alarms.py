"""Incidents through the client: the classes of the answers, and what an older server leaves out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.alarms.rehearsal import HISTORY, save_report
from stormpetrel.answers.schemas.incident import IncidentAnswer, MuteReceipt
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.faces.client import Client
from tests.faces.api.sample_site import ADMIN, small_world
from tests.faces.web.sample_site import running
from tests.parts.alarm_findings import finding
from tests.parts.raised_incidents import raise_incidents

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)
OLDER = {
    "id": 1, "severity": "page", "state": "open", "kinds": ["node_eats_jobs"], "families": ["jobs"],
    "subjects": [{"kind": "node", "name": "n017"}], "since": "2026-11-05T01:32:00+00:00", "until": "2026-11-05T02:58:00+00:00",
    "raised_at": "2026-11-05T02:58:00+00:00", "blame": "node", "verdict": None, "late": False,
    "title": "n017 fails", "page": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def alarmed(tmp_path_factory):
    with small_world(tmp_path_factory.mktemp("client") / "site") as world:
        raise_incidents(world.site, finding(when=NOW - HOUR))
        yield world


@pytest.fixture(scope="module")
def client(alarmed):
    with running(alarmed.app) as url, Client(url, alarmed.token(ADMIN)) as client:
        yield client


def test_incidents_are_the_answers_of_the_site(client, alarmed):
    assert client.alarms(state="all", since=NOW - 2 * HOUR).incidents == list_incidents(alarmed.site, LOCAL).incidents
    assert client.alarm(1) == show_incident(alarmed.site, LOCAL, 1)
    assert client.alarms(severity="page", family="traces").incidents == []


def test_a_past_without_records_is_replayed_too(client):
    replayed = client.replay_alarms(since=NOW - 2 * HOUR, until=NOW, models=False)
    assert replayed.incidents == [] and replayed.weeks == 0.0


def test_the_last_rehearsal_is_read_and_without_one_it_is_said_how_to(client, alarmed):
    with pytest.raises(NotThereError, match="Nothing has been rehearsed beside the live stream yet"):
        client.rehearsal(live=True)
    save_report(alarmed.site.folder, HISTORY, {"faults": {}, "false_pages_per_week": None, "holes": ["nothing would be seen"]})
    assert client.rehearsal().holes == ["nothing would be seen"]


def test_each_verb_is_an_act(client):
    receipts = [client.acknowledge(1), client.confirm(1, "sick"), client.note(1, "disk ordered"), client.dismiss(1)]
    assert [one.act.kind for one in receipts] == ["acknowledge", "confirm", "note", "dismiss"]
    assert [one.state for one in receipts] == ["acknowledged", "acknowledged", "acknowledged", "resolved"]
    assert [act.note for act in client.alarm(1).acts] == ["", "sick", "disk ordered", ""]


def test_a_subject_is_muted_and_heard_again(client):
    receipt = client.mute("node", "n017", until=datetime.now(UTC) + HOUR, reason="new disk")
    assert isinstance(receipt, MuteReceipt) and client.mutes() == [receipt.mute]
    client.unmute(receipt.mute.id)
    assert client.mutes() == []


def test_errors_carry_the_words_of_the_server(client):
    with pytest.raises(NotThereError, match="There is no incident 9"):
        client.alarm(9)
    with pytest.raises(UsageError, match="until when"):
        client.mute("node", "n017")


def test_an_incident_of_a_server_that_tells_less_is_understood():
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=OLDER))
    with Client("http://127.0.0.1:1", transport=transport) as client:
        answer = client.alarm(1)
    assert isinstance(answer, IncidentAnswer) and answer.title == "n017 fails"
    assert (answer.findings, answer.timeline, answer.similar, answer.deliveries, answer.held_back) == ([], [], [], [], "")


def test_a_verdict_is_withdrawn_and_a_case_answered_through_the_client(client):
    client.confirm(1, "sick")
    assert client.withdraw(1, "it was none").verdict is None
    assert [line.case for line in client.cases().cases if line.case.startswith("incident")] == ["incident:1"]
    assert client.answer_case("incident:1", "dismiss").incident == 1
    assert client.alarms(state="all").verdicts.dismissed == 1
    assert client.answer_case("incident:1", "withdraw", "after all").words == "Incident 1 is acknowledged."
