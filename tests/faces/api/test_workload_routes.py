"""The workload over HTTP: for administrators; a file of jobs that is bounded, sent, and gone."""

from __future__ import annotations

import tempfile

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.errors import AccessError, UsageError
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.client import Client
from stormpetrel.faces.web.app import bare_app, protected
from tests.answers.workload_sites import CARD, GENERATOR, put_generator, put_workload
from tests.builders import make_site
from tests.faces.api.sample_site import ADMIN, World
from tests.faces.web.sample_site import running


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A served site with two weeks of jobs and a generator."""
    serve = {"login": "token", "admins": [ADMIN], "requests_per_minute": 1_000_000, "hosts": ["testserver"]}
    with make_site(tmp_path_factory.mktemp("workload") / "site", serve=serve) as site:
        put_workload(site)
        put_generator(site)
        live = LiveSite(site)
        live.refresh()
        app = bare_app(live)
        app.include_router(router(live))
        yield World(site, live, protected(app, site))


def ask_for(served, **wish):
    return served.ask("POST", "/workload/sample", json=wish)


def test_the_generator_is_told_with_its_scorecard(served):
    told = served.get("/workload")["generator"]
    assert (told["training"], told["generator"], told["scorecard"]) == ("synth-1", GENERATOR, CARD)
    assert told["groups"][0]["words"] == "users of large jobs"


def test_a_user_is_told_nothing_of_the_generator_and_gets_no_jobs(served):
    answers = [
        served.ask("GET", "/workload", user="ada"),
        served.ask("POST", "/workload/sample", user="ada", json={"jobs": 1}),
        served.ask("POST", "/workload/sample", scopes=("read",), json={"jobs": 1}),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert not any("gaussian" in answer.text for answer in answers)


def test_the_file_is_gone_once_it_is_sent_and_the_trail_says_who_asked(served, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = ask_for(served, jobs=40, seed=3, format="csv", start="2027-01-01T00:00:00Z")
    assert answer.status_code == 200 and answer.headers["x-stormpetrel-jobs"] == "40"
    assert answer.headers["content-disposition"] == 'attachment; filename="workload-3.csv"'
    assert answer.headers["content-type"].startswith("text/csv") and answer.headers["cache-control"] == "no-store"
    assert len(answer.text.splitlines()) == 41 and "2027-01-01" in answer.text
    assert ask_for(served, jobs=40, users=3.0).status_code == 422  # after the folder was made
    assert list(tmp_path.iterdir()) == []
    entry = served.site.audit.recent()[0]
    assert (entry.user, entry.action, entry.about["jobs"]) == (ADMIN, "synth sample", 40)


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"jobs": 0},
        {"jobs": 200_001},
        {"jobs": 10.5},
        {"jobs": 10, "days": 1},
        {"days": 1e9},
        {"jobs": 10, "users": 0},
        {"jobs": 10, "seed": -1},
        {"jobs": 10, "start": "yesterday"},
        {"jobs": 10, "start": "2027-01-01T00:00:00"},
        {"jobs": 10, "start": "0001-01-01T00:00:00Z"},
        {"jobs": 10, "format": "../swf"},
        {"jobs": 10, "colour": "red"},
    ],
)
def test_what_makes_no_sense_is_refused(served, wish):
    assert ask_for(served, **wish).status_code == 422


def test_the_client_writes_the_file_or_tells_why_not(served, tmp_path):
    with running(served.app) as url, Client(url, served.token(ADMIN)) as client:
        assert client.workload()["generator"]["jobs"] > 1000
        assert client.sample_workload(tmp_path / "jobs.parquet", jobs=30, format="parquet") == 30
        assert (tmp_path / "jobs.parquet").read_bytes().startswith(b"PAR1")
        with pytest.raises(UsageError, match="cannot change the number of users"):
            client.sample_workload(tmp_path / "more", jobs=30, users=2.0)
        with Client(url, served.token("ada")) as user, pytest.raises(AccessError):
            user.sample_workload(tmp_path / "more", jobs=30)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.parquet"]
