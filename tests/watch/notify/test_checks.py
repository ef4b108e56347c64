"""What the doctor says of the ways to people; nothing is sent."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.site.doctor import CHECKS
from stormpetrel.records.incidents import Message, MessageKind, message_key
from stormpetrel.watch.notify.checks import check_messages
from tests.builders import make_site
from tests.parts import free_ports
from tests.parts.inbox import Inbox

HOUR = timedelta(hours=1)
WELL = {"public_url": "https://petrel.example.org", "heartbeat_url": "https://alive.example.org/x"}


@pytest.fixture(scope="module")
def inbox():
    with Inbox() as inbox:
        yield inbox


def mail(port, **more):
    return {
        "name": "mail", "kind": "email", "host": "127.0.0.1", "port": port, "sender": "a@b.c", "recipients": ["d@b.c"],
        "tls": "none", **more,
    }  # fmt: skip


def hook(**more):
    return {"name": "chat", "kind": "webhook", **more}


def findings(tmp_path, *routes, messages=(), **notify):
    with make_site(tmp_path / "site", notify={"routes": list(routes), **notify}) as site:
        site.messages.insert(messages)
        for one in messages:
            if one.problem:
                site.messages.begin([one.key], one.created)
                site.messages.failed([one.key], one.problem, one.created, may_have_arrived=False)
        return list(check_messages(site))


def old(age=2 * HOUR, **more):
    created = datetime.now(UTC) - age
    return Message(message_key(1, 0, MessageKind.FIRING, "mail"), "mail", MessageKind.FIRING, 1, 0, created, **more)


def gravest(found):
    return next((one for level in ("problem", "warning") for one in found if one.level == level), found[0])


def test_the_doctor_looks_at_messages():
    assert check_messages in CHECKS


def test_a_site_without_routes_is_told_that_nobody_is(tmp_path):
    (found,) = findings(tmp_path)
    assert found.level == "ok" and "nobody is told" in found.what


def test_a_route_whose_receiver_listens_is_well_and_gets_nothing(tmp_path, inbox):
    found = findings(tmp_path, mail(inbox.port), **WELL)
    assert {one.level for one in found} == {"ok"} and "notify test --route mail" in found[0].what
    assert inbox.mails == []


def test_a_receiver_that_is_away_is_a_warning_since_messages_wait(tmp_path):
    found = gravest(findings(tmp_path, mail(free_ports(1)[0]), **WELL))
    assert found.level == "warning" and "cannot be reached" in found.what and "notify test" in found.hint


def test_a_secret_that_others_can_read_is_a_problem(tmp_path, inbox):
    secret = tmp_path / "password"
    secret.write_text("open sesame")
    secret.chmod(0o644)
    found = gravest(findings(tmp_path, mail(inbox.port, user="petrel", secret_file=str(secret)), **WELL))
    assert found.level == "problem" and "can be read by others" in found.what and "chmod 600" in found.hint


def test_an_address_in_a_file_is_checked_and_only_its_host_is_told(tmp_path):
    address = tmp_path / "address"
    address.write_text("http://127.0.0.1:9/services/T0/B0/secret")
    address.chmod(0o600)
    found = gravest(findings(tmp_path, hook(url_file=str(address)), **WELL))
    assert found.level == "warning" and "127.0.0.1:9" in found.what and "secret" not in found.what
    address.write_text("ftp://nowhere")
    found = gravest(findings(tmp_path / "again", hook(url_file=str(address)), **WELL))
    assert found.level == "problem" and "holds no address" in found.what


@pytest.mark.parametrize(("missing", "word"), [("public_url", "no link"), ("heartbeat_url", "dead watch")])
def test_a_missing_link_or_sign_of_life_is_a_warning(tmp_path, inbox, missing, word):
    found = gravest(findings(tmp_path, mail(inbox.port), **{**WELL, missing: ""}))
    assert found.level == "warning" and word in found.what


def test_a_message_that_is_tried_in_vain_for_over_an_hour_is_a_problem_with_its_reason(tmp_path, inbox):
    found = gravest(findings(tmp_path, mail(inbox.port), messages=[old(problem="it is away")], **WELL))
    assert found.level == "problem" and "1 message was not delivered" in found.what and "it is away" in found.what


def test_a_message_that_nobody_tries_to_send_says_that_the_watch_is_needed(tmp_path, inbox):
    found = gravest(findings(tmp_path, mail(inbox.port), messages=[old()], **WELL))
    assert found.level == "problem" and "stormpetrel watch" in found.hint


def test_what_waits_for_the_end_of_quiet_hours_or_not_for_long_is_no_problem(tmp_path, inbox):
    now = datetime.now(UTC)
    local = now.strftime("%H:00")
    until = (now + 2 * HOUR).strftime("%H:00")
    quiet = mail(inbox.port, quiet_hours=f"{local}-{until}")
    assert gravest(findings(tmp_path, quiet, messages=[old()], **WELL)).level == "ok"
    assert gravest(findings(tmp_path / "b", mail(inbox.port), messages=[old(HOUR / 2, problem="away")], **WELL)).level == "ok"
