"""A day without a source, without the state store, without disk space, and with a clock that jumps: what is lost, what is told.

The table in docs/watch.md (*What happens when*) says what these tests claim. Each watches a cluster of which one node falls ill
and is well again while something is away, and a second one falls ill shortly before it is back and stays so. `slow` looks every
ten minutes instead of every six hours.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.errors import DiskFullError
from stormpetrel.records.findings import FindingKind
from stormpetrel.records.incidents import MessageState, Severity
from tests.parts import mounts
from tests.parts.elastic import ElasticServer, make_grid_documents
from tests.parts.elastic import served as served_elastic
from tests.parts.made_once import made_once
from tests.parts.post_box import PostBox
from tests.parts.watched_day import AWAY_FROM, BACK_AT, LASTING, PASSING, sick_feed, watched_day
from tests.parts.watched_site import copy_site, move_clock

HOUR = timedelta(hours=1)
AFTER = BACK_AT + 3 * HOUR
EVERY = [6 * HOUR, pytest.param(HOUR / 6, marks=pytest.mark.slow)]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="session")
def feed(tmp_path_factory):
    return made_once(tmp_path_factory, "sick-feed", lambda folder: sick_feed(folder).close())


@pytest.fixture
def box():
    with PostBox() as box:
        yield box


@pytest.fixture
def copied(feed, tmp_path, sacct, box):
    """A copy of the site, with one route and settings of the test's own: copied(elastic={…})."""
    route = {"name": "ops", "kind": "webhook", "url": box.url, "timeout_s": 5.0, "per_hour": 0}
    sites = []

    def copy(folder=tmp_path / "site", **sections):
        sites.append(copy_site(feed, folder, sacct=sacct, notify={"routes": [route]}, **sections))
        return sites[-1]

    yield copy
    for site in sites:
        site.close()


@pytest.fixture(scope="module")
def undisturbed(feed, tmp_path_factory, sacct):
    """The jobs of the table where nothing was away."""
    folder = tmp_path_factory.mktemp("undisturbed") / "site"
    with pytest.MonkeyPatch.context() as patched, copy_site(feed, folder, sacct=sacct) as site:
        with watched_day(site, patched) as day:
            day.turn(AFTER)
        yield jobs_of(site)


@contextmanager
def slurm_away(site):
    """No command of Slurm gets an answer."""
    sacct = site.folder / "feed" / "sacct"
    works = sacct.read_text()
    sacct.write_text("#!/bin/sh\necho 'sacct: error: slurm_persist_conn_open: Connection refused' >&2\nexit 1\n")
    yield
    sacct.write_text(works)


def about(site, name):
    """The incident about a node or a source; None where there is none."""
    return next((one for one in site.incidents.list() if one.subjects[0].name == name), None)


def told(box, name):
    return [post.json["text"] for post in box.taken if name in post.json["text"] and "resolved" not in post.json["text"]]


def returned(site):
    """Incidents of jobs that were opened again; that a look at a source seemed overdue is told while the clock is wrong."""
    return [one for one in site.incidents.list() if one.reopened_at and one.families != ("system",)]


def jobs_of(site):
    return site.jobs.read_jobs().select("job_id", "submit_time", "state", "end_time", "node_list").sort(pl.all()).collect()


def assert_the_past_is_listed(site, box):
    past = about(site, PASSING)
    assert past.late and not past.page and past.held_back == "late" and told(box, PASSING) == []


def assert_what_lasts_is_sent(site, box):
    lasting = about(site, LASTING)
    assert len(lasting.paged_at) == 1 and lasting.paged_at[0] > BACK_AT and len(told(box, LASTING)) == 1
    assert {message.state for message in site.messages.list()} == {MessageState.DELIVERED}


@pytest.mark.parametrize("every", EVERY)
def test_a_day_without_slurm_is_caught_up_with_and_nobody_is_paged_about_the_past(copied, box, every, undisturbed, monkeypatch):
    site = copied()
    with watched_day(site, monkeypatch) as day:
        day.go(AWAY_FROM, every=every)
        with slurm_away(site):
            day.go(BACK_AT, every=every)
        gone = about(site, "sacct")
        assert gone.kinds == (FindingKind.SOURCE_GONE,) and gone.severity == Severity.WARNING and not gone.page
        assert about(site, PASSING) is None and about(site, LASTING) is None
        day.turn(BACK_AT + HOUR / 4)
        assert_the_past_is_listed(site, box)
        day.go(AFTER, every=min(every, HOUR / 2))
    assert jobs_of(site).equals(undisturbed)
    assert_what_lasts_is_sent(site, box)
    assert about(site, "sacct").until <= BACK_AT + HOUR / 4  # and so it is over six hours later


