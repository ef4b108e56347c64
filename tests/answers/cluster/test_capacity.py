"""Capacity at the desk: from which table, for whom, and what is said where there is too little."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.answers.cluster.capacity import capacity, make_capacity_board, read_board
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.cluster import CapacityQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.events.capacity.capacity import Outlook
from stormpetrel.events.capacity.weeks import LoadUnit
from stormpetrel.faces.report.capacity_section import site_capacity_sections
from stormpetrel.faces.report.page import render
from tests.answers import cluster_sites
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.events.loads import end_of, steady_jobs

ADA = Viewer("ada", is_admin=False)
JOBS = steady_jobs(12, growth=0.05, load=0.62, cores=200)
NOW = end_of(12)
CLUSTER = cluster_sites.sample_grid(168 * 9, 4)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A site with twelve weeks of jobs."""
    with make_site(tmp_path_factory.mktemp("capacity") / "site") as site:
        site.now = lambda: NOW
        put_jobs(site, JOBS)
        yield LiveSite(site)


def test_the_plan_is_that_of_the_job_table(live):
    answer = capacity(live, LOCAL, CapacityQuestion(cores=200))
    assert answer.unit == LoadUnit.CORE_HOURS and sum(week.load is not None for week in answer.weeks) == 11
    assert answer.utilisation == pytest.approx(0.6, rel=0.15) and answer.headline.startswith("Load grows")


def test_groups_are_told_to_administrators_only(live):
    full, own = capacity(live, LOCAL), capacity(live, ADA)
    assert [group.group for group in full.groups] == ["physics", "chemistry"] and own.groups == []
    assert own.headline == full.headline and not own.in_full


def test_a_viewer_without_the_scope_sees_nothing(live):
    with pytest.raises(AccessError):
        capacity(live, Viewer("ada", is_admin=False, scopes=frozenset()))


def test_the_board_is_read_again_only_after_a_change(live):
    made = live.boards.capacity.wait(live).value
    assert make_capacity_board(live, "", made) is made
    more = JOBS.head(1).with_columns(job_id=pl.lit(10**6, dtype=pl.Int64))
    put_jobs(live.site, more)
    assert make_capacity_board(live, "", made) is not made


def test_an_empty_site_says_that_there_is_no_week_yet(tmp_path):
    with make_site(tmp_path / "site") as site:
        answer = capacity(LiveSite(site), LOCAL)
        assert answer.outlook == Outlook.TOO_SHORT and "no whole week" in answer.headline
        assert site_capacity_sections(site) == []


def test_a_site_with_counts_only_gets_growth_and_groups_of_submissions(tmp_path):
    with make_site(tmp_path / "site") as site:
        site.now = lambda: CLUSTER.series.moment(len(CLUSTER.series) - 1) + timedelta(hours=2)
        cluster_sites.put_counts(site, CLUSTER, unseen=(400, 430))
        record = read_board(site).record
        weeks = record.weeks
        assert record.unit is LoadUnit.JOBS and weeks.height == 9 and record.groups["group"].n_unique() > 1
        submitted = CLUSTER.series.counts[:168, CLUSTER.series.kinds.index("Submit")].sum()
        assert weeks["jobs"].item(0) == submitted and weeks["seen"].item(2) == pytest.approx(1 - 30 / 168)
        assert capacity(LiveSite(site), LOCAL).outlook == Outlook.UNKNOWN_SIZE


def test_the_report_has_a_section_with_figures_weeks_and_groups(live):
    (section,) = site_capacity_sections(live.site)
    page = render("r", [section])
    assert section.intro.startswith("Load grows") and "physics" in page and "2025-01-06" in page
