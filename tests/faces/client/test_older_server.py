"""A client understands a server of the version before: what was added since is missing from its answers, and nothing else is."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import httpx
import pytest

from stormpetrel.answers import schemas
from stormpetrel.answers.schemas.base import Answer
from stormpetrel.faces.api.endpoint import PREFIX
from stormpetrel.faces.client import Client

RENAMED = {"Grid": "Cluster"}  # beginnings of the names of models, which no server sends
RECORDED = json.loads((Path(__file__).parents[2] / "recordings" / "api" / "answers-0.1.0.json").read_text())
ASKED = {
    "/health": lambda client: client.health(),
    "/waste": lambda client: client.waste(),
    "/cancel-policy": lambda client: client.cancel_policy(),
    "/nodes": lambda client: client.nodes(),
    "/nodes/windows/a": lambda client: client.window("a"),
    "/grid/outages": lambda client: client.grid_outages(),
    "/capacity": lambda client: client.capacity(),
    "/workload": lambda client: client.workload(),
    "/predict/script": lambda client: client.check_text("#!/bin/bash\n#SBATCH -n 1\n"),
    "/jobs/a.1": lambda client: client.job("a.1"),
    "/trends": lambda client: client.trends(),
}


def older_server(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=RECORDED["answers"][request.url.path.removeprefix(PREFIX)])


@pytest.fixture
def client():
    with Client("http://127.0.0.1:1", transport=httpx.MockTransport(older_server)) as client:
        yield client


def answer_models():
    """Every model of an answer, by its name."""
    modules = (importlib.import_module(f"{schemas.__name__}.{module.name}") for module in pkgutil.iter_modules(schemas.__path__))
    things = (thing for module in modules for thing in vars(module).values())
    return {thing.__name__: thing for thing in things if isinstance(thing, type) and issubclass(thing, Answer)}


@pytest.mark.parametrize("path", ASKED)
def test_an_answer_of_the_older_version_is_read_whole(client, path):
    answer = ASKED[path](client).model_dump(mode="json")
    assert set(RECORDED["answers"][path]) <= set(answer)


def test_what_an_older_server_does_not_tell_is_not_made_up(client):
    health, policy, window = client.health(), client.cancel_policy(), client.window("a")
    assert (health.tables, health.quarantine, health.checked, health.is_short) == (None, None, None, None)
    assert policy.wrong_kill_price is None and policy.cancel_at_s == 120
    assert (window.window, window.judged, window.error) == (None, None, None)
    assert client.grid_outages().alarms[0].worst is None
    (wait,) = client.capacity().waits
    assert wait.to_utilisation == pytest.approx(wait.from_utilisation + 0.05)


@pytest.mark.parametrize("recorded", RECORDED["fields"])
def test_no_field_that_was_added_since_is_needed_and_none_is_gone(recorded):
    name = recorded
    for before, today in RENAMED.items():
        name = name.replace(before, today, 1) if name.startswith(before) else name
    fields = answer_models()[name].model_fields
    older = set(RECORDED["fields"][recorded])
    needed = {field for field, info in fields.items() if info.is_required()}
    assert older <= set(fields)
    assert needed - older <= {"to_utilisation"}  # worked out of what an older server tells
