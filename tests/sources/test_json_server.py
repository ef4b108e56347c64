import threading

import pytest

from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources import json_server
from stormpetrel.sources.json_server import JsonServer, words_of
from stormpetrel.sources.server_connection import Address
from tests.parts import free_ports
from tests.parts.loopback import served


def ask(url, *, timeout_s=5.0, **more):
    address = Address("grafana", url, more.get("token_file", ""), more.get("ca_file", ""), timeout_s)
    with JsonServer(address, pause=lambda _s: None) as server:
        return server.get("api/x", [("a", "1"), ("a", "2")], not_found="is not there")


def test_parameters_may_repeat_and_a_path_in_the_address_is_kept():
    seen = []

    def reply(path, asked, _headers):
        seen.append((path, asked))
        return 200, {"ok": 1}, {}

    with served(reply) as url:
        assert ask(f"{url}/grafana") == {"ok": 1}
    assert seen == [("/grafana/api/x", {"a": ["1", "2"]})]


def test_an_answer_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(json_server, "_MOST_BYTES", 1000)
    with served(lambda *_: (200, b" " * 5000, {})) as url, pytest.raises(SourceFormatError, match="answered with more than"):
        ask(url)


def test_deeply_nested_json_is_no_answer():
    with served(lambda *_: (200, b"[" * 100_000, {})) as url, pytest.raises(SourceUnavailableError, match="no JSON"):
        ask(url)


def test_a_server_that_is_not_there_is_one_sentence_without_its_password():
    (port,) = free_ports(1)
    with pytest.raises(SourceUnavailableError, match="cannot be reached") as caught:
        ask(f"http://me:secret@127.0.0.1:{port}")
    assert "secret" not in str(caught.value) and "(3 tries)" in str(caught.value)


def test_a_server_that_is_slow_is_given_up():
    given_up = threading.Event()

    def slow(*_):
        given_up.wait(10)
        return 200, {}, {}

    with served(slow) as url:
        with pytest.raises(SourceUnavailableError, match=r"did not answer within 0\.05 s"):
            ask(url, timeout_s=0.05)
        given_up.set()


@pytest.mark.parametrize("url", ["", "grafana.example.org", "file:///etc/passwd", "http://[::1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(SettingsError):
        ask(url)


def test_a_missing_authority_or_token_file_is_one_sentence(tmp_path):
    with pytest.raises(SettingsError, match="ca_file"):
        ask("https://127.0.0.1:9", ca_file=str(tmp_path / "none.pem"))
    with pytest.raises(SettingsError, match="cannot be read"):
        ask("http://127.0.0.1:9", token_file=str(tmp_path / "none"))
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("two words")
    with pytest.raises(SettingsError, match="does not hold one token"):
        ask("http://127.0.0.1:9", token_file=str(token))


def test_the_words_of_an_error_are_bounded_and_plain():
    assert words_of(b'{"message": "no\\u001b[31m way"}') == "no [31m way"
    assert words_of(b"first line\nsecond") == "first line"
    assert words_of(b"<html>") == "" and words_of(b"[1]") == ""
    assert len(words_of(b"x" * 10_000)) == 300
