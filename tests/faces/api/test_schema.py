"""The API does what its OpenAPI document says, whatever is thrown at it: schemathesis, over the whole web application."""

from __future__ import annotations

import pytest
import schemathesis
from schemathesis import engine
from schemathesis.engine import events

from stormpetrel.answers.viewer import SCOPES
from stormpetrel.faces.api.endpoint import PREFIX
from stormpetrel.faces.web.app import create_app
from tests.faces.api.sample_site import ADMIN

REJECTED = [400, 401, 403, 404, 405, 413, 422, 429]  # 413: what has too many items is also too large
# What JSON Schema cannot say: a text that is no script, a name of invisible characters, jobs of a generator that is not there, an
# empty note, a mute without an end, a span that ends where it begins.
SAID_IN_WORDS = ("predict_script", "save_view", "sample_workload", "act_on_alarm", "mute", "replay_alarms")
MADE_UP = {"extra-data-sources": {"responses": False}}  # a token whose name the list of tokens tells would be revoked, ours too


@pytest.fixture(scope="module")
def token(world):
    return world.token(ADMIN, SCOPES)


@pytest.fixture(scope="module")
def app(world):
    return create_app(world.live)


def api_of(app, token, examples):
    headers = {"Authorization": f"Bearer {token}"}
    refused = {"positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "422"]}}
    config = schemathesis.Config.from_dict(
        {
            "seed": 1,
            "headers": headers,
            "generation": {"mode": "all", "max-examples": examples, "deterministic": True, "database": "none"},
            "phases": {"stateful": {"enabled": False}},
            "checks": {"negative_data_rejection": {"expected-statuses": REJECTED}},
            "operations": [
                *({"include-operation-id": name, "checks": refused} for name in SAID_IN_WORDS),
                {
                    "include-operation-id": "create_token",
                    "checks": {"positive_data_acceptance": {"expected-statuses": ["403", "422"]}},
                },
                {
                    "include-operation-id": "revoke_token",
                    "phases": {"examples": MADE_UP, "coverage": MADE_UP, "fuzzing": MADE_UP},
                },
            ],
        }
    )
    return schemathesis.openapi.from_asgi(f"{PREFIX}/openapi.json", app, headers=headers, config=config)


def findings(api):
    """Everything that schemathesis holds against the API, and how many checks it made."""
    found, checks = [], 0
    for event in engine.from_schema(api).execute():
        if isinstance(event, events.ScenarioFinished):
            made = [check for several in event.recorder.checks.values() for check in several]
            checks += len(made)
            found += [
                f"{event.recorder.label}: {one.failure_info.failure.title}: {one.failure_info.failure.message}\n"
                f"    {one.failure_info.code_sample[:500]}"
                for one in made
                if one.failure_info is not None
            ]
        elif isinstance(event, events.NonFatalError | events.FatalError):
            found.append(str(event))
    return found, checks


@pytest.mark.filterwarnings("default")  # those of schemathesis and of the client it uses
@pytest.mark.parametrize(
    ("examples", "at_least"),  # examples of each kind, besides the cases that schemathesis derives from the schema itself
    [(1, 7_000), pytest.param(20, 15_000, marks=pytest.mark.slow)],
)
def test_schemathesis_finds_nothing(app, token, examples, at_least):
    found, checks = findings(api_of(app, token, examples))
    assert not found, "\n".join(found)
    assert checks > at_least


def test_the_document_is_of_the_api_alone(app):
    document = app.openapi()
    assert all(path.startswith(f"{PREFIX}/") for path in document["paths"])
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["operationId"] and operation["summary"] and operation["description"] and operation["tags"]
            assert {"401", "403", "422", "429", "503"} <= set(operation["responses"])


def test_every_parameter_and_every_field_that_is_sent_has_a_meaning(app):
    document = app.openapi()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert all(one.get("description") for operation in operations for one in operation.get("parameters", []))
    for name in (
        "PredictionRequest",
        "ScriptRequest",
        "ViewAct",
        "WorkloadRequest",
        "NewAct",
        "NewMute",
        "SwitchAct",
        "CancelAct",
        "OwnToken",
    ):
        fields = document["components"]["schemas"][name]["properties"]
        assert [field for field, about in fields.items() if not about.get("description")] == []
