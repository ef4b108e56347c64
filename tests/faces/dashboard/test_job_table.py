"""What the grid asks for, and what it gets."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.overview import TableFilter
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import UsageError
from stormpetrel.faces.dashboard.pages.job_table import VIEWS, job_with_id, live_figures, table_query, table_rows
from tests.builders import make_site
from tests.jobs.logs import make_log
from tests.lifecycle.sites import put_jobs

TODAY = datetime(2026, 11, 15, tzinfo=UTC)
ADA = Viewer("ada", is_admin=False)


def query(viewer=LOCAL, **request):
    return table_query(request, viewer, today=TODAY)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("table") / "site") as site:
        put_jobs(site, make_log(300, unfinished=0.1))
        live = LiveSite(site)
        live.refresh()
        yield live


def test_a_first_request_is_for_what_waits_or_runs_riskiest_first():
    asked = query(startRow=0, endRow=100)
    assert asked.sort[:2] == (("never_runs", True), ("risk", True))
    assert [(one.column, one.kind) for one in asked.filters] == [("state", "is_in")]
    assert (asked.offset, asked.limit) == (0, 100)


def test_my_jobs_are_those_of_the_viewer():
    assert query(ADA, view="mine").filters == (TableFilter("user", "equals", "ada"),)


def test_failed_today_begins_at_midnight():
    assert TableFilter("end_time", "greater_equal", TODAY) in query(view="failed").filters


def test_sorting_by_prediction_means_by_risk():
    assert query(sortModel=[{"colId": "prediction", "sort": "desc"}]).sort == (("risk", True),)


@pytest.mark.parametrize(
    ("column", "typed", "stored"),
    [
        ("state", "waiting", "PENDING"),
        ("state", "Running", "RUNNING"),
        ("state", "fail", "FAIL"),
        ("likeliest", "out of mem", "OUT_OF_MEMORY"),
        ("prediction", "flagged", "Fail"),
        ("prediction", "Complete", "Complete"),
        ("moment", "submission", "submit"),
        ("user", "waiting", "waiting"),
    ],
)
def test_a_filter_takes_the_words_of_the_table(column, typed, stored):
    model = {column: {"filterType": "text", "type": "contains", "filter": typed}}
    assert query(view="all", filterModel=model).filters == (TableFilter(column, "contains", stored),)


def test_a_risk_is_filtered_in_the_percent_that_the_table_shows():
    model = {"risk": {"filterType": "number", "type": "inRange", "filter": 20, "filterTo": 50}}
    assert query(view="all", filterModel=model).filters == (TableFilter("risk", "between", 0.2, 0.5),)


@pytest.mark.parametrize(("kind", "found"), [("equals", True), ("contains", True), ("notEqual", False), ("notContains", False)])
@pytest.mark.parametrize("typed", ["never started", "Never"])
def test_jobs_that_never_started_are_filtered_by_what_the_table_calls_them(kind, found, typed):
    model = {"state": {"filterType": "text", "type": kind, "filter": typed}}
    assert query(view="all", filterModel=model).filters == (TableFilter("never_started", "equals", found),)


def test_a_day_in_a_filter_is_all_of_it_in_the_zone_of_the_site():
    model = {"submit_time": {"filterType": "date", "type": "equals", "dateFrom": "2026-11-14 00:00:00"}}
    (one,) = query(view="all", filterModel=model, time_zone="Europe/Berlin").filters
    assert (one.kind, one.value) == ("between", datetime(2026, 11, 13, 23, tzinfo=UTC))
    assert one.value_to - one.value == timedelta(days=1) - timedelta(microseconds=1)


@pytest.mark.parametrize("model", [{"type": "evil"}, {}, {"type": "equals", "dateFrom": "tomorrow"}])
def test_a_filter_that_makes_no_sense_is_refused(model):
    with pytest.raises(UsageError):
        query(filterModel={"submit_time": model})


@pytest.mark.parametrize("rows", [(0, 10**12), (-5, 20), ("x", None), (5, 2)])
def test_no_request_gets_more_rows_than_a_page(rows):
    asked = query(startRow=rows[0], endRow=rows[1])
    assert 0 <= asked.limit <= 200
    assert asked.offset >= 0


def test_every_view_has_rows_as_text_and_numbers(live):
    for view in VIEWS:
        answer = table_rows(live, LOCAL, {"id": 7, "view": view.name, "startRow": 0, "endRow": 50})
        assert answer["id"] == 7
        assert answer["order"] == view.order
        assert len(answer["rows"]) == min(50, answer["total"])
    everything = table_rows(live, LOCAL, {"view": "all", "startRow": 0, "endRow": 5})
    assert everything["total"] == 300
    assert all(isinstance(row["submit_time"], str) for row in everything["rows"])


def test_a_user_sees_and_counts_own_jobs_only(live):
    user = live.overview.frame["user"].item(0)
    own = live.overview.frame["user"].to_list().count(user)
    viewer = Viewer(user, is_admin=False)
    answer = table_rows(live, viewer, {"view": "all", "startRow": 0, "endRow": 200})
    assert answer["total"] == own
    assert {row["user"] for row in answer["rows"]} == {user}
    assert live_figures(live, viewer).jobs == own
    assert live_figures(live, LOCAL).jobs == 300


def test_a_job_is_found_by_its_id_and_only_by_who_may_see_it(live):
    row = live.overview.frame.row(0, named=True)
    assert job_with_id(live, LOCAL, f" {row['job']} ") is not None
    assert job_with_id(live, Viewer("somebody", is_admin=False), row["job"]) is None
    assert job_with_id(live, LOCAL, row["user"]) is None
    assert job_with_id(live, LOCAL, row["job"].partition("_")[0][:-1]) is None  # the beginning of an id
