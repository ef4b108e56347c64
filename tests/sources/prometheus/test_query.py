"""A server that answers nonsense, late, in part or not at all: one sentence each time, and nothing is believed."""

import json
import re
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.prometheus import query as prometheus_query
from stormpetrel.sources.prometheus.query import PrometheusServer, any_of, quoted

RESUME = datetime(2026, 11, 2, 10, tzinfo=UTC)
STAYS = "The cursor stays at 2026-11-02T10:00:00Z; the next run resumes there."


def matrix(*pairs, labels=None):
    entry = {"metric": labels or {"instance": "n1"}, "values": [[time, str(value)] for time, value in pairs]}
    return {"status": "success", "data": {"resultType": "matrix", "result": [entry]}}


def error(kind, words):
    return {"status": "error", "errorType": kind, "error": words}


class Script:
    """What the server does at each request: an answer, or a function of the request's fields that gives one."""

    def __init__(self):
        self.answers, self.requests, self.headers = [], [], []

    def add(self, body, status=200, **headers):
        self.answers.append((status, body, headers))

    def reply(self, method, form, headers):
        self.requests.append((method, form))
        self.headers.append(headers)
        status, body, more = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return status, body(form) if callable(body) else body, more


@contextmanager
def served(script):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers.get("Content-Length", 0))
            self._reply("POST", parse_qs(self.rfile.read(length).decode()))

        def do_GET(self):
            self._reply("GET", parse_qs(urlsplit(self.path).query))

        def _reply(self, method, form):
            status, body, more = script.reply(method, {name: value[0] for name, value in form.items()}, dict(self.headers))
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **more}.items():
                self.send_header(name.replace("_", "-"), value)
            with suppress(ConnectionError):  # who asked has given up
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def ask(script):
    """Asks the scripted server for a minute of samples; keeps the pauses between tries."""
    pauses = []

    def asking(**settings):
        with served(script) as url, PrometheusServer(PrometheusSection(url=url, **settings), pause=pauses.append) as server:
            server.resume = RESUME
            return server.samples('up{job="node"}', 1_000.0, 1_060.0)

    asking.pauses = pauses
    return asking


def complaint(ask, kind, **settings):
    with pytest.raises(kind) as caught:
        ask(**settings)
    assert caught.value.what.startswith("Prometheus at http://127.0.0.1:") and caught.value.what.endswith(STAYS)
    assert "\n" not in str(caught.value) and caught.value.hint
    return caught.value.what


def test_raw_samples_are_asked_for_by_an_instant_query_over_a_range(ask, script):
    script.add(matrix((1_001.5, 3), (1_002.5, "NaN")))
    (series,) = ask()
    assert script.requests == [("POST", {"query": 'up{job="node"}[60000ms]', "time": "1060.000"})]
    assert series.time_s.tolist() == [1_001.5, 1_002.5] and series.values[0] == 3 and series.values[1] != series.values[1]


def test_a_busy_server_is_asked_three_times_with_growing_pauses(ask, script):
    script.add(b"busy", 503)
    script.add(error("unavailable", "later"), 429, Retry_After="3")
    script.add(matrix((1, 1)))
    assert len(ask()) == 1 and ask.pauses == [0.5, 3.0]


def test_a_server_that_stays_busy_is_given_up_and_the_cursor_stays(ask, script):
    script.add(error("unavailable", "no store is ready"), 503)
    assert "answered 503: no store is ready (3 tries)" in complaint(ask, SourceUnavailableError)


def test_too_many_samples_are_asked_for_in_halves_until_they_are_few_enough(ask, script):
    def few(form):
        length = int(re.search(r"\[(\d+)ms\]", form["query"])[1])
        end = float(form["time"])
        return matrix(*((end - back, 1) for back in range(length // 1000))) if length <= 15_000 else None

    class Limited(Script):
        def reply(self, method, form, headers):
            self.requests.append((method, form))
            answer = few(form)
            return (200, answer, {}) if answer else (422, error("execution", "query would load too many samples"), {})

    limited = Limited()
    with served(limited) as url, PrometheusServer(PrometheusSection(url=url)) as server:
        (series,) = server.samples("up", 1_000.0, 1_060.0)
        assert sorted(series.time_s) == [float(second) for second in range(1_001, 1_061)]
        asked = len(limited.requests)
        server.samples("up", 1_000.0, 1_060.0)
        assert len(limited.requests) - asked == 4  # what it took is remembered


def test_a_server_that_refuses_every_size_is_given_up(ask, script):
    script.add(error("execution", "exceeded the limit"), 422)
    assert "exceeded the limit" in complaint(ask, SourceUnavailableError)
    assert len(script.requests) < 10


def test_an_answer_without_end_is_cut_off_and_asked_for_in_halves(ask, script, monkeypatch):
    monkeypatch.setattr(prometheus_query, "_MOST_BYTES", 200)
    script.add(b"x" * 1_000)
    script.add(matrix((1, 1)))
    script.add(matrix((2, 1)))
    (series,) = ask()
    assert series.time_s.tolist() == [1, 2]


def test_a_web_page_is_not_taken_for_data(ask, script):
    script.add(b"<!doctype html><title>Sign in</title>", Content_Type="text/html")
    assert "a web page" in complaint(ask, SourceFormatError) and len(script.requests) == 1


def test_half_a_body_is_tried_again(ask, script):
    whole = json.dumps(matrix((1, 1))).encode()
    script.add(whole[:40])
    script.add(whole, Content_Length=str(len(whole) + 50))  # broken off before its end
    script.add(whole)
    assert len(ask()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "success"},
        {"status": "success", "data": {"resultType": "matrix"}},
        {"status": "success", "data": {"resultType": "string", "result": [1, "x"]}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1]]}]}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": [], "values": [[1, "1"]]}]}},
        {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [["a", "b"]]}]}},
        {"status": "success", "data": {"resultType": "matrix", "result": 7}},
    ],
)
def test_json_that_no_prometheus_has_is_refused(ask, script, answer):
    script.add(answer)
    assert "form that no Prometheus has" in complaint(ask, SourceFormatError)


