"""The Open OnDemand app by itself: odd addresses and odd answers of the service end in a page, never in a trace."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from stormpetrel_client.where import ClientError

APP = Path(__file__).parents[2] / "integrations" / "ondemand"
HALF = "\ud83d<b>"  # half of a character, as JSON may hold it


@pytest.fixture
def app(monkeypatch):
    """The application; `app(answers)(path, query)` gives status and text."""
    monkeypatch.syspath_prepend(str(APP))
    from stormpetrel_ondemand import application

    def with_answers(answers: dict[str, Any]):
        class Service:
            def ask(self, method, path, **_):
                answer = answers.get(path, {})
                if isinstance(answer, Exception):
                    raise answer
                return answer

        monkeypatch.setattr(application, "_service", lambda timeout_s=0.0: Service())

        def get(path: str, query: str = "", **environment: Any) -> tuple[int, str]:
            told: list[str] = []
            asked = {"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": "GET", "wsgi.input": io.BytesIO(), **environment}
            body = b"".join(application.application(asked, lambda status, headers: told.append(status)))
            return int(told[0].split()[0]), body.decode()

        return get

    return with_answers


def test_an_address_with_a_hundred_parameters_is_refused(app):
    status, text = app({})("/why", "&".join(f"a{number}=1" for number in range(100)))
    assert status == 400 and "This did not work" in text


@pytest.mark.parametrize(
    "cookie", ["stormpetrel_form=" + "a" * 5000, 'stormpetrel_form="\\', "\x00=;=;stormpetrel_form=<script>"]
)
def test_a_cookie_of_another_form_is_no_cookie(app, cookie):
    status, text = app({})("/check", HTTP_COOKIE=cookie)
    assert status == 200 and "<script" not in text and "aaaa" not in text


@pytest.mark.parametrize(
    "answer", [[], {"items": [3]}, {"items": [{"job": 1, "risk": "high"}], "total": "many"}, {"items": [{"submit_time": 7}]}]
)
def test_an_answer_of_another_form_is_a_page_and_a_widget_that_say_so(app, answer):
    get = app({"/jobs": answer})
    for path in ("/jobs", "/widget"):
        status, text = get(path)
        assert status == 503 and "do not understand each other" in text
        assert ("<html" in text) == (path == "/jobs")


def test_a_service_too_busy_for_advice_does_not_take_the_rest_of_the_page_away(app):
    row = {"job": 7, "ref": "7", "job_name": "fit", "state": "RUNNING", "risk": 0.5}
    jobs = {"/jobs": {"items": [row, {**row, "ref": "8", "job_name": "gone"}], "total": 2}}
    busy = ClientError("The service does not answer: no answer within 3 s.")
    for path in ("/", "/widget", "/advice"):
        status, text = app({**jobs, "/jobs/7/advice": busy})(path)
        assert status == 200 and "the service is busy" in text and ("fit" in text or path == "/advice")
    gone = ClientError("There is no such job.", code=3)
    advice = {"advice": [{"sentence": "Ask for less."}]}
    status, text = app({**jobs, "/jobs/7/advice": gone, "/jobs/8/advice": advice})("/advice")
    assert status == 200 and "Ask for less." in text and "busy" not in text
    status, text = app({**jobs, "/jobs/7/advice": advice, "/jobs/8/advice": busy})("/widget")
    assert status == 200 and "Ask for less." in text and "busy" not in text


def test_half_a_character_in_a_name_breaks_no_page(app):
    row = {"job": 7, "ref": "7", "job_name": HALF, "state": "RUNNING", "risk": 0.5}
    status, text = app({"/jobs": {"items": [row], "total": 1}})("/jobs")
    assert status == 200 and "&lt;b&gt;" in text and "<b>" not in text


@pytest.mark.parametrize("length", ["many", "-5", "999999999"])
def test_a_body_whose_length_is_odd_is_refused(app, length):
    status, text = app({})("/check", REQUEST_METHOD="POST", CONTENT_LENGTH=length)
    assert status in (400, 403, 413) and "This did not work" in text
