"""A cancelled array of 3,000 waiting tasks on a site: shown as what it is, and in nobody's rate."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.answers.history.model_quality import model_quality
from stormpetrel.answers.history.trends import trends
from stormpetrel.answers.history.waste import waste
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.job_table import table_query
from stormpetrel.answers.schemas.history import QualityQuestion
from stormpetrel.answers.schemas.jobs import JobsQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.dashboard.pages.job_table import table_rows
from stormpetrel.lifecycle.retraining import ended_since
from stormpetrel.store.summary import summarise
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site
from tests.jobs.logs import cancelled_array, jobs_of_ada

TASKS = 3000


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("never") / "site", watch={"quality_days": 36_500.0}) as site:
        jobs = pl.concat([jobs_of_ada(), cancelled_array(TASKS)])
        put_jobs(site, jobs)
        put_predictions(site, said_about(jobs))
        live = LiveSite(site)
        live.refresh()
        yield live


def test_the_overview_has_them_as_rows_that_never_started(live):
    counts = dict(live.overview.rows(LOCAL).group_by("never_started").len().collect().iter_rows())
    assert counts == {True: TASKS, False: 100}
    assert live.overview.frame.filter("never_started")["failed"].null_count() == TASKS


@pytest.mark.parametrize(("asked", "total"), [(True, TASKS), (False, 100), (None, TASKS + 100)])
def test_the_api_can_ask_for_them_or_leave_them_out(live, asked, total):
    assert live.overview.page(LOCAL, table_query(JobsQuestion(never_started=asked))).total == total


def test_the_table_calls_them_never_started_and_finds_them_by_that(live):
    model = {"state": {"filterType": "text", "type": "equals", "filter": "Never started"}}
    told = table_rows(live, LOCAL, {"view": "all", "filterModel": model, "startRow": 0, "endRow": 10})
    assert told["total"] == TASKS
    assert {row["state_text"] for row in told["rows"]} == {"Never started"}


def test_trends_keep_the_rate_and_count_them_apart(live):
    answer = trends(live, LOCAL)
    assert (answer.jobs, answer.failed) == (100, 17)
    assert answer.never_started == TASKS


def test_waste_counts_them_apart(live):
    answer = waste(live, LOCAL)
    assert answer["uncounted"] == {"never started": TASKS} and answer["total"]["jobs"] == 100


def test_the_quality_of_forecasts_is_that_of_jobs_that_ran(live):
    answer = model_quality(live, LOCAL, QualityQuestion(moment="submit"))
    assert (answer["settled"], answer["waiting"], answer["never_started"]) == (100, 0, TASKS)
    assert answer["quality"][0]["failed_share"] == pytest.approx(0.17)


def test_the_summary_of_the_site_counts_them_apart(live):
    told = summarise(live.site.jobs.read_jobs(), ["FAILED", "CANCELLED"])
    assert told.never_started == TASKS
    assert (sum(week.jobs for week in told.weeks), sum(week.failed for week in told.weeks)) == (100, 17)


def test_they_are_no_reason_to_train_again(live):
    assert ended_since(live.site, None, until=T0.replace(year=2100)) == 100
