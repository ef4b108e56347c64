from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.records.incidents import Message, MessageKind, MessageState, message_key
from stormpetrel.store.upkeep.backup import backup, restore
from tests.builders import make_site
from tests.parts.alarm_jobs import at


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def message(incident=1, kind=MessageKind.FIRING, route="ops", when=at(1), opening=0):
    return Message(message_key(incident, opening, kind, route), route, kind, incident, opening, when)


def test_a_message_is_kept_once_however_often_it_is_made(site):
    first, second = message(), message(2)
    assert site.messages.insert([first, first]) == [first]
    assert site.messages.insert([replace(first, created=at(9)), second]) == [second]
    assert site.messages.waiting() == [first, second] and site.messages.known([1]) == {first.key}


def test_messages_wait_in_the_order_in_which_they_came_firing_before_resolved(site):
    resolved, firing, older = message(1, MessageKind.RESOLVED), message(1), message(7, when=at(0))
    site.messages.insert([resolved, firing, older, message(3, route="other")])
    assert site.messages.waiting("ops") == [older, firing, resolved]
    assert site.messages.list(incident=1) == [resolved, firing] and len(site.messages.list(limit=2)) == 2


def test_an_attempt_is_known_from_before_it_is_made_until_its_outcome_is(site):
    one = message()
    site.messages.insert([one])
    site.messages.begin([one.key], at(2))
    assert site.messages.waiting() == [replace(one, sending_since=at(2), tries=1)]
    site.messages.failed([one.key], "gone", at(3), may_have_arrived=True)
    (unsure,) = site.messages.waiting()
    assert unsure.sending_since == at(2) and unsure.not_before == at(3) and unsure.problem == "gone"
    site.messages.failed([one.key], "refused", at(4), may_have_arrived=False)
    assert site.messages.waiting()[0].sending_since is None
    site.messages.delivered([one.key], at(5))
    (done,) = site.messages.list()
    assert (done.state, done.delivered, done.problem, done.tries) == (MessageState.DELIVERED, at(5), "", 1)


def test_what_is_given_up_waits_no_longer_and_says_why(site):
    site.messages.insert([message(), message(2)])
    site.messages.give_up([message().key], "x" * 9999)
    counts = site.messages.counts()
    assert (counts.waiting, counts.given_up, counts.oldest_waiting) == (1, 1, at(1))
    assert len(site.messages.list(incident=1)[0].problem) == 500


def test_a_digest_counts_as_one_delivery_and_trials_as_none(site):
    three = [message(number) for number in (1, 2, 3)]
    site.messages.insert(three)
    site.messages.delivered([three[0].key], at(1))
    site.messages.delivered([three[1].key, three[2].key], at(1, minute=1))
    trial = Message("test-1-ops", "ops", MessageKind.TEST, 0, 0, at(1), state=MessageState.DELIVERED, delivered=at(2))
    site.messages.keep_trial(trial)
    assert site.messages.deliveries("ops", at(1) - timedelta(hours=1)) == 2
    assert site.messages.deliveries("ops", at(1)) == 1 and site.messages.deliveries("other", at(0)) == 0
    assert site.messages.delivered_among([three[0].key, "nothing"]) == {three[0].key}


def test_a_route_is_new_once_and_new_again_after_it_was_gone(site):
    assert site.messages.routes_since(["ops"], at(1)) == {"ops": at(1)}
    assert site.messages.routes_since(["ops", "chat"], at(2)) == {"ops": at(1), "chat": at(2)}
    assert site.messages.routes_since(["chat"], at(3)) == {"chat": at(2)}
    assert site.messages.routes_since(["ops", "chat"], at(4)) == {"ops": at(4), "chat": at(2)}


def test_more_messages_than_fit_in_one_query_are_kept_and_found(site):
    many = [message(number) for number in range(1, 1201)]
    assert len(site.messages.insert(many)) == 1200 and site.messages.insert(many) == []
    site.messages.delivered([one.key for one in many], at(2))
    assert len(site.messages.known(range(1, 1201))) == 1200 and site.messages.counts().waiting == 0


def test_messages_travel_in_a_backup(site, tmp_path):
    site.messages.insert([message()])
    backup(site, tmp_path / "site.tar")
    with restore(tmp_path / "site.tar", tmp_path / "again") as again:
        assert again.messages.waiting() == [message()]
