"""Who may do what, for every endpoint that there is: a new one is tested without being named here."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from stormpetrel.answers.viewer import MANAGE, SCOPES
from stormpetrel.faces.api.endpoint import PREFIX, SCOPE
from stormpetrel.records.jobs import ref_text
from tests.faces.api.sample_site import ADMIN

BODIES: dict[str, Any] = {
    "predict": {"cpus": 2},
    "predict_many": [{"cpus": 2}],
    "predict_script": {"text": "#!/bin/bash\n#SBATCH -t 10\n"},
    "predict_submit": {"options": {"time": "00:10:00"}},
    "give_opinion": {"job": "", "advice": "Ask for less.", "useful": True},
    "save_view": {"link": "/jobs"},
    "create_token": {"name": "mine"},
    "choose_digest": {"wanted": False},
    "act_on_alarm": {"kind": "note", "note": "seen"},
    "cancel_job": {"confirm": ""},
    "turn_actions": {"on": True},
    "take_jobcomp": {"jobid": 1, "@submit": "2026-01-01T00:00:00", "state": "COMPLETED"},
    "mute": {"kind": "node", "name": "n017", "hours": 1.0},
}


def operations(document):
    return [
        (operation["operationId"], method, path.removeprefix(PREFIX), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.fixture(scope="module")
def endpoints(world):
    return operations(world.app.openapi())


def asked(world, endpoint, *, ref: str, **options: Any):
    """One endpoint with everything that it needs, about one job."""
    name, method, path, operation = endpoint
    path = path.replace("{ref}", ref).replace("{training}", "jobs-1").replace("{name}", "a")
    path = path.replace("{number}", "1").replace("{mute}", "1")
    needed = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query" and one.get("required")]
    query = {"id": ref.partition("-")[0]} if "id" in needed else {}
    assert set(needed) == set(query), f"say here what {name} needs"
    body = BODIES.get(name)
    if body is not None:
        about = {"job": ref, "confirm": ref.partition("-")[0]}
        options["json"] = body | {key: about[key] for key in about if key in body} if isinstance(body, dict) else body
    return world.ask(method.upper(), path, params=query, **options)


def refs_of(world, user):
    return world.jobs.filter(pl.col("user") == user).select(ref_text())["ref"].to_list()


def test_there_are_endpoints_to_test(endpoints):
    assert len(endpoints) >= 22
    assert {operation[SCOPE] for *_, operation in endpoints} == set(SCOPES)


def test_every_endpoint_needs_the_scope_that_it_names(world, endpoints):
    ref = world.jobs.select(ref_text())["ref"][0]
    for endpoint in endpoints:
        scope = endpoint[3][SCOPE]
        others = tuple(one for one in SCOPES if one != scope)
        refused = asked(world, endpoint, ref=ref, scopes=others)
        assert refused.status_code == 403, endpoint[0]
        assert f"'{scope}'" in refused.json()["error"]["what"], endpoint[0]
        allowed = asked(world, endpoint, ref=ref, scopes=(scope,))
        if endpoint[0] == "create_token":  # what lets somebody in comes from the kernel alone
            assert allowed.status_code == 403 and "Unix socket" in allowed.json()["error"]["what"]
        else:
            assert allowed.status_code != 403, endpoint[0]


def test_nobody_is_answered_without_a_token(world, endpoints):
    ref = world.jobs.select(ref_text())["ref"][0]
    for endpoint in endpoints:
        refused = asked(world, endpoint, ref=ref, headers={"Authorization": "Bearer sp_wrong"})
        assert refused.status_code == 401, endpoint[0]


def test_what_manages_is_for_administrators_only(world, endpoints):
    user = world.users()[0]
    managing = [endpoint for endpoint in endpoints if endpoint[3][SCOPE] == MANAGE]
    assert managing
    for endpoint in managing:
        assert asked(world, endpoint, ref=refs_of(world, user)[0], user=user).status_code == 403


def test_no_endpoint_shows_a_user_anything_of_anothers_jobs(world, endpoints):
    mine, other = world.users()[:2]
    theirs = world.jobs.filter(pl.col("user") == other)
    ref = theirs.filter(pl.col("risk").is_not_null()).select(ref_text())["ref"][0]
    secrets = {other, *theirs.select(ref_text())["ref"], *theirs["work_dir"].drop_nulls().unique()}
    for endpoint in endpoints:
        answer = asked(world, endpoint, ref=ref, user=mine)
        shown = answer.text if endpoint[0] != "give_opinion" else answer.text.replace(ref, "")
        assert not [secret for secret in secrets if secret in shown], endpoint[0]
        if "{ref}" in endpoint[2]:
            assert answer.status_code == 404, endpoint[0]


def test_an_administrator_sees_what_that_test_looks_for(world, endpoints):
    """The test above would find a leak: with the eyes of an administrator it finds many."""
    other = world.users()[1]
    ref = refs_of(world, other)[0]
    showing = {endpoint[0] for endpoint in endpoints if other in asked(world, endpoint, ref=ref, user=ADMIN).text}
    assert {"jobs", "job", "find", "trends", "waste"} <= showing


def test_a_foreign_job_and_a_missing_one_are_not_told_apart(world, endpoints):
    mine, other = world.users()[:2]
    foreign = refs_of(world, other)[0]
    number, _, rest = foreign.partition("-")
    missing = f"{number}-1{rest}"
    for endpoint in endpoints:
        if "{ref}" in endpoint[2] or endpoint[0] == "give_opinion":
            answers = [asked(world, endpoint, ref=ref, user=mine) for ref in (foreign, missing)]
            assert answers[0].status_code == answers[1].status_code == 404
            assert answers[0].json() == answers[1].json()


def test_hostile_names_are_data(world):
    name = "</script><b>%00' OR 1=1 --"
    for path in ("/jobs", "/find"):
        answer = world.ask("GET", path, params={"search" if path == "/jobs" else "id": name})
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert json.loads(answer.text)["items"] == []
