"""Trends, waste, profiles, quality, health, models, opinions and views over HTTP: the answers of the desk."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel import __version__
from stormpetrel.answers.history.model_quality import trainings
from stormpetrel.answers.history.trends import trends
from stormpetrel.answers.history.waste import waste
from stormpetrel.answers.schemas.history import TrendsQuestion, WasteQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.records.jobs import ref_text
from tests.faces.api.sample_site import ADMIN


def test_trends_are_those_of_the_desk(world):
    told = world.get("/trends?by=account&every=1d&top=3")
    expected = trends(world.live, LOCAL, TrendsQuestion(by="account", every="1d", top=3)).model_dump(mode="json")
    assert told["trend"] == expected["trend"] and told["jobs"] == expected["jobs"]
    assert len({point["group"] for point in told["trend"]}) <= 3


def test_a_user_sees_the_trends_of_the_own_jobs(world):
    user = world.users()[0]
    told = world.get("/trends?by=user", user=user)
    assert told["own_only"] and {point["group"] for point in told["trend"]} <= {user}


def test_waste_adds_up(world):
    for by in ("user", "account", "application", "partition", "profile", "outcome", "week"):
        told = world.get(f"/waste?by={by}")
        for name in ("jobs", "failed_jobs", "core_seconds", "lost_core_seconds"):
            assert (
                sum(group[name] for group in told["groups"])
                == told["total"][name]
                == getattr(waste(world.live, LOCAL, WasteQuestion(by=by)).total, name)
            )


def test_the_cancel_policy_says_what_a_threshold_would_have_done(world):
    told = world.get("/cancel-policy?threshold=1")
    assert told["at"]["cancelled"] == 0 and told["points"][0]["cancelled"] > 0
    assert told["best"]["net_core_seconds"] >= told["at"]["net_core_seconds"] == 0
    assert world.get("/cancel-policy")["at"] is None


def test_profiles_count_the_jobs_that_one_may_see(world):
    told = world.get("/profiles")
    assert sum(profile["jobs"] for profile in told["profiles"]) <= told["jobs"]
    assert told["jobs"] + told["never_started"] == world.jobs.height
    user = world.users()[0]
    own = world.get("/profiles", user=user)
    assert own["jobs"] + own["never_started"] == world.jobs.filter(user=user).height


def test_quality_is_out_of_settled_predictions(world):
    told = world.get("/quality?moment=submit")
    overall = next(line for line in told["quality"] if line["moment"] == "submit" and line["model_version"] is None)
    assert 0 < overall["n"] <= world.jobs.filter(pl.col("risk").is_not_null()).height
    assert told["over_time"] and all(0 <= point["failed_share"] <= 1 for point in told["over_time"])


def test_health_and_version(world):
    assert world.get("/health")["worst"] in ("ok", "warning", "problem")
    told = world.get("/health", user=world.users()[0])
    assert str(world.site.folder) not in str(told) and set(told["versions"]) == {"Stormpetrel"}
    assert world.get("/version") == {"version": __version__, "api": "v1"}


def test_trainings_are_told_and_can_be_promoted(world):
    (line,) = trainings(world.live, LOCAL).trainings
    (told,) = world.get("/models")["trainings"]
    assert told["name"] == line.name and told["current"]
    full = world.get(f"/models/{line.name}")
    assert {model["name"] for model in full["models"]} >= {"jobs-submit", "jobs-start", "jobs-2min", "jobs-profiles"}
    promoted = world.ask("POST", f"/models/{line.name}/promote")
    assert promoted.status_code == 200 and promoted.json()["current"]
    assert world.site.audit.recent(1)[0].user == ADMIN
    assert world.ask("POST", "/models/jobs-99/promote").status_code == 404
    nowhere = world.ask("POST", "/models/rollback")
    assert nowhere.status_code == 409 and "nothing" in nowhere.json()["error"]["what"]


def test_models_are_put_in_use_by_administrators_only(world):
    user = world.users()[0]
    assert world.ask("POST", "/models/jobs-1/promote", user=user).status_code == 403
    assert world.ask("POST", "/models/rollback", user=user).status_code == 403


def test_an_opinion_is_kept_for_the_own_job_only(world):
    mine, other = world.users()[:2]
    refs = {user: world.jobs.filter(user=user).select(ref_text())["ref"][0] for user in (mine, other)}
    given = {"job": refs[mine], "advice": "Ask for 4 GB.", "useful": True}
    answer = world.ask("POST", "/opinions", user=mine, json=given)
    assert answer.status_code == 201 and answer.json() == given
    assert world.site.opinions.of(mine, refs[mine]) == {"Ask for 4 GB.": True}
    assert world.ask("POST", "/opinions", user=mine, json={**given, "job": refs[other]}).status_code == 404


def test_views_are_kept_for_each_user(world):
    mine, other = world.users()[:2]
    link = "/jobs?user=kim&sort=-risk#top"
    assert world.ask("PUT", "/views/my%20view", user=mine, json={"link": link}).json() == {"name": "my view", "link": link}
    assert world.get("/views", user=mine) == {"views": [{"name": "my view", "link": link}]}
    assert world.get("/views", user=other) == {"views": []}
    assert world.ask("DELETE", "/views/my%20view", user=other).status_code == 404
    gone = world.ask("DELETE", "/views/my%20view", user=mine)
    assert gone.status_code == 204 and gone.content == b""


@pytest.mark.parametrize("link", ["https://evil.example", "//evil.example", "/\\evil", "/a b", "jobs", "javascript:alert(1)"])
def test_a_view_leads_nowhere_else(world, link):
    assert world.ask("PUT", "/views/x", json={"link": link}).status_code == 422
