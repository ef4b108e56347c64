"""A server that is busy, broken, closed or not what it seems: one sentence each time, and nothing is believed."""

import base64
import json
import re
import ssl
import subprocess
import threading
import warnings
from datetime import UTC, datetime

import pytest

from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.elastic import server as elastic_server
from stormpetrel.sources.elastic.server import PartAnswerError, SearchServer, index_path
from tests.parts import require
from tests.parts.elastic import VERSIONS, ElasticServer, served

RESUME = datetime(2026, 11, 2, 10, tzinfo=UTC)
STAYS = "The cursor stays at 2026-11-02T10:00:00Z; the next run resumes there."
COUNT = {"size": 0, "query": {"bool": {"filter": []}}}
BUSY = {
    "error": {"root_cause": [{"type": "es_rejected_execution_exception", "reason": "rejected \x1b[2J"}], "type": "x"},
    "status": 429,
}


@pytest.fixture(params=["elasticsearch", "opensearch"])
def fake(request):
    with served(ElasticServer(request.param, "3.2.0" if request.param == "opensearch" else "9.1.4")) as server:
        server.put("grid-a", [])
        yield server


@pytest.fixture
def ask(fake):
    """Searches once, keeping the pauses between tries; the faults come after the server has said what it is."""
    pauses = []

    def asking(*faults, **settings):
        with SearchServer(fake.settings(**settings), pause=pauses.append, jitter=lambda: 1.0) as server:
            assert server.identity
            server.resume = RESUME
            fake.faults = list(faults)
            return server.search(COUNT)

    asking.pauses = pauses
    return asking


def complaint(ask, kind, *faults, **settings):
    with pytest.raises(kind) as caught:
        ask(*faults, **settings)
    assert STAYS in caught.value.what and " at http://127.0.0.1:" in caught.value.what
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value) and caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(("flavour", "version"), VERSIONS)
def test_every_version_is_spoken_to_in_plain_json(flavour, version):
    with served(ElasticServer(flavour, version)) as fake:
        fake.put("grid-a", [])
        with SearchServer(fake.settings()) as server:
            server.search(COUNT)
            assert server.identity.flavour == flavour and server.identity.version == tuple(map(int, version.split(".")))
        headers = fake.requests[-1][3]
        assert "compatible-with" not in json.dumps(headers) and headers["Accept"] == "application/json"
        assert server.name.startswith("OpenSearch at" if flavour == "opensearch" else "Elasticsearch at")


def test_a_server_before_the_product_header_is_read_and_one_too_old_is_not():
    with served(ElasticServer("elasticsearch", "7.10.2")) as fake, SearchServer(fake.settings()) as server:
        fake.put("grid-a", [])
        assert server.search(COUNT)["timed_out"] is False
    too_old = pytest.raises(SourceFormatError, match=r"is version 6\.8\.23.*from 7\.2 on")
    with served(ElasticServer("elasticsearch", "6.8.23")) as fake, SearchServer(fake.settings()) as server, too_old:
        server.search(COUNT)


def test_the_flavour_of_the_settings_wins():
    with served(ElasticServer("opensearch", "2.19.3")) as fake, SearchServer(fake.settings(flavour="elasticsearch")) as server:
        assert server.identity.flavour == "elasticsearch"


def test_whoever_may_read_an_index_but_not_ask_for_the_version_is_served():
    with served(ElasticServer()) as fake, SearchServer(fake.settings()) as server:
        fake.put("grid-a", [])
        fake.faults = [(403, {"error": {"type": "security_exception", "reason": "cluster:monitor/main is unauthorized"}}, {})]
        assert server.search(COUNT)["_shards"]["failed"] == 0 and server.identity.version == ()


def test_a_busy_server_is_asked_again_after_growing_pauses_or_as_it_asks(ask):
    busy = (429, BUSY, {"Retry-After": "7"})
    assert ask((503, b"busy", {}), busy, (502, b"", {}), retries=4)["took"] == 1
    assert ask.pauses == [1.0, 7.0, 4.0]


