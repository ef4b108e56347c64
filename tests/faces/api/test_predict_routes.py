"""Predictions over HTTP say what the library says, for those who may ask."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from stormpetrel_client import render

from stormpetrel.answers.jobs.check import check_request
from stormpetrel.answers.schemas.predictions import Prediction
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import SubmitSection
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.job_models import load_predictor
from stormpetrel.sources.scripts.job_script import parse_job_script
from tests.faces.api.sample_site import ADMIN, SERVE, open_world
from tests.parts.watched_site import copy_site, watched_site_once

SCRIPT = "#!/bin/bash\n#SBATCH --time=0:20:00 --mem=2G --cpus-per-task=4 --job-name={name}\nsrun fit\n"
REQUEST = {"job_name": "fit_3", "cpus": 4, "nodes": 1, "memory_bytes": 2**31, "time_limit_s": 1200, "partition": "batch"}


@pytest.fixture(scope="module")
def user(world):
    return world.users()[0]


def test_a_prediction_is_that_of_the_library(world, user):
    said = world.ask("POST", "/predict?explain=true", json={**REQUEST, "user": user}).json()
    now = world.live.now()
    script = "#!/bin/bash\n#SBATCH -t 20 --mem=2G -c 4 -J fit_3 -p batch\n"
    row = (
        parse_job_script(script, name="job.sh")
        .as_frame(user=user, submit_time=now, cluster="small")
        .with_columns(script_path=None)
    )
    verdict = load_predictor(world.site, now=now, moments=[Moment.SUBMIT]).judge(row.cast(row.schema), Moment.SUBMIT, now)
    assert said["risk"] == verdict.risk and said["outcomes"] == dict(verdict.outcomes)
    assert [reason["words"] for reason in said["reasons"]] == [reason.words for reason in verdict.reasons]
    assert (said["flagged"], said["known"], said["profile"]) == (verdict.flagged, verdict.known, verdict.profile)
    assert (said["likeliest"], said["threshold"], said["base"]) == (verdict.likeliest, verdict.threshold, verdict.base)
    assert said["model_version"] == world.site.models.current("jobs-submit").version


def test_reasons_are_told_only_where_they_are_asked_for(world):
    said = world.ask("POST", "/predict", json=REQUEST).json()
    assert said["reasons"] is None and said["base"] is None
    assert set(said) == set(Prediction.model_fields)


def test_many_are_answered_in_the_order_of_the_requests(world, user):
    requests = [{**REQUEST, "user": user, "cpus": cpus, "time_limit_s": 60.0 * cpus} for cpus in range(1, 60)]
    together = world.ask("POST", "/predict/many", json=requests).json()["predictions"]
    alone = [world.ask("POST", "/predict", json=request).json() for request in requests[::10]]
    assert len(together) == len(requests) and together[::10] == alone


def test_single_requests_that_come_together_get_their_own_answers(world, user):
    requests = [{**REQUEST, "user": user, "cpus": cpus, "time_limit_s": 30.0 * cpus} for cpus in range(1, 41)]
    expected = world.ask("POST", "/predict/many", json=requests).json()["predictions"]
    headers = {"Authorization": f"Bearer {world.token(ADMIN)}"}

    async def ask_all():
        transport = httpx.ASGITransport(world.app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await asyncio.gather(*(client.post("/api/v1/predict", json=request) for request in requests))

    assert [answer.json() for answer in asyncio.run(ask_all())] == expected


def test_no_request_and_too_many(world):
    assert world.ask("POST", "/predict/many", json=[]).json() == {"predictions": []}
    refused = world.ask("POST", "/predict/many", json=[{}] * 10_001)
    assert refused.status_code == 422 and "10000" in refused.json()["error"]["what"]


def test_a_script_gets_the_answer_of_the_command_line(world, user):
    name = world.jobs.filter(user=user)["job_name"].drop_nulls()[0]
    text = SCRIPT.format(name=name)
    said = world.ask("POST", "/predict/script", json={"text": text, "user": user, "folder": "/home/x", "name": "run.sh"}).json()
    request = parse_job_script(text, name="run.sh")
    expected = check_request(world.site, LOCAL, request, user=user, folder="/home/x", now=world.live.now()).model_dump(
        mode="json"
    )
    assert _rounded(said) == _rounded(expected)  # the command line walks the trees without XGBoost
    assert said["risk"] == pytest.approx(expected["risk"], abs=1e-6)
    assert said["advice"]


def _rounded(value):
    """The answer with its numbers to four places."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 4) if isinstance(value, float) else value


@pytest.mark.parametrize("text", ["nothing that is a script", " ", "\x00\x01\x02"])
def test_what_is_no_script_is_refused_with_a_sentence(world, text):
    refused = world.ask("POST", "/predict/script", json={"text": text, "name": "notes.txt"})
    assert refused.status_code == 422 and refused.json()["error"]["hint"]


