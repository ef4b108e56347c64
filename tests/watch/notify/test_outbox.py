"""Messages reach a real web server that comes and goes: at least once, in order, marked where they are repeated."""

import threading
from datetime import timedelta

import pytest

from stormpetrel.errors import SettingsError
from stormpetrel.records.incidents import ActKind, IncidentAct, MessageState
from stormpetrel.store.site import open_site
from stormpetrel.watch.notify.outbox import Outbox, send_trial
from stormpetrel.watch.notify.receivers.heartbeat import Heartbeat
from stormpetrel.watch.notify.receivers.receiver import DeliveryError
from stormpetrel.watch.notify.route_sender import retry_pause_s
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.alarm_findings import batch_finding, finding
from tests.parts.alarm_jobs import at
from tests.parts.post_box import PostBox
from tests.parts.told_incidents import Told


@pytest.fixture
def box():
    with PostBox() as box:
        yield box


@pytest.fixture
def made(tmp_path, box):
    """A site with one webhook; `made(per_hour=3)` changes its route, `made(site={...})` the site."""
    sites, outboxes = [], []

    def make(*others, site=None, **route):
        routes = [{"name": "ops", "kind": "webhook", "url": box.url, "severity": "info", "timeout_s": 5.0} | route, *others]
        sites.append(make_site(tmp_path / "site", notify={"routes": routes}, site=site or {}))
        outboxes.append(Outbox(sites[-1], patience_s=30))
        return sites[-1], outboxes[-1], Told(sites[-1])

    yield make
    for outbox in outboxes:
        outbox.close()
    for site in sites:
        site.close()


def batches(*users, when=at(1)):
    return [batch_finding(user, when=when, application=f"app-{user}") for user in users]


def texts(box):
    return [post.json["text"] for post in box.taken]


def ids(box):
    return [post.headers["Idempotency-Key"].rpartition("-")[0] for post in box.taken]


def test_an_incident_is_told_when_it_opens_and_when_it_is_over_and_not_again(made, box):
    site, outbox, told = made()
    told.take(finding())
    for minute in range(3):
        outbox.step(at(1, minute=minute))
    assert ids(box) == ["incident-1-0-firing-ops"] and texts(box)[0].startswith("[page] n017 fails every job since")
    told.take(now=at(3))
    step = outbox.step(at(3))
    assert ids(box)[1:] == ["incident-1-0-resolved-ops"] and texts(box)[1].startswith("resolved: n017")
    assert (step.created, step.waiting, dict(step.problems)) == (1, 0, {})
    assert {message.state for message in site.messages.list()} == {MessageState.DELIVERED}


def test_a_dismissed_incident_is_told_to_be_over(made, box):
    site, outbox, told = made()
    told.take(finding())
    outbox.step(at(1))
    site.incidents.add_act(IncidentAct(1, at(1, hour=1), "root", ActKind.DISMISS))
    outbox.step(at(1, hour=1))
    assert ids(box) == ["incident-1-0-firing-ops", "incident-1-0-resolved-ops"]


def test_a_receiver_that_is_down_is_tried_again_and_gets_everything_in_order(made, box):
    site, outbox, told = made(digest_minutes=1440.0)
    box.stop()
    told.take(*batches("ann", "bob"))
    step = outbox.step(at(1))
    assert "cannot be reached" in step.problems["ops"] and step.waiting == 2
    told.take(*batches("cat", when=at(1, minute=1)))
    outbox.step(at(1, minute=1))
    box.start()
    box.reply = lambda *_: (503, {}, b"no")
    outbox.step(at(1, minute=5))
    assert site.messages.list(incident=1)[0].problem.endswith("answered 503: no")
    box.reply = lambda *_: (200, {}, b"")
    outbox.step(at(1, minute=30))
    assert ids(box) == [f"incident-{number}-0-firing-ops" for number in (1, 2, 3)]
    assert not any("X-Stormpetrel-Repeat" in post.headers for post in box.taken)


def test_attempts_become_rare_and_never_end(made, box):
    site, outbox, told = made()
    box.stop()
    told.take(finding())
    for number in range(40):  # twenty minutes
        outbox.step(at(1) + timedelta(seconds=30 * number))
    assert 5 <= site.messages.list()[0].tries <= 8 and site.messages.counts().given_up == 0
    assert [retry_pause_s(tries) for tries in (1, 2, 3, 99)] == [5, 10, 20, 600]


def test_a_kill_between_sending_and_committing_leads_to_a_marked_repeat_of_the_same_id(made, box, monkeypatch):
    site, outbox, told = made()
    told.take(finding())

    class KilledError(BaseException):
        pass

    def killed(*_args, **_more):
        raise KilledError

    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    monkeypatch.setattr(site.messages, "delivered", killed)
    outbox.step(at(1))
    with open_site(site.folder) as again:
        second = Outbox(again, patience_s=30)
        second.step(at(1, minute=1))
        second.close()
    first, repeat = box.taken
    assert first.headers["Idempotency-Key"] == repeat.headers["Idempotency-Key"]
    assert "X-Stormpetrel-Repeat" not in first.headers and repeat.headers["X-Stormpetrel-Repeat"] == "true"
    assert texts(box)[1] == f"(repeat) {texts(box)[0]}"