def test_pauses_are_bounded_and_understand_dates(ask):
    ask((429, BUSY, {"Retry-After": "86400"}), (429, BUSY, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), retries=4)
    ask((429, BUSY, {"Retry-After": "soon"}), retries=4)
    assert ask.pauses == [60.0, 2.0, 1.0]


def test_a_server_that_stays_busy_is_given_up_and_the_cursor_stays(ask):
    told = complaint(ask, SourceUnavailableError, *[(429, BUSY, {})] * 9, retries=2)
    assert "answered 429: es_rejected_execution_exception: rejected [2J (3 tries)" in told and len(ask.pauses) == 2


def test_half_a_body_is_tried_again(ask):
    whole = json.dumps({"took": 1}).encode()
    assert ask((200, whole[:5], {}), (200, whole, {"Content-Length": "500"}), retries=2) and len(ask.pauses) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"took": '])
def test_what_is_no_json_object_is_tried_again_and_refused(ask, body):
    complaint(ask, SourceUnavailableError, *[(200, body, {})] * 2)
    assert len(ask.pauses) == 1


def test_a_web_page_is_not_taken_for_data(ask):
    page = (200, b"<!doctype html><title>Sign in</title>", {"Content-Type": "text/html"})
    assert "a web page" in complaint(ask, SourceFormatError, page) and ask.pauses == []


def test_an_answer_without_end_is_cut_off(ask, monkeypatch):
    monkeypatch.setattr(elastic_server, "_MOST_BYTES", 1_000)
    assert "more than" in complaint(ask, SourceFormatError, (200, b" " * 100_000, {}))


def test_an_answer_that_comes_too_late_is_given_up(ask):
    gate = threading.Event()
    late = (200, lambda: gate.wait(10) or {"took": 1}, {})
    try:
        assert "did not answer within 0.2 s (2 tries)" in complaint(ask, SourceUnavailableError, late, late, timeout_s=0.2)
    finally:
        gate.set()


def test_some_shards_are_not_taken_for_all(ask):
    part = {"timed_out": False, "_shards": {"total": 5, "successful": 3, "failed": 2, "failures": []}}
    with pytest.raises(PartAnswerError, match=r"2 of 5 shards failed \(without a reason\) \(2 tries\)") as caught:
        ask((200, part, {}), (200, part, {}))
    assert caught.value.reason == "answered in part only: 2 of 5 shards failed (without a reason)"
    remote = {"timed_out": False, "_clusters": {"total": 2, "successful": 1, "skipped": 1}}
    with pytest.raises(PartAnswerError, match="1 clusters skipped"):
        ask((200, remote, {}), (200, remote, {}))


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "refused the key or password, or wants one"), (403, r"does not permit this.*read and view_index_metadata on grid-\*")],
)
def test_a_refusal_is_told_at_once_with_what_to_do(ask, status, words):
    told = complaint(ask, SourceUnavailableError, (status, {"error": "no"}, {}))
    assert re.search(words, told) and ask.pauses == []


def test_a_redirect_is_not_followed(ask, fake):
    there = (302, b"", {"Location": "https://elsewhere.example/"})
    assert "https://elsewhere.example/" in complaint(ask, SettingsError, there)


@pytest.mark.parametrize(
    ("kind", "reason", "error", "words"),
    [
        ("illegal_argument_exception", "Fielddata is disabled on [x]", SourceFormatError, "Use FIELD.keyword"),
        ("query_shard_exception", "Failed to parse query [a (]", SettingsError, "elastic.query"),
        ("something_new", "what is this", SourceFormatError, "answered 400: something_new: what is this"),
    ],
)
def test_what_the_server_does_not_understand_points_to_the_settings(ask, kind, reason, error, words):
    assert words in complaint(ask, error, (400, {"error": {"root_cause": [{"type": kind, "reason": reason}]}}, {}))