def test_a_user_asks_for_himself_only(world):
    mine, other = world.users()[:2]
    assert world.ask("POST", "/predict", user=mine, json={**REQUEST, "user": mine}).status_code == 200
    for path, body in (
        ("/predict", {**REQUEST, "user": other}),
        ("/predict/many", [REQUEST, {**REQUEST, "user": other}]),
        ("/predict/script", {"text": SCRIPT.format(name="fit"), "user": other}),
    ):
        refused = world.ask("POST", path, user=mine, json=body)
        assert refused.status_code == 403 and other not in refused.text


def test_a_user_who_is_not_named_is_the_one_who_asks(world):
    mine = world.users()[0]
    named = world.ask("POST", "/predict", json={**REQUEST, "user": mine}).json()
    assert world.ask("POST", "/predict", user=mine, json=REQUEST).json() == named
    assert named["known"] or named["risk"] != world.ask("POST", "/predict", json={**REQUEST, "user": "nobody"}).json()["risk"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"user": "\\ud800"}',
        b'{"time_limit_s": NaN}',
        b'{"time_limit_s": 1e999}',
        b'{"cpus": "4"}',
        b'{"cpu": 4}',
        b"[",
        b"{}" * 2,
    ],
)
def test_nonsense_is_refused_and_not_repeated(world, body):
    refused = world.ask("POST", "/predict", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422 and set(refused.json()) == {"error"}


def test_a_new_site_answers_from_general_experience_and_says_so(tmp_path, tmp_path_factory):
    copy_site(watched_site_once(tmp_path_factory, trained=False), tmp_path / "site", serve=SERVE).close()
    new = open_world(tmp_path / "site")
    assert new.ask("POST", "/predict", json=REQUEST).json()["model_version"] == -1
    said = new.ask("POST", "/predict/script", json={"text": SCRIPT.format(name="fit"), "user": "somebody"}).json()
    assert 0 < said["risk"] < 1 and said["notes"][0].startswith("No history of this site yet")
    new.site.close()


def test_without_a_model_there_is_advice_but_no_risk(tmp_path, tmp_path_factory):
    untrained_site = watched_site_once(tmp_path_factory, trained=False)
    copy_site(untrained_site, tmp_path / "site", serve=SERVE, jobs={"prior": False}).close()
    untrained = open_world(tmp_path / "site")
    refused = untrained.ask("POST", "/predict", json=REQUEST)
    assert refused.status_code == 409 and "jobs train" in refused.json()["error"]["hint"]
    said = untrained.ask("POST", "/predict/script", json={"text": SCRIPT.format(name="fit"), "user": "somebody"}).json()
    assert said["risk"] is None and "No risk can be given" in said["notes"][0] and said["advice"]
    untrained.site.close()


def submitting(world, **options):
    answer = world.ask(
        "POST", "/predict/submit", json={"options": {"time": "00:20:00", "mem": "2G", "job-name": "fit_3", **options}}
    )
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return answer.text.splitlines()


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [({"show_above": 1.0}, "silent"), ({"show_above": 0.0}, "show"), ({"show_above": 0.0, "refuse_above": 0.0}, "refuse")],
)
def test_who_submits_sees_what_the_site_wants_shown(world, monkeypatch, limits, verdict):
    monkeypatch.setattr(type(world.live), "settings", world.live.settings.model_copy(update={"submit": SubmitSection(**limits)}))
    lines = submitting(world, argv=["/home/ada/fit.sh", "--deep"])
    assert lines[0] == verdict
    assert lines[1:] == [] if verdict == "silent" else "of such jobs fail" in lines[1]


def test_a_wrapper_sends_the_script_and_gets_the_same_lines(world, monkeypatch):
    monkeypatch.setattr(
        type(world.live), "settings", world.live.settings.model_copy(update={"submit": SubmitSection(show_above=0.0)})
    )
    script = {"text": SCRIPT.format(name="fit_3"), "name": "run.sh", "kind": "slurm", "arguments": ["--mem=2G"], "folder": "/"}
    answer = world.ask("POST", "/predict/submit", json={"script": script})
    assert answer.status_code == 200 and answer.text.startswith("show\nStormpetrel: ")


def test_each_component_of_a_heterogeneous_job_is_judged(world, user):
    script = {"text": SCRIPT.format(name="fit_3"), "user": user, "name": "run.sh"}
    alone = world.ask("POST", "/predict/script", json=script).json()
    both = world.ask("POST", "/predict/script", json={**script, "arguments": ["-n", "1", ":", "-n", "2", "--time=5"]}).json()
    assert alone["components"] == [] and [one["number"] for one in both["components"]] == [1, 2]
    assert both["risk"] == max(one["risk"] for one in both["components"])
    text = list(render.check_lines(both))
    assert any(line.startswith("Component 2: ") and "of such jobs fail" in line for line in text)


def test_what_sbatch_ended_up_with_is_what_is_judged(world, user):
    text = SCRIPT.format(name="fit_3")
    script = world.ask("POST", "/predict/script", json={"text": text, "user": user, "name": "run.sh"}).json()
    words = {"text": "#!/bin/sh\n", "user": user, "name": "run.sh", "kind": "slurm"}
    arguments = ["--time=0:20:00", "--mem=2G", "--cpus-per-task=4", "--job-name=fit_3"]
    assert world.ask("POST", "/predict/script", json={**words, "arguments": arguments}).json()["risk"] == script["risk"]
