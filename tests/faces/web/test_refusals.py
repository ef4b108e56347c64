import json
import logging

import pytest

from stormpetrel.errors import (
    AccessError,
    DiskFullError,
    ModelError,
    ModelFormatError,
    NotEnoughJobsError,
    NotThereError,
    ReadOnlySiteError,
    SourceUnavailableError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from tests.faces.web.sample_site import BROWSER, client_of, small_app


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (AccessError("No.", hint="Ask."), 403, False),
        (NotThereError("No.", hint="Ask."), 404, False),
        (UsageError("No.", hint="Ask."), 422, False),
        (ModelError("No.", hint="Ask."), 409, False),
        (NotEnoughJobsError("No.", hint="Ask."), 409, False),
        (ModelFormatError("No.", hint="Ask."), 503, False),
        (StoreBusyError("No.", hint="Ask."), 503, True),
        (SourceUnavailableError("No.", hint="Ask."), 503, True),
    ],
)
def test_every_error_has_its_status_and_its_sentence(make, error, status, retry):
    answer = client_of(small_app(make(), raises=error)).get("/api/v1/wrong")
    assert answer.status_code == status
    assert answer.json() == {"error": {"what": "No.", "hint": "Ask."}}
    assert ("Retry-After" in answer.headers) == retry


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (DiskFullError("Cannot write in /srv/site: the disk /dev/sdb1 at /srv is full."), 507, "The server's disk is full"),
        (ReadOnlySiteError("The site /srv/site is read-only: /srv is mounted read-only."), 409, "This site is read-only here"),
    ],
)
def test_a_site_that_cannot_be_written_is_told_without_its_place_which_is_in_the_log(make, caplog, error, status, told):
    with caplog.at_level(logging.ERROR):
        answer = client_of(small_app(make(), raises=error)).get("/api/v1/wrong")
    assert answer.status_code == status and told in answer.text and "/srv" not in answer.text
    assert str(error) in caplog.text


def test_people_get_a_page_and_what_it_says_is_text(make):
    app = small_app(make(), raises=NotThereError("There is no job <script>alert(1)</script>.", hint="Ask."))
    answer = client_of(app).get("/wrong", headers=BROWSER)
    assert answer.status_code == 404 and answer.headers["Content-Type"].startswith("text/html")
    assert "<script" not in answer.text and "&lt;script&gt;" in answer.text


@pytest.mark.parametrize("error", [RuntimeError("password=hunter2"), StoreError("/secret/path is broken.")])
def test_what_nobody_foresaw_is_told_to_the_log_and_to_nobody_else(make, caplog, error):
    app = small_app(make(), raises=error)
    with caplog.at_level(logging.ERROR):
        for path, headers in (("/api/v1/wrong", {}), ("/wrong", BROWSER)):
            answer = client_of(app).get(path, headers=headers)
            assert answer.status_code == 500
            assert "hunter2" not in answer.text and "secret" not in answer.text and "Traceback" not in answer.text
    assert str(error) in caplog.text


def test_what_the_framework_refuses_has_the_same_form(make):
    app = small_app(make())

    @app.get("/api/v1/number")
    def number(value: int) -> int:
        return value

    client = client_of(app)
    for path, status in (("/api/v1/number?value=x", 422), ("/api/v1/nothing", 404)):
        answer = client.get(path)
        assert answer.status_code == status and set(answer.json()["error"]) == {"what", "hint"}
    assert "query.value" in client.get("/api/v1/number?value=x").json()["error"]["what"]
    assert len(client.get("/api/v1/number", params={"value": "y" * 5000}).content) < 1000
    assert client.post("/api/v1/number", content=json.dumps({})).status_code == 405


def test_a_page_that_is_not_there_is_a_small_page(make):
    answer = client_of(small_app(make())).get("/nothing", headers=BROWSER)
    assert answer.status_code == 404 and "There is nothing at this address." in answer.text
