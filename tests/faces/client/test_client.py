"""The client against a real server: typed answers, errors as ours, patience with a busy server."""

from __future__ import annotations

import inspect
import subprocess
import sys

import httpx
import pytest

from stormpetrel.answers.schemas.own import View
from stormpetrel.errors import (
    AccessError,
    ModelError,
    NotThereError,
    SourceFormatError,
    SourceUnavailableError,
    StormpetrelError,
    UsageError,
)
from stormpetrel.faces.client import Client, requests

NOT_FOR_PEOPLE = {"ErrorAnswer", "Problem", "ScriptRequest", "ViewGiven", "OpinionGiven", "PredictionList"}
REQUEST = {"cpus": 4, "time_limit_s": 1200.0, "job_name": "fit_3"}


def answering(*answers, sleeps=None, **options):
    """A client whose server gives these answers, one after the other."""
    left = list(answers)

    def answer(request):
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    sleeps = [] if sleeps is None else sleeps
    return Client("http://127.0.0.1:1", transport=httpx.MockTransport(answer), sleep=sleeps.append, **options)


def refusal(status, what="What happened.", hint="What to do.", **headers):
    return httpx.Response(status, json={"error": {"what": what, "hint": hint}}, headers=headers)


# --- what it says -------------------------------------------------------------------------------------------------------------


def test_predictions_one_and_many(client):
    one = client.predict(explain=True, **REQUEST)
    assert 0 <= one["risk"] <= 1 and one["reasons"][0]["words"]
    many = client.predict_many([REQUEST, {**REQUEST, "cpus": 1}])
    assert many[0]["risk"] == one["risk"] and many[0]["reasons"] is None


def test_more_requests_than_the_server_takes_at_once(client, monkeypatch):
    monkeypatch.setattr(inspect.getmodule(Client), "_AT_ONCE", 7)
    requests = [{**REQUEST, "cpus": cpus} for cpus in range(1, 31)]
    assert client.predict_many(requests) == client.predict_many(requests[:13]) + client.predict_many(requests[13:])


def test_a_script_is_read_from_its_file(client, tmp_path):
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/bash\n#SBATCH -t 20 --mem=2G -J fit_3\nsrun fit\n")
    told = client.check_script(path, user="somebody")
    assert told["kind"] == "slurm" and told["request"]["time_limit_s"] == 1200
    assert told["risk"] is not None


def test_jobs_come_page_by_page_and_each_once(client, world):
    refs = [job["ref"] for job in client.jobs(page_size=400)]
    assert len(refs) == len(set(refs)) == world.jobs.height
    times = [job["submit_time"] for job in client.jobs(page_size=1000)]
    assert times == sorted(times)


def test_jobs_are_chosen_by_typed_filters(client, world):
    first = world.jobs["submit_time"].sort()[100]
    late = list(client.jobs(submitted_since=first, state=["FAILED", "TIMEOUT"], failed=True))
    assert late and {job["state"] for job in late} == {"FAILED", "TIMEOUT"}
    page = client.jobs_page(limit=3, sort=["-risk", "user"])
    assert len(page["items"]) == 3 and page["total"] == world.jobs.height


def test_a_job_its_explanation_and_its_advice(client):
    ref = client.jobs_page(limit=1, sort="-risk")["items"][0]["ref"]
    whole = client.job(ref)
    assert client.explanation(ref)["predictions"] == whole["predictions"]
    assert client.advice(ref)["advice"] == whole["advice"]
    assert client.find(whole["overview"]["job"])[0]["ref"] == ref


def test_the_site_as_a_whole(client):
    assert client.trends(by="account", last=4)["by"] == "account"
    assert client.waste(weeks=2)["total"]["jobs"] > 0
    assert client.cancel_policy(threshold=0.5)["at"] is not None
    assert client.profiles()["profiles"] and client.quality(moment="submit")["quality"]
    assert client.health()["lines"] and client.version()["api"] == "v1"


def test_models(client):
    (training,) = client.models()
    assert client.model(training["name"])["models"]
    assert client.promote(training["name"])["current"]
    with pytest.raises(ModelError, match="nothing"):
        client.roll_back()


def test_what_people_keep(client, world):
    ref = client.jobs_page(limit=1)["items"][0]["ref"]
    client.give_opinion(ref, "Ask for less.", useful=False)
    assert world.site.opinions.of("the-admin", ref) == {"Ask for less.": False}
    before, view = client.views(), View(name="a view?", link="/jobs?user=kim")  # other tests keep views on this site too
    client.save_view(view.name, view.link)
    assert [one for one in client.views() if one not in before] == [view]
    client.delete_view(view.name)
    assert client.views() == before


