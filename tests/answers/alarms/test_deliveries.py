import pytest

from stormpetrel.answers.alarms.deliveries import deliveries, try_routes
from stormpetrel.answers.schemas.incident import DeliveryQuestion, RouteTrial
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, UsageError
from stormpetrel.watch.notify.outbox import Outbox
from tests.builders import make_site
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.post_box import PostBox
from tests.parts.told_incidents import Told


@pytest.fixture
def box():
    with PostBox() as box:
        yield box


@pytest.fixture
def site(tmp_path, box):
    ops = {"name": "ops", "kind": "webhook", "url": box.url, "severity": "info"}
    away = {"name": "away", "kind": "webhook", "url": "http://127.0.0.1:9"}
    with make_site(tmp_path / "site", notify={"routes": [ops, away]}) as site:
        yield site


def test_every_message_is_listed_with_its_fate_the_newest_first(site):
    Told(site).take(finding(), batch_finding("cat"))
    outbox = Outbox(site, patience_s=30)
    outbox.step(at(1))
    outbox.close()
    answer = deliveries(site, LOCAL)
    fates = [(line.route, line.incident, line.state) for line in answer.deliveries]
    assert fates[0] == ("ops", 2, "delivered") and set(fates[1:]) == {("ops", 1, "delivered"), ("away", 1, "waiting")}
    assert (answer.waiting, answer.given_up, answer.routes) == (1, 0, ["ops", "away"])
    (waiting,) = (line for line in answer.deliveries if line.state == "waiting")
    assert "cannot be reached" in waiting.problem and waiting.next_try > at(1) and waiting.tries == 1
    assert {line.incident for line in deliveries(site, LOCAL, DeliveryQuestion(incident=2)).deliveries} == {2}


def test_messages_and_trials_are_for_administrators(site):
    for act in (deliveries, try_routes):
        with pytest.raises(AccessError):
            act(site, Viewer("ann", is_admin=False))


def test_a_trial_says_what_happened_on_each_route_and_stands_in_the_audit_trail(site, box):
    receipt = try_routes(site, LOCAL)
    assert [(trial.route, trial.delivered) for trial in receipt.trials] == [("ops", True), ("away", False)]
    assert receipt.failed == 1 and "cannot be reached" in receipt.trials[1].problem and len(box.taken) == 1
    entry = site.audit.recent(1)[0]
    assert entry.action == "routes tried" and entry.about == {"routes": ["ops", "away"], "failed": 1}
    answer = deliveries(site, LOCAL)
    assert {line.kind for line in answer.deliveries} == {"test"} and answer.given_up == 0


def test_one_route_can_be_tried_and_one_that_is_not_there_is_told(site, tmp_path):
    assert [trial.route for trial in try_routes(site, LOCAL, RouteTrial(route="ops")).trials] == ["ops"]
    with pytest.raises(UsageError, match="Known: ops, away"):
        try_routes(site, LOCAL, RouteTrial(route="opps"))
    with make_site(tmp_path / "bare") as bare, pytest.raises(UsageError, match="no notification route"):
        try_routes(bare, LOCAL)


def test_a_route_whose_secret_cannot_be_read_fails_and_the_others_are_tried(tmp_path, box):
    routes = [
        {"name": "broken", "kind": "webhook", "url": box.url, "secret_file": str(tmp_path / "none")},
        {"name": "ops", "kind": "webhook", "url": box.url},
    ]
    with make_site(tmp_path / "other", notify={"routes": routes}) as site:
        first, second = try_routes(site, LOCAL).trials
    assert not first.delivered and "cannot be read" in first.problem and second.delivered
