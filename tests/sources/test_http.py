"""HTTP to servers: retries, limits of time and size, trust, and secrets from private files, which are never in a message."""

import ssl
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources import http
from stormpetrel.sources.http import (
    Address,
    BusyError,
    HttpClient,
    HttpServer,
    JsonServer,
    Reply,
    Retries,
    TooLongError,
    error_text,
    read_secret,
    read_token,
    trusted_for,
)
from tests.parts import free_ports
from tests.parts.loopback import served


def written(folder, content, mode=0o600):
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_password_may_hold_spaces_and_letters_of_any_language(tmp_path):
    assert read_secret(written(tmp_path, "pass wörd\n".encode()), hint="Set it.") == "pass wörd"


@pytest.mark.parametrize("content", [b"", b"two words", "wörd".encode(), b"one\ntwo", b"a" * 70_000])
def test_what_is_not_one_token_is_refused_and_not_repeated(tmp_path, content):
    path = written(tmp_path, content)
    with pytest.raises(SettingsError, match="does not hold one token") as caught:
        read_token(path, hint="Set it.")
    assert not content or content.decode() not in str(caught.value)


def test_a_file_that_others_can_read_or_that_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match=r"can be read by others.*chmod 600"):
        read_token(written(tmp_path, b"token", 0o640), hint="Set it.")
    with pytest.raises(SettingsError, match=r"The token file .*missing cannot be read: .* Set it\."):
        read_token(tmp_path / "missing", hint="Set it.")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9090", "unix:///run/slurmrestd.sock"])
def test_an_address_without_encryption_needs_no_certificates_and_trusts_nobody(url, monkeypatch):
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("certificates were read"))
    trusted = trusted_for(url)
    assert trusted.verify_mode == ssl.CERT_REQUIRED and not trusted.get_ca_certs()


def test_an_encrypted_address_is_checked_against_what_the_system_trusts(monkeypatch):
    trusted = trusted_for("https://prometheus.example.org")
    assert trusted.verify_mode == ssl.CERT_REQUIRED and trusted.check_hostname
    none = ssl.get_default_verify_paths()._replace(cafile=None, capath=None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: none)
    assert trusted_for("https://prometheus.example.org") is True  # httpx's own list


# --- servers of JSON ----------------------------------------------------------------------------------------------------


def get(url, *, timeout_s=5.0, **more):
    address = Address("grafana", url, more.get("token_file", ""), more.get("ca_file", ""), timeout_s)
    with JsonServer(address, pause=lambda _s: None) as server:
        return server.get("api/x", [("a", "1"), ("a", "2")], not_found="is not there")


def test_parameters_may_repeat_and_a_path_in_the_address_is_kept():
    seen = []

    def reply(path, parameters, _headers):
        seen.append((path, parameters))
        return 200, {"ok": 1}, {}

    with served(reply) as url:
        assert get(f"{url}/grafana") == {"ok": 1}
    assert seen == [("/grafana/api/x", {"a": ["1", "2"]})]


def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(http, "_MOST_BYTES", 1000)
    with served(lambda *_: (200, b" " * 5000, {})) as url, pytest.raises(SourceFormatError, match="answered with more than"):
        get(url)


def test_deeply_nested_json_is_no_answer():
    with served(lambda *_: (200, b"[" * 100_000, {})) as url, pytest.raises(SourceUnavailableError, match="no JSON"):
        get(url)


def test_a_server_that_is_not_there_is_one_sentence_without_its_password():
    (port,) = free_ports(1)
    with pytest.raises(SourceUnavailableError, match="cannot be reached") as caught:
        get(f"http://me:secret@127.0.0.1:{port}")
    assert "secret" not in str(caught.value) and "(3 tries)" in str(caught.value)


def test_a_server_that_is_slow_is_given_up():
    given_up = threading.Event()

    def slow(*_):
        given_up.wait(10)
        return 200, {}, {}

    with served(slow) as url:
        with pytest.raises(SourceUnavailableError, match=r"did not answer within 0\.05 s"):
            get(url, timeout_s=0.05)
        given_up.set()


