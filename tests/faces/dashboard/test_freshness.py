"""How old the data is, and whether somebody watches."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.faces.dashboard.freshness import freshness
from stormpetrel.faces.dashboard.pages import jobs
from stormpetrel.store.watch_status import WatchStatus, write_status
from tests.builders import make_site


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield LiveSite(site)


def status(live, *, seconds_ago=1.0, **changed):
    now = datetime.now(UTC)
    at = (now - timedelta(seconds=seconds_ago)).isoformat()
    write_status(
        live.site.state, WatchStatus(pid=1, host="login1", started=at, stepped=at, stepped_real=at, horizon=at, **changed)
    )


def test_a_site_that_nobody_watched_says_how_to_start(live):
    assert freshness(live, LOCAL).state == "never"
    assert "stormpetrel watch" in freshness(live, LOCAL).hint


def test_a_watch_that_was_just_heard_of_is_live(live):
    status(live)
    assert freshness(live, LOCAL).state == "live"


@pytest.mark.parametrize("seconds_ago", [600.0, 90000.0])
def test_a_watch_that_is_silent_has_stopped(live, seconds_ago):
    status(live, seconds_ago=seconds_ago)
    told = freshness(live, LOCAL)
    assert told.state == "stopped"
    assert told.age in told.words


def test_a_watch_that_was_ended_has_stopped_at_once(live):
    status(live, stopped=True)
    assert freshness(live, LOCAL).state == "stopped"


def test_a_rare_poll_is_not_a_silence(live):
    status(live, seconds_ago=600.0, poll_s=300.0)
    assert freshness(live, LOCAL).state == "live"


def test_trouble_with_the_source_is_told(live):
    status(live, problem="sacct did not answer within 10 s.")
    told = freshness(live, LOCAL)
    assert (told.state, "sacct did not answer" in told.words) == ("trouble", True)
    others = freshness(live, Viewer("kim", is_admin=False))
    assert (others.state, "sacct" in others.words) == ("trouble", False)


def test_the_page_of_jobs_says_that_general_experience_speaks_until_the_site_has_a_model(live, monkeypatch):
    status(live)
    monkeypatch.setattr(jobs, "live_figures", lambda _live, _viewer: SimpleNamespace(jobs=3, predicted=2))
    live.refresh()
    assert "No history of this site yet" in str(jobs._notices(live, LOCAL))
    monkeypatch.setattr(LiveSite, "is_prior", False)
    assert jobs._notices(live, LOCAL) is None
