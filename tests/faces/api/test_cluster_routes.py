"""The grid over HTTP: the answers of the desk, for those who may see them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from stormpetrel.answers.cluster.cluster import cluster_counts, cluster_now, cluster_outages
from stormpetrel.answers.schemas.cluster import ClusterOutages, CountsQuestion, SpanQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.api.routes import router
from stormpetrel.faces.client import Client
from stormpetrel.faces.web.app import bare_app, protected
from tests.answers import cluster_sites as made
from tests.builders import make_site
from tests.faces.api.sample_site import ADMIN, World
from tests.faces.web.sample_site import running

CLUSTER = made.sample_grid()
END = CLUSTER.series.moment(len(CLUSTER.series) - 1) + made.HOUR
PATHS = ("/grid", "/grid/counts?since=2025-01-06T00:00:00Z&limit=10000", "/grid/outages")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A served site with counts, outages, a gap and scores."""
    serve = {"login": "token", "admins": [ADMIN], "requests_per_minute": 1_000_000, "hosts": ["testserver"]}
    with make_site(tmp_path_factory.mktemp("grid") / "site", serve=serve, graphite=made.GRAPHITE) as site:
        site.now = lambda: END + timedelta(minutes=20)
        made.put_background(site, CLUSTER)
        live = made.make_live(site, CLUSTER, made.scores_of(CLUSTER))
        app = bare_app(live)
        app.include_router(router(live))
        yield World(site, live, protected(app, site))


def test_the_state_is_that_of_the_desk(served):
    sent = served.get("/grid")
    assert sent == cluster_now(served.live, LOCAL).model_dump(mode="json") and sent["lack"] is None
    assert (sent["bucket_s"], sent["model"], sent["model_version"]) == (3600, made.MODEL, 1)
    assert datetime.fromisoformat(sent["latest"]) == END


def test_counts_are_told_per_bucket_with_their_forecast(served):
    told = served.get("/grid/counts")
    assert told == cluster_counts(served.live, LOCAL, CountsQuestion()).model_dump(mode="json")
    assert len(told["buckets"]) == 24 and told["next"] is None and told["kinds"] == list(CLUSTER.series.kinds)
    last = told["buckets"][-1]
    assert last["counts"] == CLUSTER.series.counts[-1].tolist() and last["expected"] == CLUSTER.calm.counts[-1].tolist()


def test_background_is_told_beside_the_counts_and_null_where_nobody_told_it(served):
    told = served.get("/grid/counts?since=2025-01-10T03:00:00Z&until=2025-01-10T06:00:00Z")  # hours 99 to 101
    assert told["background_names"] == ["queued", "running", "utilisation"]
    assert told["buckets"][0]["background"] == pytest.approx(CLUSTER.series.background[99].tolist())
    assert told["buckets"][1]["background"] == [None, None, None]


def test_a_gap_is_null_and_a_zero_is_zero(served):
    gap = served.get("/grid/counts?since=2025-01-14T07:00:00Z&until=2025-01-14T15:00:00Z")  # hours 199 to 206
    assert [bucket["counts"] is None for bucket in gap["buckets"]] == [False, *[True] * 6, False]
    assert [one["why"] for one in gap["gaps"]] != [""]
    assert any(0.0 in bucket["counts"] for bucket in served.get("/grid/counts")["buckets"])


def test_many_buckets_come_in_parts_and_each_once(served):
    since, starts = "2025-01-06T00:00:00Z", []
    while since:
        told = served.get(f"/grid/counts?since={since}&limit=150")
        starts += [bucket["start"] for bucket in told["buckets"]]
        since = told["next"]
    assert len(starts) == len(set(starts)) == len(CLUSTER.series)


def test_outages_tell_whether_an_alarm_was_raised(served):
    told = served.get("/grid/outages")
    assert told == cluster_outages(served.live, LOCAL, SpanQuestion()).model_dump(mode="json")
    assert {row["raised"] for row in told["outages"]} >= {True} and told["alarms"]
    assert all(row["delay_s"] >= 0 for row in told["outages"] if row["raised"])


def test_names_of_groups_and_nodes_are_told_to_administrators_only(served):
    own, full = ("".join(served.ask("GET", path, user=user).text for path in PATHS) for user in ("ada", ADMIN))
    for secret in (made.SECRET_NODE, made.SECRET_GROUP, "rotated"):
        assert secret in full and secret not in own
    assert "host2" in own


def test_a_site_without_events_says_what_it_lacks(world):
    told = world.get("/grid")
    assert (told["state"], told["lack"], told["latest"], told["findings"]) == ("empty", "events", None, [])
    assert world.get("/grid/counts")["buckets"] == [] and world.get("/grid/outages") == {"outages": [], "alarms": []}


@pytest.mark.parametrize(
    "path",
    [
        "/grid/counts?colour=red", "/grid/counts?limit=0", "/grid/counts?since=yesterday",
        "/grid/outages?since=2025-01-06T00:00:00",
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(served, path):
    assert served.ask("GET", path).status_code == 422


@pytest.mark.parametrize(
    "span",
    [
        "until=0001-01-02T00:00:00Z", "until=1990-01-01T00:00:00Z", "since=9999-12-30T00:00:00Z",
        "since=2025-01-08T00:00:00Z&until=2025-01-07T00:00:00Z", "since=2025-01-08T00:00:00Z&until=2025-01-08T00:00:00Z",
    ],
)  # fmt: skip
def test_a_time_without_counts_has_no_buckets(served, span):
    assert served.get(f"/grid/counts?{span}")["buckets"] == []
    assert isinstance(served.get(f"/grid/outages?{span}")["alarms"], list)


def test_the_client_asks_for_the_same(served):
    with running(served.app) as url, Client(url, served.token(ADMIN)) as client:
        assert client.grid()["state"] == served.get("/grid")["state"]
        assert len(client.grid_counts(since=END - timedelta(hours=5))["buckets"]) == 5
        assert client.grid_outages(until="2025-01-06T00:00:00Z") == ClusterOutages(outages=[], alarms=[])