@pytest.mark.slow
@pytest.mark.parametrize("every", [HOUR / 6])
def test_a_clock_that_ran_ahead_for_hours_hides_nothing_for_good(copied, box, every, undisturbed, monkeypatch):
    site = copied()
    with watched_day(site, monkeypatch) as day:
        day.go(AWAY_FROM, every=every)
        day.ahead = 2 * HOUR
        day.go(AWAY_FROM + 18 * HOUR, every=every)
        assert about(site, PASSING) is not None
        (clock,) = [one for one in site.incidents.list() if FindingKind.CLOCK_AHEAD in one.kinds]
        assert clock.findings[0].figure("late_s") >= 7200 - every.total_seconds() and not clock.page
        day.ahead = timedelta(0)
        day.turn(AWAY_FROM + 18.5 * HOUR)
        day.go(AFTER, every=every)
    assert jobs_of(site).equals(undisturbed)
    assert len(about(site, LASTING).paged_at) == 1 and len(told(box, LASTING)) == 1 and told(box, PASSING) == []
    assert returned(site) == []


@pytest.mark.slow
@pytest.mark.parametrize("every", [HOUR / 2])
def test_a_clock_that_lags_behind_delays_what_is_known_and_neither_loses_nor_repeats_it(
    copied, box, every, undisturbed, monkeypatch
):
    site = copied()
    with watched_day(site, monkeypatch) as day:
        day.go(AWAY_FROM, every=every)
        day.ahead = -2 * HOUR
        day.go(AWAY_FROM + 18 * HOUR, every=min(every, HOUR))
        day.ahead = timedelta(0)
        day.go(AFTER, every=HOUR)
    assert jobs_of(site).equals(undisturbed)
    assert [len(told(box, name)) for name in (PASSING, LASTING)] == [1, 1]
    assert returned(site) == []


@pytest.mark.slow
@pytest.mark.parametrize("every", [HOUR])
def test_a_day_without_prometheus_is_an_incident_and_jobs_are_followed_as_ever(copied, box, every, undisturbed, monkeypatch):
    site = copied(prometheus={"url": NOBODY, "timeout_s": 1.0})
    with watched_day(site, monkeypatch) as day:
        day.go(AFTER, every=every)
    gone = about(site, "prometheus (traces)")
    assert gone.kinds == (FindingKind.SOURCE_GONE,) and not gone.page
    assert jobs_of(site).equals(undisturbed)
    assert [len(told(box, name)) for name in (PASSING, LASTING)] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("every", [3 * HOUR, HOUR])
def test_a_day_without_elasticsearch_is_counted_afterwards_and_is_no_silence(copied, box, every, monkeypatch):
    server = ElasticServer()
    server.put("grid-2026", make_grid_documents(AWAY_FROM - 8 * HOUR, 36))
    with served_elastic(server):
        site = copied(elastic=server.settings().model_dump())
        with watched_day(site, monkeypatch) as day:
            day.go(AWAY_FROM, every=every)
            server.faults = [(503, {"error": "down"}, {})] * 10_000
            day.go(BACK_AT, every=every)
            assert about(site, "elasticsearch").kinds == (FindingKind.SOURCE_GONE,)
            server.faults = []
            day.go(AFTER, every=min(every, HOUR))
        counted = (
            site.event_counts.read()
            .filter(pl.col("kind") == "Submit", pl.col("place") == "", pl.col("source").str.starts_with("elastic"))
            .collect()
        )
        assert counted["bucket_start"].max() >= BACK_AT and counted.filter(counted["count"] == 0).height == 0
        hours = counted["bucket_start"].sort().diff().drop_nulls().unique().to_list()
        assert hours == [HOUR]
    assert not any(FindingKind.SILENCE in one.kinds for one in site.incidents.list())


@pytest.mark.root
@pytest.mark.parametrize("every", EVERY)
def test_a_day_on_a_full_disk_ends_the_watch_and_the_next_one_catches_up(copied, box, every, undisturbed, tmp_path, monkeypatch):
    with mounts.small_disk(tmp_path / "disk", size="96m") as disk:
        site = copied(disk / "site")
        with watched_day(site, monkeypatch) as day:
            day.go(AWAY_FROM, every=every)
            move_clock(site, AWAY_FROM + 3 * HOUR)
            mounts.fill(disk)
            with pytest.raises(DiskFullError, match=f"the disk tmpfs at {disk} "):
                day.turn_now()
            (disk / "ballast").unlink()  # a day later; whoever supervises it has started it again and again
        with watched_day(site, monkeypatch) as day:
            day.turn(BACK_AT + HOUR / 4)
            assert_the_past_is_listed(site, box)
            day.go(AFTER, every=min(every, HOUR / 2))
        assert jobs_of(site).equals(undisturbed)
        assert_what_lasts_is_sent(site, box)
        site.close()
