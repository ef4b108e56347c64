"""`stormpetrel sql`: which tables there are, and what is said where a word wants quotes."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Context
from stormpetrel.faces.cli.store import sql
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.sql_tables import sql_tables
from tests.builders import make_site

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
WANT_QUOTES = {"user"}
app = typer.Typer()
app.command("sql")(sql)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("sql") / "site") as opened:
        said = dict.fromkeys(PREDICTION_SCHEMA) | {"job_id": 7, "submit_time": NOON, "moment": "submit", "risk": 0.25}
        opened.predictions.append(pl.DataFrame([said], schema=PREDICTION_SCHEMA), horizon=NOON)
        opened.outages.add(Outage(NOON, None, OutageKind.OUTAGE, "the file server is away"))
        opened.opinions.add("ada", "7-1-0-petrel", "Ask for more memory.", useful=True)
        opened.audit.record("ada", "token added", {"name": "of the portal"})
        yield opened


def ask(site, *words):
    return CliRunner().invoke(app, list(words), obj=Context(site_folder=site.folder, debug=False))


def rows(site, query):
    return json.loads(ask(site, query, "--json").stdout)


def test_predictions_can_be_asked_for(site):
    assert rows(site, "select job_id, moment, risk from predictions") == [{"job_id": 7, "moment": "submit", "risk": 0.25}]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("select kind, title, start from outages", {"kind": "outage", "title": "the file server is away", "start": f"{NOON}"}),
        ('select "user", useful from opinions', {"user": "ada", "useful": True}),
        (
            'select "user", action, about from audit',
            {"user": "ada", "action": "token added", "about": '{"name": "of the portal"}'},
        ),
        ("select count(*) n from models", {"n": 0}),
    ],
)
def test_what_people_left_in_the_state_can_be_asked_for(site, query, answer):
    assert rows(site, query) == [answer]


def test_the_tables_are_listed_with_their_columns(site):
    listed = {row["table"]: row["columns"].split(", ") for row in json.loads(ask(site, "--tables", "--json").stdout)}
    assert listed == {name: frame.collect_schema().names() for name, frame in sql_tables(site).items()}
    assert {"jobs", "predictions", "quarantine", "trace_scores", "event_scores", "models"} <= listed.keys()


def test_every_table_of_the_site_that_holds_records_is_among_them(site):
    inside = {"sightings", "forgotten"}  # what the store keeps for itself
    assert {table.spec.name for table in site.all_tables} - inside <= sql_tables(site).keys()


@pytest.mark.parametrize(
    "query",
    ["select user from jobs", "select j.User, count(*) from jobs j group by 1", "select state from jobs where user = 'ada'"],
)
def test_a_column_that_wants_quotes_is_told_so(site, query):
    problem = ask(site, query).exception
    assert isinstance(problem, UsageError)
    assert "wants quotes" in problem.what and '"user"' in problem.hint


def test_another_unknown_function_is_not_taken_for_that(site):
    problem = ask(site, """select foo(state), "user", 'user' from jobs""").exception
    assert isinstance(problem, UsageError) and "'foo'" in problem.what


def test_no_other_column_wants_quotes(site):
    tables = sql_tables(site)
    context = pl.SQLContext(tables, eager=False)

    def works(query):
        try:
            context.execute(query).collect_schema()
        except pl.exceptions.PolarsError:
            return False
        return True

    refused = {
        column
        for name, frame in tables.items()
        for column in frame.collect_schema().names()
        if not all(
            works(f"select {form} from {name} t where {form} is not null order by {form}") for form in (column, f"t.{column}")
        )
    }
    assert refused == WANT_QUOTES


def test_neither_a_query_nor_the_list_is_refused_and_so_are_both(site):
    for words in ([], ["select 1", "--tables"]):
        assert isinstance(ask(site, *words).exception, UsageError)