# --- what goes wrong ----------------------------------------------------------------------------------------------------------


def test_errors_carry_the_sentence_and_the_hint_of_the_server(client, url, world):
    with pytest.raises(NotThereError, match="no job 12") as caught:
        client.job("12-1794746400000000-0-small")
    assert caught.value.hint
    with pytest.raises(UsageError, match="limit"):
        client.jobs_page(limit=5000)
    with Client(url, "sp_wrong") as stranger, pytest.raises(AccessError, match="token"):
        stranger.version()
    with Client(url, world.token(world.users()[0])) as user, pytest.raises(AccessError, match="your own"):
        user.predict(user="somebody", **REQUEST)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AccessError), (403, AccessError), (404, NotThereError), (409, ModelError), (413, UsageError), (422, UsageError)],
)
def test_a_status_is_an_error_of_ours(status, kind):
    with pytest.raises(kind) as caught:
        answering(refusal(status)).version()
    assert (caught.value.what, caught.value.hint) == ("What happened.", "What to do.")
    assert type(caught.value) is kind


def test_an_error_of_the_server_is_told():
    with pytest.raises(StormpetrelError, match="What happened"):
        answering(refusal(500)).version()


def test_a_busy_server_is_asked_again_after_what_it_says():
    sleeps = []
    busy = [refusal(429, **{"Retry-After": "3"}), refusal(503, **{"Retry-After": "7"}), refusal(503)]
    told = answering(*busy, httpx.Response(200, json={"version": "1", "api": "v1"}), sleeps=sleeps).version()
    assert told["api"] == "v1" and sleeps == [3.0, 7.0, 1.0]


def test_patience_ends():
    sleeps = []
    with pytest.raises(SourceUnavailableError, match="What happened") as caught:
        answering(*[refusal(503)] * 3, sleeps=sleeps, retries=2).version()
    assert caught.value.retry_helps and len(sleeps) == 2


def test_a_pause_has_a_limit():
    sleeps = []
    answering(refusal(429, **{"Retry-After": "86400"}), httpx.Response(200, json={"views": []}), sleeps=sleeps).views()
    assert sleeps == [60.0]


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:1 did not answer"):
        answering(*[httpx.ConnectError("refused")] * 2, retries=1).version()
    with pytest.raises(SourceUnavailableError, match="did not answer"):
        answering(httpx.ReadTimeout("")).version()


def test_what_is_no_stormpetrel_is_told():
    with pytest.raises(SourceFormatError, match="not Stormpetrel"):
        answering(httpx.Response(200, text="<html>")).version()
    with pytest.raises(SourceFormatError, match="not Stormpetrel"):
        answering(httpx.Response(404, json=["nothing"])).version()
    with pytest.raises(AccessError, match="login"):
        answering(httpx.Response(303, headers={"Location": "/login"})).version()


@pytest.mark.parametrize("url", ["127.0.0.1:8050", "ftp://x", "http://", "http://x/?a=1", ""])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UsageError, match="address"):
        Client(url)


def test_a_token_is_not_shown():
    assert "sp_secret" not in repr(Client("http://127.0.0.1:1", "sp_secret"))


# --- its types ----------------------------------------------------------------------------------------------------------------


def test_what_it_takes_is_what_the_document_asks_for(world):
    declared = world.app.openapi()["components"]["schemas"]
    for name, fields in (("PredictionRequest", requests.PredictionFields), ("WorkloadRequest", requests.WorkloadFields)):
        assert set(fields.__annotations__) == set(declared[name]["properties"])


def test_an_answer_of_another_version_is_a_sentence():
    with pytest.raises(SourceFormatError, match=r"does not know: api"):
        answering(httpx.Response(200, json={"version": "9"})).version()


def test_filters_are_the_parameters_of_the_list(world):
    parameters = {one["name"] for one in world.app.openapi()["paths"]["/api/v1/jobs"]["get"]["parameters"]}
    assert set(requests.JobFilter.__annotations__) == parameters - {"page", "limit", "sort"}


def test_every_endpoint_has_a_method(world):
    operations = [one for methods in world.app.openapi()["paths"].values() for one in methods.values()]
    names = {"predict_script": "check_script"}
    # Slurm's filter and plug-in ask two of these, and no person; tokens are made over the Unix socket alone.
    others = {"predict_submit", "take_jobcomp", "create_token"}
    asked = {one["operationId"] for one in operations} - others
    assert all(hasattr(Client, names.get(name, name)) for name in asked)


def test_the_client_needs_httpx_and_little_else():
    heavy = "{'polars', 'numpy', 'fastapi', 'sqlalchemy', 'deltalake'}"
    code = f"import sys, stormpetrel.faces.client; assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
