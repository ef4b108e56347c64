"""A site's tables in SQL: rows as they are, as JSON where programs read them, and only for who manages the site."""

from __future__ import annotations

import json

import pytest

from stormpetrel.answers.schemas.administration import SqlAnswer, SqlQuestion
from stormpetrel.answers.site.administration import list_tables, query_tables
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, UsageError
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import made_jobs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("sql") / "site") as site:
        put_jobs(site, made_jobs(*({"job_id": k, "user": "ada", "submit": k} for k in range(1, 6))))
        yield site


def test_rows_come_with_their_columns_and_say_when_there_are_more(site):
    answer = query_tables(site, LOCAL, SqlQuestion(query="select job_id from jobs order by job_id", limit=2))
    assert answer == SqlAnswer(columns=["job_id"], rows=[{"job_id": 1}, {"job_id": 2}], is_cut=True)
    assert not query_tables(site, LOCAL, SqlQuestion(query="select job_id from jobs", limit=5)).is_cut
    assert len(query_tables(site, LOCAL, SqlQuestion(query="select job_id from jobs")).rows) == 5


def test_columns_are_known_where_no_row_is():
    assert json.loads(SqlAnswer(columns=["n"], rows=[]).model_dump_json()) == {"columns": ["n"], "rows": [], "is_cut": False}


def test_what_json_cannot_hold_becomes_text_or_null(site):
    [row] = query_tables(site, LOCAL, SqlQuestion(query="select submit_time from jobs", limit=1)).rows
    answer = SqlAnswer(columns=["submit_time", "share"], rows=[row | {"share": float("nan")}])
    assert answer.model_dump(mode="json")["rows"] == [{"submit_time": str(row["submit_time"]), "share": None}]


def test_every_table_is_listed(site):
    assert {"jobs", "models", "audit"} <= {row["table"] for row in list_tables(site, LOCAL).rows}


def test_only_questions_are_asked_and_only_by_who_manages_the_site(site):
    with pytest.raises(UsageError, match="Only SELECT and WITH queries"):
        query_tables(site, LOCAL, SqlQuestion(query="drop table jobs"))
    for viewer in (Viewer("ada", is_admin=False), Viewer("root", True, frozenset({"read"}))):
        with pytest.raises(AccessError):
            query_tables(site, viewer, SqlQuestion(query="select * from jobs"))
