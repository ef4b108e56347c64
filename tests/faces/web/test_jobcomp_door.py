"""Slurm's jobcomp plug-in at the door: its token comes as a password, and opens nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stormpetrel.answers.viewer import INGEST, READ, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.store.site import Site
from stormpetrel.watch.reading import LiveReader
from tests.builders import Job, jobcomp_record, make_site, table_of
from tests.faces.web.sample_site import WebClient, api_app, client_of

PATH = "/api/v1/jobcomp"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    serve = {"login": "token", "admins": ["root"]}
    with make_site(tmp_path / "site", serve=serve, slurm={"jobcomp": True, "sacct": "none"}) as made:
        yield made


@pytest.fixture
def client(site: Site) -> WebClient:
    return client_of(api_app(site))


def send(client: WebClient, token: str, body: object, path: str = PATH) -> httpx.Response:
    return client.post(path, json=body, auth=("slurm", token))


def test_documents_that_slurm_sends_are_jobs_after_the_next_poll(site: Site, client: WebClient) -> None:
    token = site.tokens.add("slurm", user="root", scopes=[INGEST])
    assert send(client, token, jobcomp_record(Job(job_id=7))).json() == {"taken": 1}
    answer = send(client, token, [jobcomp_record(Job(job_id=number)) for number in (8, 9)])
    assert (answer.status_code, answer.json()) == (201, {"taken": 2})
    LiveReader(site).read()
    assert sorted(table_of(site)["job_id"].to_list()) == [7, 8, 9]


def test_the_token_is_needed_has_to_have_the_scope_and_opens_nothing_else(site: Site, client: WebClient) -> None:
    document = jobcomp_record(Job(job_id=7))
    reader = site.tokens.add("reader", user="root", scopes=[READ])
    slurm = site.tokens.add("slurm", user="root", scopes=[INGEST])
    assert client.post(PATH, json=document).status_code == 401
    assert send(client, "sp_wrong", document).status_code == 401
    assert client.post(PATH, json=document, headers={"Authorization": "Basic ??"}).status_code == 401
    assert send(client, reader, document).status_code == 403
    assert client.get("/api/v1/jobs", auth=("slurm", slurm)).status_code == 401
    assert client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {slurm}"}).status_code == 403
    assert not (site.folder / "incoming").exists()


@pytest.mark.parametrize("body", [{"jobid": 1}, [{"state": "FAILED"}], [1], "text", {"jobid": "x", "@submit": "", "state": ""}])
def test_what_is_no_document_is_refused_whole(site: Site, client: WebClient, body: object) -> None:
    token = site.tokens.add("slurm", user="root", scopes=[INGEST])
    assert send(client, token, body).status_code == 422
    assert not (site.folder / "incoming").exists()


def test_a_site_that_wants_none_says_what_to_set(tmp_path: Path) -> None:
    with make_site(tmp_path / "site") as site:
        answer = client_of(api_app(site)).post(PATH, json=jobcomp_record(Job(job_id=7)))
    assert answer.status_code == 404 and "slurm.jobcomp = true" in answer.json()["error"]["hint"]


def test_nobody_hands_in_records_without_a_token_for_it() -> None:
    with pytest.raises(AccessError, match=INGEST):
        Viewer("kim", is_admin=True).require(INGEST)
