"""How the watch is, from what it left in the state: at the moment of asking, also after it died."""

from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.store.source_health import EVENTS, JOBS, SourceHealth
from stormpetrel.store.watch_status import WatchReport, WatchStatus, read_watch, write_sources, write_status
from tests.builders import make_site

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def ago(seconds):
    return NOW - timedelta(seconds=seconds)


def status(turned_s=2.0, **changes):
    at = ago(turned_s).isoformat()
    return WatchStatus(**{"pid": 1, "host": "login1", "started": at, "stepped": at, "stepped_real": at, **changes})


def source(name="sacct", watcher=JOBS, **changes):
    told = {"every_s": 5.0, "patience_s": 15.0, "since": ago(9000), "last_good": ago(3), **changes}
    return SourceHealth(name, watcher, **told)


def test_nobody_has_watched_yet():
    assert WatchReport().state(NOW) == "never" and not WatchReport().problem(NOW)


def test_a_watch_whose_sources_are_well_is_live():
    assert WatchReport(status(), (source(),), ago(4)).state(NOW) == "live"


def test_a_watch_that_hangs_in_a_look_is_in_trouble_and_not_silent():
    hangs = source(looking_since=ago(60), progressed=ago(60), last_good=ago(65))
    report = WatchReport(status(turned_s=65), (hangs,), ago(4))
    assert report.state(NOW) == "trouble"
    assert report.problem(NOW) == "A poll of sacct has been under way for 60 s. Last read well 65 s ago."


def test_a_watch_that_died_is_silent_however_rarely_it_looked():
    report = WatchReport(status(turned_s=40, poll_s=300.0), (source(),), ago(40))
    assert (report.state(NOW), report.silent_s(NOW)) == ("silent", 40.0)


def test_a_watch_of_before_is_given_time_by_how_often_it_looks():
    assert WatchReport(status(turned_s=400, poll_s=300.0)).state(NOW) == "live"


def test_a_loop_that_makes_no_turn_is_told_although_the_process_lives():
    quiet = source("elasticsearch", EVENTS, every_s=3600.0)
    report = WatchReport(status(turned_s=150), (quiet,), ago(2))
    assert report.state(NOW) == "trouble" and report.problem(NOW) == "The loop has not made a turn for 2 min."


def test_a_source_of_events_that_is_away_does_not_keep_jobs_from_being_judged():
    away = source("elasticsearch", EVENTS, problem="It did not answer.")
    assert WatchReport(status(), (source(), away), ago(2)).state(NOW) == "live"
    assert WatchReport(status(), (away,), ago(2)).problem(NOW) == "It did not answer."


@pytest.mark.parametrize("sources", [(), (source(), source("squeue", last_good=None, problem="Down."))])
def test_it_is_read_as_it_was_written(tmp_path, sources):
    with make_site(tmp_path / "site") as site:
        write_status(site.state, status())
        write_sources(site.state, sources, NOW)
        write_sources(site.state, sources, NOW)
        assert read_watch(site.state) == WatchReport(status(), sources, NOW)
