import http.client
import json
import stat
import urllib.error
import urllib.request

import pytest

from stormpetrel.config import settings_from
from stormpetrel.faces.cli.demo.inbox import URL_FILE, close_inbox, inbox_settings, open_inbox
from stormpetrel.records.routes import Route
from stormpetrel.watch.notify.receivers.webhook import WebhookReceiver
from tests.watch.notify.receivers.made import delivery


def post(url: str, body: bytes, headers: dict[str, str] | None = None) -> int:
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_message_of_the_route_is_one_line_with_its_link_and_is_shown_once(tmp_path):
    notify = settings_from({"notify": inbox_settings(tmp_path, "127.0.0.1:8050")}).notify
    assert notify.public_url == "http://127.0.0.1:8050"
    lines: list[str] = []
    with open_inbox(tmp_path, lines.append):
        receiver = WebhookReceiver(Route(**dict(notify.routes[0])))
        for _ in range(2):
            receiver.send(delivery())
        receiver.close()
    assert len(lines) == 1
    assert lines[0].startswith("Message: [page] n017 fails every job since 14:00")
    assert "  http" in lines[0]


def test_only_who_reads_the_file_can_write_to_the_inbox(tmp_path):
    lines: list[str] = []
    with open_inbox(tmp_path, lines.append):
        file = tmp_path / URL_FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        url = file.read_text().strip()
        assert url.startswith("http://127.0.0.1:")
        assert post(url.rpartition("/")[0] + "/", b'{"text": "a"}') == 404
    assert lines == [] and url not in file.read_text()


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"text": 1}', b"{", b'"' + b"a" * 100])
def test_what_is_no_message_is_refused(tmp_path, body):
    lines: list[str] = []
    with open_inbox(tmp_path, lines.append):
        assert post((tmp_path / URL_FILE).read_text().strip(), body) == 400
    assert lines == []


def test_what_is_too_long_is_refused_and_control_characters_are_shown(tmp_path):
    lines: list[str] = []
    with open_inbox(tmp_path, lines.append):
        url = (tmp_path / URL_FILE).read_text().strip()
        server, path = url.removeprefix("http://").split("/", 1)
        connection = http.client.HTTPConnection(server, timeout=10)
        connection.putrequest("POST", f"/{path}")
        connection.putheader("Content-Length", "65537")
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert post(url, json.dumps({"text": "a\x1b[2Jb\nc &lt;d"}).encode()) == 204
    assert lines == ["Message: a\\x1b[2Jb  c <d"]


def test_while_no_demo_runs_the_route_leads_to_nobody(tmp_path):
    close_inbox(tmp_path)
    assert (tmp_path / URL_FILE).read_text() == "http://127.0.0.1:9/\n"