def test_what_is_neither_of_the_two_is_told():
    with served(ElasticServer()) as fake, SearchServer(fake.settings()) as server:
        fake.faults = [(200, {"hello": "world"}, {})]
        with pytest.raises(SourceFormatError, match="neither Elasticsearch nor OpenSearch"):
            server.search(COUNT)


def test_deprecations_of_the_server_are_no_warnings_of_ours(ask):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask((200, {"took": 1}, {"Warning": '299 Elasticsearch-7.17.28 "this is deprecated"'}))


def test_a_server_that_is_away_is_told_and_nothing_is_printed(capfd):
    away = pytest.raises(SourceUnavailableError, match=r"cannot be reached.*\(2 tries\)")
    with SearchServer(ElasticServer().settings(url="http://127.0.0.1:9"), pause=lambda _: None) as server, away:
        server.search(COUNT)
    assert capfd.readouterr() == ("", "")


# --- keys, passwords, certificates --------------------------------------------------------------------------------------------


def secret(folder, text, mode=0o600):
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "setting", "more", "header"),
    [
        ("abc==", "api_key_file", {}, "ApiKey abc=="),
        ("id:key\n", "api_key_file", {}, f"ApiKey {base64.b64encode(b'id:key').decode()}"),
        ("pass word", "password_file", {"user": "ada"}, f"Basic {base64.b64encode(b'ada:pass word').decode()}"),
    ],
)
def test_the_key_or_password_comes_from_a_private_file(fake, tmp_path, text, setting, more, header):
    fake.authorization = header
    with SearchServer(fake.settings(**{setting: secret(tmp_path, text)}, **more)) as server:
        assert server.search(COUNT)["took"] == 1
    with pytest.raises(SettingsError, match="can be read by others"):
        SearchServer(fake.settings(**{setting: secret(tmp_path, text, 0o640)}, **more)).identity  # noqa: B018
    fake.authorization = "another"
    with SearchServer(fake.settings()) as server, pytest.raises(SourceUnavailableError, match="401"):
        server.search(COUNT)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": ""}, "Nothing says where"),
        ({"url": "host:9200"}, "no address"),
        ({"url": "file:///etc/passwd"}, "no address"),
        ({"url": "http://host:99999"}, "no address"),
        ({"url": "http://ada:secret@host:9200"}, "password_file"),
        ({"user": "ada"}, "without a password"),
        ({"user": "ada", "api_key_file": "k"}, "both"),
        ({"api_key_file": "/no/such/file"}, "cannot be read"),
        ({"url": "https://127.0.0.1:9", "ca_file": "/no/such/file"}, r"elastic\.ca_file"),
    ],
)
def test_settings_that_make_no_sense_are_told_without_secrets(more, words):
    with pytest.raises(SettingsError, match=words) as caught:
        SearchServer(ElasticServer().settings(**{"url": "http://127.0.0.1:9", **more})).identity  # noqa: B018
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize("index", ["-a", "a b", "a/b", "..", "_all", "a?b", "a#b", "a%2f", "", "a,", "x" * 256])
def test_names_that_no_index_has_are_refused(index):
    with pytest.raises(SettingsError, match=r"elastic\.index"):
        index_path(index)


def test_names_of_indices_are_text_in_the_address():
    assert index_path("grid-*,-grid-old*,far:grid-*,.ds-grid-2025.01.01-000001") == (
        "grid-*,-grid-old*,far%3Agrid-*,.ds-grid-2025.01.01-000001"
    )


def test_a_certificate_is_trusted_by_its_authority_only(tmp_path):
    require("openssl", install="openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for flavour in ("elasticsearch", "opensearch"):
        with served(ElasticServer(flavour, "3.2.0" if flavour == "opensearch" else "8.19.4"), tls=context) as fake:
            fake.put("grid-a", [])
            with SearchServer(fake.settings(ca_file=str(certificate))) as server:
                assert server.search(COUNT)["took"] == 1
            stranger = pytest.raises(SettingsError, match=r"not trusted.*elastic\.ca_file")
            with SearchServer(fake.settings()) as server, stranger:
                server.search(COUNT)