@pytest.mark.parametrize("body", [b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"status": "err'])
def test_what_is_no_json_object_is_tried_again_and_refused(ask, script, body):
    script.add(body)
    assert "no JSON" in complaint(ask, SourceUnavailableError) and len(script.requests) == 3


def test_an_error_with_status_200_is_told_in_its_own_words(ask, script):
    script.add(error("internal", "disk\x1b[2J is gone"))
    assert "answered with an error: disk [2J is gone" in complaint(ask, SourceUnavailableError)


@pytest.mark.parametrize("partial", [{"isPartial": True}, {"warnings": ["store s3 is unavailable"]}])
def test_a_part_of_the_data_is_not_taken_for_the_whole(ask, script, partial):
    script.add({**matrix((1, 1)), **partial})
    assert "only part of the data" in complaint(ask, SourceUnavailableError)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_told_at_once(ask, script, status):
    script.add(b"no", status)
    assert "refused the token" in complaint(ask, SourceUnavailableError) and len(script.requests) == 1


def test_a_redirect_is_not_followed(ask, script):
    script.add(b"", 302, Location="https://elsewhere.example/")
    assert "https://elsewhere.example/" in complaint(ask, SettingsError) and len(script.requests) == 1


def test_a_query_that_is_not_understood_points_to_the_settings(ask, script):
    script.add(error("bad_data", "parse error: unexpected ','"), 400)
    assert "parse error" in complaint(ask, SettingsError)


def test_where_post_is_forbidden_get_is_used_from_then_on(ask, script):
    script.add(b"", 405)
    script.add(matrix((1, 1)))
    assert len(ask()) == 1 and [method for method, _ in script.requests] == ["POST", "GET"]
    assert script.requests[0][1] == script.requests[1][1]


def test_a_server_that_is_away_or_too_slow_is_given_up(script):
    with PrometheusServer(PrometheusSection(url="http://127.0.0.1:9"), pause=lambda _: None) as server:
        server.resume = RESUME
        with pytest.raises(SourceUnavailableError, match=r"cannot be reached.*3 tries.*cursor stays at 2026-11-02T10:00:00Z"):
            server.samples("up", 0, 60)
    gate = threading.Event()
    script.add(lambda _: gate.wait(10) or b"")
    with served(script) as url:
        settings = PrometheusSection(url=url, timeout_s=0.05)
        with (
            PrometheusServer(settings, pause=lambda _: None) as server,
            pytest.raises(SourceUnavailableError, match=r"did not answer within 0\.05 s \(3 tries\)"),
        ):
            server.samples("up", 0, 60)
        gate.set()


def test_the_token_is_sent_and_must_be_private(ask, script, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by others"):
        ask(token_file=str(token))
    token.chmod(0o600)
    script.add(matrix((1, 1)))
    ask(token_file=str(token))
    assert script.headers[-1]["Authorization"] == "Bearer secret"
    token.write_text("two tokens")
    with pytest.raises(SettingsError, match="does not hold one token"):
        ask(token_file=str(token))


@pytest.mark.parametrize("url", ["", "prometheus:9090", "file:///etc/passwd"])
def test_what_is_no_address_is_a_wrong_setting(url):
    with pytest.raises(SettingsError, match=r"prometheus\.url"):
        PrometheusServer(PrometheusSection(url=url))


def test_a_missing_authority_file_and_a_password_in_the_address_are_told_without_the_password():
    with pytest.raises(SettingsError, match="ca_file"):
        PrometheusServer(PrometheusSection(url="https://x", ca_file="/no/such/file.pem"))
    with PrometheusServer(PrometheusSection(url="http://ada:secret@127.0.0.1:9")) as server:
        assert "secret" not in server.name


def test_names_in_a_query_are_text_whatever_is_in_them():
    assert quoted('a"} or vector(1) #\n\\') == '"a\\"} or vector(1) #\\n\\\\"'
    assert any_of(["n1:9100", "a.b|c"]) == '"(n1\\\\:9100|a\\\\.b\\\\|c)"'