def test_an_answer_that_never_came_leads_to_a_marked_repeat_also_after_the_receiver_was_down(made, box):
    site, outbox, told = made()
    told.take(finding())
    box.reply = lambda *_: (0, {}, b"")
    outbox.step(at(1))
    assert "broke off" in site.messages.list()[0].problem
    box.stop()
    outbox.step(at(1, minute=1))
    box.start()
    box.reply = lambda *_: (200, {}, b"")
    outbox.step(at(1, minute=5))
    (post,) = box.taken
    assert post.headers["X-Stormpetrel-Repeat"] == "true"


def test_a_digest_that_may_have_arrived_is_repeated_as_the_same_digest(made, box):
    _, outbox, told = made(digest_minutes=0.0)
    told.take(*batches("ann", "bob"))
    box.reply = lambda *_: (0, {}, b"")
    outbox.step(at(1))
    box.reply = lambda *_: (200, {}, b"")
    told.take(*batches("cat", when=at(1, minute=1)))
    outbox.step(at(1, minute=2))
    lost, repeat = box.posts[0], box.posts[1]
    assert lost.headers["Idempotency-Key"] == repeat.headers["Idempotency-Key"] and "digest-" in ids(box)[0]
    assert "2 incidents" in texts(box)[0] and "app-cat" in texts(box)[1]


def test_what_a_receiver_refuses_is_given_up_with_its_reason_and_the_next_is_sent(made, box):
    site, outbox, told = made()
    told.take(*batches("ann", "bob"))
    box.reply = lambda _path, _headers, body: (400, {}, b"bad words") if b"app-ann" in body else (200, {}, b"")
    outbox.step(at(1))
    given_up, delivered = site.messages.list(incident=1)[0], site.messages.list(incident=2)[0]
    assert given_up.state == MessageState.GIVEN_UP and given_up.problem.endswith("answered 400: bad words")
    assert delivered.state == MessageState.DELIVERED


def test_of_a_digest_that_is_refused_only_what_is_the_reason_is_given_up(made, box):
    site, outbox, told = made(digest_minutes=0.0)
    told.take(*batches("ann", "bob", "cat"))
    box.reply = lambda _path, _headers, body: (413, {}, b"") if b"app-bob" in body else (200, {}, b"")
    outbox.step(at(1))
    assert [message.incident for message in site.messages.list() if message.state == MessageState.GIVEN_UP] == [2]


@pytest.mark.parametrize("status", [401, 408, 429, 302])
def test_a_wrong_secret_a_busy_receiver_and_a_redirect_lose_nothing(made, box, status):
    site, outbox, told = made()
    told.take(finding())
    box.reply = lambda *_: (status, {"Location": "http://127.0.0.1:9/", "Retry-After": "600"}, b"")
    outbox.step(at(1))
    (message,) = site.messages.waiting()
    assert message.state == MessageState.WAITING
    assert status == 302 or message.not_before >= at(1, minute=10)


def test_above_the_rate_messages_wait_and_go_out_as_one_digest(made, box):
    _, outbox, told = made(per_hour=2, digest_minutes=30.0)
    told.take(*batches("ann", "bob", "cat", "dan", "eve"))
    outbox.step(at(1))
    outbox.step(at(1, minute=29))
    assert len(box.taken) == 2
    outbox.step(at(1, minute=31))
    assert len(box.taken) == 3 and "3 incidents at my cluster: 3 firing, 0 resolved" in texts(box)[2]
    assert [name for name in ("ann", "bob", "cat", "dan", "eve") if f"app-{name}" in texts(box)[2]] == ["cat", "dan", "eve"]
    told.take(*batches("fay", when=at(1, hour=2)))
    outbox.step(at(1, hour=2))
    assert ids(box)[3] == "incident-6-0-firing-ops"


def test_in_quiet_hours_of_the_sites_zone_only_pages_are_sent_and_the_rest_at_their_end_as_one(made, box):
    _, outbox, told = made(quiet_hours="22:00-07:00", site={"time_zone": "Europe/Berlin"})
    told.take(*batches("ann", "bob", when=at(1, hour=20.5)))  # 22:30 in Berlin
    outbox.step(at(1, hour=20.6))
    assert box.taken == []
    told.take(finding(when=at(1, hour=21)))
    outbox.step(at(1, hour=21.1))
    assert ids(box) == ["incident-3-0-firing-ops"]
    outbox.step(at(2, hour=4.9))
    outbox.step(at(2, hour=5))  # 07:00
    assert len(box.taken) == 2 and "app-ann" in texts(box)[1] and "app-bob" in texts(box)[1]


