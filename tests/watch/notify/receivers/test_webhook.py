"""Webhooks: the body is a template that nothing can break out of, and a token goes to its receiver only."""

import json

import pytest

from stormpetrel.errors import SettingsError
from stormpetrel.watch.notify.receivers.receiver import DeliveryError
from stormpetrel.watch.notify.receivers.webhook import FIELDS, WebhookReceiver, fill, load_template, values_of
from tests.parts.post_box import PostBox
from tests.parts.told_incidents import route
from tests.watch.notify.receivers.made import delivery, notice

EVIL = '"}, {"admin": true} {key} {title.__class__} %s ${x} <!channel> @all [x](http://evil.example)'


@pytest.fixture
def box():
    with PostBox() as box:
        yield box


def send(*notices, is_repeat=False, **settings):
    receiver = WebhookReceiver(route(**settings))
    try:
        receiver.send(delivery(*notices, is_repeat=is_repeat))
    finally:
        receiver.close()


def private(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_body_is_one_that_slack_and_mattermost_understand(box):
    send(url=f"{box.url}/hooks/x")
    (post,) = box.posts
    assert set(post.json) == {"text"} and post.path == "/hooks/x" and post.headers["Content-Type"] == "application/json"
    assert post.json["text"].splitlines() == [f"[page] {notice().title}", "https://petrel.example/alarms?incident=53"]


def test_a_name_calls_nobody_in_a_chat_and_is_no_link(box):
    send(notice(title=EVIL), url=box.url)
    text = box.posts[0].json["text"]
    assert "<" not in text and "@all" not in text and "](" not in text and "&lt;!channel&gt;" in text


def test_what_is_filled_in_stays_a_text_whatever_is_in_it(box, tmp_path):
    template = {"message": "{title}!", "list": ["{node}", 3, None], "{title}": "{id}", "same": "{ title } {}"}
    send(notice(title=EVIL, node="{title}"), url=box.url, template=private(tmp_path / "t.json", json.dumps(template)))
    body = box.posts[0].json
    assert body["message"] == f"{EVIL}!" and body["list"] == ["{title}", 3, None] and body["same"] == "{ title } {}"
    assert body["{title}"] == "incident-53-0-firing-ops-0a1b2c3d"


def test_every_field_that_is_known_can_be_filled_in():
    assert set(values_of(delivery())) == set(FIELDS)
    assert fill({"r": "{repeat} {kind} {count}"}, values_of(delivery(notice(1), notice(2), is_repeat=True))) == {
        "r": "true digest 2"
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be used"),
        ('{"a": "{titel}"}', "'{titel}', which is not known"),
        ('"' + "x" * 70000 + '"', "longer than"),
        ("[" * 9999, "used"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_at_the_start(tmp_path, text, words):
    with pytest.raises(SettingsError, match=words):
        load_template(private(tmp_path / "t.json", text), route="ops")


def test_a_redirect_is_not_followed_and_the_token_goes_nowhere_else(box, tmp_path):
    with PostBox() as elsewhere:
        box.reply = lambda *_: (307, {"Location": elsewhere.url}, b"")
        with pytest.raises(DeliveryError, match="not followed") as error:
            send(url=box.url, secret_file=private(tmp_path / "token", "s3cret"))
        assert elsewhere.posts == [] and not error.value.is_final
    assert box.posts[0].headers["Authorization"] == "Bearer s3cret"


def test_a_user_and_a_password_go_as_basic_authentication(box, tmp_path):
    send(url=box.url, user="kim", secret_file=private(tmp_path / "password", "pass word"))
    assert box.posts[0].headers["Authorization"].startswith("Basic ")


def test_an_address_that_is_a_secret_lies_in_a_file_and_is_never_shown(box, tmp_path):
    hidden = private(tmp_path / "url", f"{box.url}/services/s3cret\n")
    send(url_file=hidden, url="")
    assert box.posts[0].path == "/services/s3cret"
    box.reply = lambda *_: (404, {}, b"<html>no</html>")
    with pytest.raises(DeliveryError, match="answered 404") as error:
        send(url_file=hidden, url="")
    assert "s3cret" not in str(error.value) and error.value.is_final
    with pytest.raises(SettingsError, match="read by others"):
        send(url_file=private(tmp_path / "url", "https://x", mode=0o644), url="")
    with pytest.raises(SettingsError, match="holds no address"):
        send(url_file=private(tmp_path / "url", "nothing"), url="")


def test_an_answer_without_end_is_cut_off(box):
    box.reply = lambda *_: (200, {}, b"x" * 10_000_000)
    send(url=box.url)
    assert len(box.taken) == 1
