"""Incidents in a real Alertmanager: they fire, are grouped by incident, survive its restart, and are resolved."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.records.incidents import MessageKind, MessageState
from stormpetrel.watch.notify.outbox import Outbox, send_trial
from stormpetrel.watch.notify.receivers.alertmanager import HOLDS, AlertmanagerReceiver, labels_of
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alertmanager import RealAlertmanager
from tests.parts.post_box import PostBox
from tests.parts.told_incidents import Told, route
from tests.watch.notify.receivers.made import NOW, delivery, notice

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def people():
    with PostBox() as box:
        yield box


@pytest.fixture(scope="module")
def server(people):
    with RealAlertmanager(f"{people.url}/people") as server:
        yield server


@pytest.fixture
def receiver(server):
    receiver = AlertmanagerReceiver(route("ops", "alertmanager", url=server.url))
    yield receiver
    receiver.close()


@pytest.fixture
def site(tmp_path, server):
    routes = [{"name": "ops", "kind": "alertmanager", "url": server.url, "severity": "info"}]
    notify = {"public_url": "https://petrel.example", "routes": routes}
    with make_site(tmp_path / "site", notify=notify, site={"name": f"site {tmp_path.name}"}) as site:
        yield site


def alerts_of(server, site_name):
    return {alert["labels"]["incident"]: alert for alert in server.alerts() if alert["labels"].get("site") == site_name}


def notified(people, site_name, status):
    """The incidents, a list per notification, that people were told to be so."""
    bodies = [post.json for post in people.posts if post.path == "/people"]
    mine = [body for body in bodies if body["alerts"][0]["labels"].get("site") == site_name and body["status"] == status]
    return [sorted({alert["labels"]["incident"] for alert in body["alerts"]}) for body in mine]


@pytest.mark.alertmanager
def test_incidents_fire_and_are_resolved_each_in_a_group_of_its_own(server, people, site):
    name, told, outbox = site.settings.site.name, Told(site), Outbox(site, patience_s=30)
    told.take(finding(when=NOW, users=("ann",)), batch_finding("cat", when=NOW))
    outbox.step(NOW + timedelta(seconds=5))
    wait_until(lambda: set(alerts_of(server, name)) == {"1", "2"}, "both fire", limit_s=30)
    alert = alerts_of(server, name)["1"]
    assert alert["labels"] | {"node": "n017", "severity": "page", "kind": "node_eats_jobs", "cluster": "c1"} == alert["labels"]
    assert alert["annotations"]["summary"].startswith("n017 fails every job since")
    assert alert["generatorURL"] == "https://petrel.example/alarms?incident=1"
    wait_until(lambda: sorted(notified(people, name, "firing")) == [["1"], ["2"]], "people are told of each", limit_s=30)
    told.take(now=NOW + timedelta(days=2))
    outbox.step(NOW + timedelta(days=2))
    wait_until(lambda: not alerts_of(server, name), "both are over", limit_s=30)
    wait_until(lambda: sorted(notified(people, name, "resolved")) == [["1"], ["2"]], "people are told so", limit_s=30)
    outbox.close()


@pytest.mark.alertmanager
def test_what_is_open_is_told_again_after_alertmanager_has_forgotten_it_and_that_is_no_new_message(server, site, monkeypatch):
    monkeypatch.setattr(AlertmanagerReceiver, "refresh_every_s", 0.001)
    name, outbox = site.settings.site.name, Outbox(site, patience_s=30)
    Told(site).take(finding(when=NOW))
    outbox.step(NOW + timedelta(seconds=5))
    server.stop()
    outbox.step(NOW + timedelta(minutes=1))
    server.start()
    outbox.step(NOW + timedelta(minutes=2))
    wait_until(lambda: set(alerts_of(server, name)) == {"1"}, "it fires again", limit_s=30)
    (message,) = site.messages.list()
    assert message.tries == 1
    outbox.close()


@pytest.mark.alertmanager
def test_an_alert_fires_long_enough_for_a_watch_to_be_restarted(server, receiver):
    sent = datetime.now(UTC)
    receiver.send(delivery(notice(7), site="holds"))
    ends = datetime.fromisoformat(alerts_of(server, "holds")["7"]["endsAt"])
    assert HOLDS - timedelta(minutes=5) < ends - sent <= HOLDS + timedelta(minutes=5)


@pytest.mark.alertmanager
def test_an_incident_whose_suspect_changes_is_one_alert(server, receiver):
    receiver.send(delivery(notice(8, blame="unclear"), site="changes"))
    receiver.refresh(delivery(notice(8, blame="node"), site="changes"))
    mine = [alert for alert in server.alerts() if alert["labels"]["site"] == "changes"]
    assert [alert["labels"]["blame"] for alert in mine] == ["node"]
    receiver.send(delivery(notice(8, MessageKind.RESOLVED), site="changes"))
    assert alerts_of(server, "changes") == {}


@pytest.mark.alertmanager
def test_hostile_names_stay_in_their_label(server, receiver):
    evil = 'n1",severity="none"} or {x="' + "ü" * 500
    receiver.send(delivery(notice(9, node=evil, title=evil), site='we "quote"'))
    labels = alerts_of(server, 'we "quote"')["9"]["labels"]
    assert labels["node"] == evil[:200] and labels["severity"] == "page"


def test_empty_labels_are_left_out():
    assert "node" not in labels_of(notice(node=""), "s")


@pytest.mark.alertmanager
def test_a_trial_is_an_alert_of_its_own_that_soon_ends(server, site):
    assert send_trial(site, site.settings.notify.routes[0], NOW).state == MessageState.DELIVERED
    (alert,) = [one for one in server.alerts() if one["labels"]["alertname"] == "StormpetrelTest"]
    assert "incident" not in alert["labels"] and datetime.fromisoformat(alert["endsAt"]) < NOW + HOUR
