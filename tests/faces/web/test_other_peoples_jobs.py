"""The whole server, asked by one user for what another one did, by every route of the API that the server itself lists."""

import json
import re

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.faces.web.app import create_app
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.jobs import JobRef
from stormpetrel.sources.slurm.sacct_text import SacctText
from tests.builders import Job, make_site, table_of, write_sacct
from tests.faces.web.sample_site import BROWSER, client_of

HOSTILE = "</script><script>alert(1)</script>"
THEIRS = "lees-own-secret"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A server with a job of kim and one of lee, kim's token, the administrator's, and the reference of lee's job."""
    folder = tmp_path_factory.mktemp("two")
    with make_site(folder / "site", serve={"login": "token", "admins": ["root"]}) as site:
        jobs = [Job(job_id=4711, user="kim", name=HOSTILE), Job(job_id=4712, user="leexyz", name=THEIRS, state="FAILED")]
        ingest_jobs(site, SacctText(write_sacct(folder / "log", jobs)))
        live = LiveSite(site)
        live.refresh()
        rows = {row["job_id"]: row for row in table_of(site).to_dicts()}
        tokens = {user: site.tokens.add(user, user=user, scopes=["read", "predict", "write"]) for user in ("kim", "root")}
        yield create_app(live), tokens, str(JobRef.of(rows[4712])), str(JobRef.of(rows[4711]))


def ask(asked, user, path, **options):
    app, tokens, *_ = asked
    return client_of(app).request(
        options.pop("method", "GET"), path, headers={"Authorization": f"Bearer {tokens[user]}"}, **options
    )


def routes(asked):
    """Every GET of the OpenAPI document, with lee's job, name or id wherever something is to be filled in."""
    document = ask(asked, "root", "/api/v1/openapi.json").json()
    ref = asked[2]
    for path, methods in document["paths"].items():
        if "get" not in methods:
            continue
        for value in (ref, "4712", "leexyz"):
            filled = path.partition("{")[0] + value + path.partition("}")[2] if "{" in path else path
            yield filled
            for parameter in methods["get"].get("parameters", []):
                if parameter["in"] == "query":
                    yield f"{filled}?{parameter['name']}={value}"


def without_times(text):
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "", text).replace("leexyz", "nobody")


def test_no_answer_of_the_api_shows_anything_of_another_user(asked):
    paths = sorted(set(routes(asked)))
    assert len(paths) > 20
    shown = [path for path in paths if THEIRS in ask(asked, "root", path).text]
    assert shown, "the administrator sees the job, so that what follows means something"
    for path in paths:
        answer = ask(asked, "kim", path)
        assert THEIRS not in answer.text, path
        assert answer.status_code != 500, path
        if "leexyz" in answer.text:  # the question repeated: then the answer is that on somebody who does not exist
            assert without_times(answer.text) == without_times(ask(asked, "kim", path.replace("leexyz", "nobody")).text), path


def test_a_foreign_job_and_a_missing_one_give_the_same_answer(asked):
    _, _, theirs, own = asked
    missing = theirs.replace("4712-", "9999-")
    assert ask(asked, "kim", f"/api/v1/jobs/{own}").status_code == 200
    foreign, nothing = (ask(asked, "kim", f"/api/v1/jobs/{ref}") for ref in (theirs, missing))
    assert foreign.status_code == nothing.status_code == 404
    assert foreign.text.replace("4712", "9999") == nothing.text
    assert foreign.headers == nothing.headers


def test_nobody_can_judge_the_advice_on_another_users_job(asked):
    given = {"job": asked[2], "advice": "ask for 8 GB", "useful": True}
    assert ask(asked, "kim", "/api/v1/opinions", method="POST", json=given).status_code == 404


def test_a_hostile_job_name_leaves_the_api_as_plain_json(asked):
    answer = ask(asked, "kim", "/api/v1/jobs")
    assert HOSTILE in json.dumps(answer.json())
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    app, tokens, *_ = asked
    page = client_of(app).get("/jobs", headers=BROWSER | {"Authorization": f"Bearer {tokens['kim']}"})
    assert page.status_code == 200 and "alert(1)" not in page.text