def test_pages_may_have_to_wait_for_the_end_of_quiet_hours_too(made, box):
    _, outbox, told = made(quiet_hours="00:00-07:00", quiet_pages=False)
    told.take(finding(when=at(1)))
    outbox.step(at(1))
    assert box.taken == []
    outbox.step(at(1, hour=7))
    assert len(box.taken) == 1


def test_names_do_not_leave_on_a_route_that_may_not_name(made, box):
    _, outbox, told = made({"name": "inside", "kind": "webhook", "url": box.url, "severity": "info"}, names=False)
    told.take(*batches("ann"))
    outbox.step(at(1))
    by_route = {post.headers["Idempotency-Key"].split("-")[4]: post.body for post in box.taken}
    assert b"ann" in by_route["inside"] and b"ann" not in by_route["ops"] and b"a user" in by_route["ops"]


class Slow:
    """A receiver that hangs until it is released."""

    refresh_every_s = 0.0

    def __init__(self):
        self.released = threading.Event()
        self.sent = []

    def send(self, delivery):
        self.released.wait(60)
        self.sent.append(delivery)
        return ""

    def refresh(self, delivery):
        raise DeliveryError("never asked")

    def close(self):
        pass


def test_a_receiver_that_hangs_holds_up_neither_the_loop_nor_the_others(made, box):
    site, _, told = made({"name": "slow", "kind": "webhook", "url": "http://127.0.0.1:9"})
    slow = Slow()
    outbox = Outbox(site, patience_s=0.2, receivers={"slow": slow})
    told.take(finding())
    outbox.step(at(1))
    outbox.step(at(1, minute=1))
    wait_until(lambda: len(box.taken) == 1, "the other route has its message", limit_s=30)
    slow.released.set()
    wait_until(lambda: not site.messages.waiting(), "the slow one has it too", limit_s=30)
    assert len(slow.sent) == 1
    outbox.close()


def test_what_waits_on_a_route_that_is_gone_is_given_up(made, tmp_path):
    site, outbox, told = made({"name": "old", "kind": "webhook", "url": "http://127.0.0.1:9"})
    told.take(finding())
    outbox.step(at(1))
    with make_site(tmp_path / "other") as other:
        Told(other).take(finding())
        other.messages.insert(site.messages.waiting("old"))
        Outbox(other).step(at(1, minute=1))
        assert "no route 'old'" in other.messages.list()[0].problem


def test_a_clock_that_is_set_back_does_not_stop_the_outbox(made, box):
    _, outbox, told = made()
    box.stop()
    told.take(finding())
    outbox.step(at(30))
    box.start()
    outbox.step(at(1))
    assert len(box.taken) == 1


def test_without_routes_nothing_is_made_or_sent(tmp_path):
    with make_site(tmp_path / "site") as site:
        Told(site).take(finding())
        assert Outbox(site).step(at(1)).created == 0 and site.messages.list() == []


def test_a_loop_that_turns_gives_a_sign_of_life_where_one_is_wanted(tmp_path, box):
    with make_site(tmp_path / "site", notify={"heartbeat_url": f"{box.url}/ping/1"}) as site:
        outbox = Outbox(site)
        outbox.step(at(1))
        outbox.step(at(1, minute=1))
        outbox.close()
        assert [post.path for post in box.posts] == ["/ping/1"]


def test_a_heartbeat_that_nobody_answers_names_the_host_and_the_reason():
    heartbeat = Heartbeat("http://127.0.0.1:9/ping/secret")
    heartbeat.beat()
    heartbeat.close(30.0)
    assert "127.0.0.1" in heartbeat.problem
    assert "cannot be reached (ConnectError)" in heartbeat.problem
    assert "secret" not in heartbeat.problem


@pytest.mark.parametrize(("mode", "text", "words"), [(0o644, "key", "read by others"), (0o600, "two words", "one token")])
def test_a_secret_that_others_can_read_or_that_is_none_is_refused_at_the_start(tmp_path, mode, text, words):
    (tmp_path / "key").write_text(text)
    (tmp_path / "key").chmod(mode)
    route = {"name": "ops", "kind": "webhook", "url": "http://127.0.0.1:9", "secret_file": str(tmp_path / "key")}
    with make_site(tmp_path / "site", notify={"routes": [route]}) as site, pytest.raises(SettingsError, match=words):
        Outbox(site)


def test_a_trial_is_sent_once_and_kept_with_its_fate(made, box):
    site, outbox, _ = made()
    assert send_trial(site, site.settings.notify.routes[0], at(1)).state == MessageState.DELIVERED
    box.stop()
    assert send_trial(site, site.settings.notify.routes[0], at(2)).state == MessageState.GIVEN_UP
    box.start()
    outbox.step(at(3))
    assert [post.json["text"] for post in box.posts] == ["this is a test of Stormpetrel: nothing is wrong"]
    assert [message.problem for message in site.messages.list()][1:] == [""]