@pytest.mark.parametrize("url", ["", "grafana.example.org", "file:///etc/passwd", "http://[::1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(SettingsError):
        get(url)


def test_a_missing_authority_or_token_file_is_one_sentence(tmp_path):
    with pytest.raises(SettingsError, match="ca_file"):
        get("https://127.0.0.1:9", ca_file=str(tmp_path / "none.pem"))
    with pytest.raises(SettingsError, match="cannot be read"):
        get("http://127.0.0.1:9", token_file=str(tmp_path / "none"))
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("two words")
    with pytest.raises(SettingsError, match="does not hold one token"):
        get("http://127.0.0.1:9", token_file=str(token))


def test_the_error_text_an_error_are_bounded_and_plain():
    assert error_text(b'{"message": "no\\u001b[31m way"}') == "no [31m way"
    assert error_text(b"first line\nsecond") == "first line"
    assert error_text(b"<html>") == "" and error_text(b"[1]") == ""
    assert len(error_text(b"x" * 10_000)) == 300


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_busy_server_is_tried_again_after_the_pause_that_it_wants(status):
    replies, pauses = [(status, b"", {"Retry-After": "7"}), (200, {"ok": 1}, {})], []
    with served(lambda *_: replies.pop(0)) as url, JsonServer(Address("grafana", url), pause=pauses.append) as server:
        assert server.get("api/x", [], not_found="") == {"ok": 1}
    assert pauses == [7.0]


def test_retry_after_is_seconds_or_a_date_and_anything_else_is_none():
    def pause_s(text):
        return Reply(503, {"retry-after": text}, b"").retry_after_s

    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)
    assert 50 < pause_s(in_a_minute) <= 60
    assert [pause_s(text) for text in ("12", "soon", "-3", "", "Wed, 21 Oct 2015 07:28:00 GMT")] == [12.0, 0.0, 0.0, 0.0, 0.0]


def test_pauses_double_and_end_at_the_longest():
    retries = Retries(tries=9, pause_s=1.0, longest_pause_s=10.0)
    assert [retries.pause_after(attempt, 0.0) for attempt in range(5)] == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert retries.pause_after(0, 3600.0) == 10.0
    assert Retries(pause_s=1.0, jitter=lambda: 0.0).pause_after(0, 0.0) == 0.5


def test_a_request_that_cannot_have_arrived_is_known_from_one_that_may_have():
    (port,) = free_ports(1)
    with pytest.raises(BusyError) as away:
        HttpClient(f"http://127.0.0.1:{port}", timeout_s=5).exchange("POST", content=b"{}")
    gate = threading.Event()
    with served(lambda *_: gate.wait(10) and (200, {}, {})) as url:
        with pytest.raises(BusyError) as late:
            HttpClient(url, timeout_s=0.05).exchange("GET")
        gate.set()
    assert not away.value.may_have_arrived and late.value.may_have_arrived


def test_an_answer_that_is_too_long_keeps_its_status():
    with served(lambda *_: (404, b"x" * 300_000, {})) as url, pytest.raises(TooLongError) as caught:
        HttpClient(url, timeout_s=5).exchange("GET", most_bytes=1000)
    assert caught.value.reply.status == 404 and len(caught.value.reply.body) <= 1000


def test_a_body_written_to_a_file_is_not_kept_in_memory(tmp_path):
    with served(lambda *_: (200, b"x" * 300_000, {})) as url, (tmp_path / "body").open("w+b") as out:
        assert HttpClient(url, timeout_s=5).exchange("GET", out=out).body == b""
        assert out.tell() == 300_000


def test_an_address_is_posted_to_as_it_is_written_and_a_path_is_appended_to_it():
    seen = []

    def reply(path, *_):
        seen.append(path)
        return 200, {}, {}

    with served(reply) as url:
        for address, path in ((f"{url}/hook", ""), (f"{url}/hook/", ""), (f"{url}/base/", "/api"), (f"{url}/base", "api")):
            HttpClient(address, timeout_s=5).exchange("GET", path)
    assert seen == ["/hook", "/hook/", "/base/api", "/base/api"]


def test_connections_that_were_closed_are_opened_again():
    with served(lambda *_: (200, {}, {})) as url, HttpServer(Address("grafana", url)) as server:
        server.close()
        assert server.exchange("GET", "x").status == 200
