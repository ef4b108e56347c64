import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.nodes.sliding import sliding_now
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import PrometheusSection
from stormpetrel.errors import NoSamplesError, SourceUnavailableError
from stormpetrel.ingest.traces import ingest_live
from stormpetrel.lifecycle.trace_models import calibration_fact, load_trace_model, score_new_windows
from stormpetrel.records.window_frames import COUNTED, WINDOW_KEY
from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces
from stormpetrel.sources.prometheus.query import Series
from stormpetrel.traces.shipped import shipped_version
from stormpetrel.watch.trace_findings import TraceFindings
from tests.builders import make_site
from tests.parts.made_counters import T0, MadeServer
from tests.sources.prometheus.test_live import SlowServer, node

WINDOW_S = 10.0
NODES = 4
SETTLED_S = 8.0


@pytest.fixture(scope="module")
def counters():
    rng = np.random.default_rng(3)
    return [one for name in range(NODES) for one in node(rng, f"n{name}", seconds=120, cpus=4, clock=name == 1)]


def site_at(folder, **traces):
    since = datetime.fromtimestamp(T0, UTC).isoformat()
    prometheus = {"url": "http://made", "since": since, "settle_s": SETTLED_S}
    return make_site(folder, prometheus=prometheus, traces={"window_s": WINDOW_S, **traces}, site={"cluster": "alpha"})


def source(site, server):
    return PrometheusTraces(
        PrometheusSection(url="http://made", since=site.settings.prometheus.since), window_s=WINDOW_S, server=server
    )


def follow(site, server, moments_s, *, state="", findings=None):
    """Step at each of these moments; the watcher."""
    watcher = findings or TraceFindings(site, source=source(site, server), state=state)
    for at_s in moments_s:
        server.now = T0 + at_s
        watcher.step(datetime.fromtimestamp(T0 + at_s, UTC))
    return watcher


def tables(site):
    windows = site.cpu_windows.read().collect().sort(WINDOW_KEY)
    return windows, site.trace_scores.read().collect().sort(WINDOW_KEY)


def test_the_watch_takes_in_and_scores_what_a_read_of_the_whole_does(tmp_path, counters):
    with site_at(tmp_path / "live") as live, site_at(tmp_path / "whole") as whole:
        follow(live, SlowServer(counters), np.arange(1, 62, 1.7))
        windows, scores = tables(live)
        whole.now = lambda: datetime.fromtimestamp(T0 + 60 + SETTLED_S, UTC)
        ingest_live(whole, source=PrometheusTraces(whole.settings.prometheus, window_s=WINDOW_S, server=MadeServer(counters)))
        score_new_windows(whole, load_trace_model(whole))
        expected, expected_scores = tables(whole)
        last = windows["window_start"].max()
        early = expected.filter(pl.col("window_start") <= last)
        assert windows.height >= NODES * 4 * 5 and windows.equals(early)
        both = scores.join(expected_scores, on=list(WINDOW_KEY), suffix="_whole")
        assert both.height == scores.height == windows.height
        assert np.allclose(both["score"], both["score_whole"], rtol=1e-4)


def test_a_window_is_scored_within_two_scrapes_of_its_end(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        server = SlowServer(counters)
        watcher = follow(site, server, [2.0, 8.0, 9.9])
        assert tables(site)[1].is_empty()
        assert watcher.every_s > 0
        follow(site, server, [11.3], findings=watcher)
        assert tables(site)[1].height == NODES * 4


def test_the_first_window_of_a_job_is_scored_before_the_window_that_it_ends_in_is_over(tmp_path, counters):
    with site_at(tmp_path / "site") as site, site_at(tmp_path / "whole") as whole:
        told = {name: one.labels["instance"] for one in counters for name in [one.labels["__name__"]]}[
            "stormpetrel_threads_told_apart"
        ]
        times = T0 + np.arange(22.5, 60.0)
        jobs = [
            Series(
                {"__name__": "stormpetrel_thread_job_info", "cpu": str(cpu), "instance": told, "jobid": "late"},
                times,
                np.ones(38),
            )
            for cpu in (1, 2)
        ]
        others = [one for one in counters if one.labels["__name__"] != "stormpetrel_thread_job_info"]
        server = SlowServer([*others, *jobs])
        watcher = follow(site, server, [21.0, 25.0, 31.0])
        assert site.job_starts.read().collect().is_empty()
        follow(site, server, [36.0], findings=watcher)
        starts, scores = site.job_starts.read().collect(), site.job_start_scores.read().collect()
        assert sorted(starts["cpu"]) == [1, 2] and starts["job_id"].to_list() == ["late", "late"]
        assert all(21.5 <= start.timestamp() - T0 <= 23.0 for start in starts["window_start"])
        assert scores["embedding"].list.len().min() > 0
        newest = site.cpu_windows.read().select(pl.col("window_start").max()).collect().item()
        assert newest.timestamp() == T0 + 20.0
        follow(site, server, np.arange(38.0, 62.0, 1.7), findings=watcher)
        whole.now = lambda: datetime.fromtimestamp(T0 + 60 + SETTLED_S, UTC)
        reader = PrometheusTraces(whole.settings.prometheus, window_s=WINDOW_S, server=MadeServer(server.series))
        assert ingest_live(whole, source=reader).job_starts > 0
        live, read = (one.job_starts.read().collect().sort(WINDOW_KEY) for one in (site, whole))
        last = live["window_start"].max()
        assert live.height > 2 and live.equals(read.filter(pl.col("window_start") <= last))


class KilledError(BaseException):
    """As if the process had ended."""


@pytest.mark.parametrize("kill_at", range(1, 12))
def test_killed_between_any_two_commits_the_tables_are_those_of_an_undisturbed_run(tmp_path, counters, monkeypatch, kill_at):
    moments_s = np.arange(1, 48, 1.7)
    small = {"keep_windows_mb": 1e-6 * 8640 * 152 * 9, "keep_scores_mb": 1e-6 * 8640 * 32 * 14}  # of 16 windows 9, and 14 rows
    with site_at(tmp_path / "calm", **small) as calm:
        follow(calm, SlowServer(counters), moments_s)
        expected = tables(calm)
    assert expected[0].height < NODES * 4 * 4 and expected[1].select(COUNTED.sum()).item() == NODES * 4 * 4
    with site_at(tmp_path / "killed", **small) as site:
        commits = 0

        def counted(commit):
            def wrapped(*args, **named):
                nonlocal commits
                done = commit(*args, **named)
                commits += 1
                if commits == kill_at:
                    raise KilledError
                return done

            return wrapped

        monkeypatch.setattr(site.trace_scores.table, "append", counted(site.trace_scores.table.append))
        monkeypatch.setattr(site.cpu_windows.table, "append", counted(site.cpu_windows.table.append))
        server, watcher = SlowServer(counters), None
        for at_s in moments_s:
            try:
                watcher = follow(site, server, [at_s], findings=watcher)
            except KilledError:
                watcher = None
        found = tables(site)
        assert found[0].equals(expected[0])
        assert found[1].drop("score", "x", "y", "bad_io_distance").equals(expected[1].drop("score", "x", "y", "bad_io_distance"))


def test_a_server_that_was_away_is_read_on_from_where_it_was_left_in_order(tmp_path, counters):
    with site_at(tmp_path / "site") as site, site_at(tmp_path / "calm") as calm:
        server = SlowServer(counters)
        watcher = follow(site, server, np.arange(1, 15, 2.0))
        server.fails_at = len(server.asked)
        with pytest.raises(SourceUnavailableError, match="The cursor stays at"):
            follow(site, server, [20.0], findings=watcher)
        server.fails_at = None
        follow(site, server, [58.0, 60.0], findings=watcher)
        follow(calm, SlowServer(counters), np.arange(1, 61, 1.0))
        assert tables(site)[0].equals(tables(calm)[0])


def test_without_any_sample_it_says_so_and_finds_what_comes_later(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        empty = SlowServer([])
        watcher = TraceFindings(site, source=source(site, empty))
        with pytest.raises(NoSamplesError):
            follow(site, empty, [30.0], findings=watcher)
        empty.series = counters
        follow(site, empty, [31.0], findings=watcher)
        assert tables(site)[0]["window_start"].min() == datetime.fromtimestamp(T0, UTC)


def test_a_node_whose_threads_are_flagged_again_and_again_is_named_also_after_a_restart(tmp_path, counters):
    promise = {"asked": 0.001, "share": 0.001, "threshold": 0.0, "calm": {"windows": 9000, "independent": 9000, "hours": 9.0}}
    with site_at(tmp_path / "site") as site:
        site.state.set_fact(
            calibration_fact(shipped_version()), json.dumps(promise)
        )  # everything is flagged, everywhere: nobody is unusual
        server = SlowServer(counters)
        watcher = follow(site, server, np.arange(1, 35, 2.0))
        assert json.loads(watcher.state)["told_to"] == datetime.fromtimestamp(T0 + 30, UTC).isoformat()
        again = TraceFindings(site, source=source(site, server), state=watcher.state)
        follow(site, server, [36.0], findings=again)
        assert again.state == watcher.state and again._moments.height == 3 * NODES


LONG_S = 100.0  # as the shipped encoder sees them
FLAG_ALL = {"asked": 0.001, "share": 0.001, "threshold": 1e-6, "calm": {"windows": 9000, "independent": 9000, "hours": 9.0}}


@pytest.fixture(scope="module")
def long_counters():
    rng = np.random.default_rng(5)
    return [one for name in range(2) for one in node(rng, f"n{name}", seconds=480, cpus=4, clock=name == 1)]


def sliding_site(folder, *, promise=FLAG_ALL):
    site = site_at(folder, window_s=LONG_S)
    if promise:
        site.state.set_fact(calibration_fact(shipped_version()), json.dumps(promise))
    return site


def long_source(site, server):
    return PrometheusTraces(
        PrometheusSection(url="http://made", since=site.settings.prometheus.since), window_s=LONG_S, server=server
    )


def sliding_rows(site):
    return site.sliding_scores.read().collect().sort("window_start", "node", "job_id")


def test_every_second_is_scored_within_seconds_and_summed_up_by_node_and_job(tmp_path, long_counters):
    with sliding_site(tmp_path / "site") as site:
        server = SlowServer(long_counters)
        watcher = TraceFindings(site, source=long_source(site, server))
        follow(site, server, np.arange(1, 160, 4.1), findings=watcher)
        rows = sliding_rows(site)
        newest = rows["window_start"].max().timestamp() - T0 + 50.0
        assert newest == 150.0  # half a window before the window itself is scored
        assert site.cpu_windows.read().select(pl.col("window_start").max()).collect().item().timestamp() == T0
        follow(site, server, np.arange(162, 420, 4.1), findings=watcher)
        rows = sliding_rows(site)
        totals = rows.filter(pl.col("node") == "")
        assert totals["window_s"].unique().to_list() == [50.0] and totals["threads"].max() == 8
        assert totals["window_start"].diff().drop_nulls().unique().to_list() == [timedelta(seconds=50)]
        steady = totals.filter(pl.col("window_start") >= datetime.fromtimestamp(T0 + 200, UTC))
        assert (steady["above"] == steady["scored"]).all()
        of_nodes = rows.filter(pl.col("node") != "").group_by("window_start").agg(pl.col("above").sum()).sort("window_start")
        assert totals.filter(pl.col("above") > 0).select("window_start", "above").equals(of_nodes)
        assert rows["job_id"].drop_nulls().is_in(["7", "8", "9", "10"]).all() and rows["job_id"].drop_nulls().len()


def test_what_the_watch_has_scored_is_told_of_now_and_of_nothing_later(tmp_path, long_counters, monkeypatch):
    with sliding_site(tmp_path / "site") as site:
        server = SlowServer(long_counters)
        follow(site, server, np.arange(1, 160, 4.1), findings=TraceFindings(site, source=long_source(site, server)))
        model = load_trace_model(site)
        monkeypatch.setattr(type(site), "now", lambda _: datetime.fromtimestamp(T0 + 160, UTC))
        told = sliding_now(site, LOCAL, model)
        assert told.fresh and told.until == datetime.fromtimestamp(T0 + 150, UTC) and {node.node for node in told.nodes} == {
            "n0", "n1",
        }  # fmt: skip
        assert all(T0 + 50 < node.since.timestamp() < T0 + 150 and node.threads_above == node.threads for node in told.nodes)
        assert f"10 s ago): 100.00% of the scores of {sum(node.threads for node in told.nodes)} threads" in told.sentence
        monkeypatch.setattr(type(site), "now", lambda _: datetime.fromtimestamp(T0 + 600, UTC))
        late = sliding_now(site, LOCAL, model)
        assert not late.fresh and late.nodes == [] and "The newest score is 8 min old." in late.sentence


def test_a_watch_that_was_killed_comes_to_the_same_sliding_scores(tmp_path, long_counters):
    with sliding_site(tmp_path / "whole") as whole, sliding_site(tmp_path / "killed") as killed:
        server = SlowServer(long_counters)
        follow(whole, server, np.arange(1, 420, 4.1), findings=TraceFindings(whole, source=long_source(whole, server)))
        server = SlowServer(long_counters)
        for first, last in ((1, 131), (131, 170), (170, 238), (238, 301), (301, 420)):  # each a watch of its own
            watcher = TraceFindings(killed, source=long_source(killed, server))
            follow(killed, server, np.arange(first, last, 4.1), findings=watcher)
        expected, found = sliding_rows(whole), sliding_rows(killed)
        until = pl.col("window_start") < datetime.fromtimestamp(T0 + 400, UTC)
        exact = [name for name in expected.columns if name != "peak"]
        assert found.filter(until).select(exact).equals(expected.filter(until).select(exact))
        assert np.allclose(found.filter(until)["peak"], expected.filter(until)["peak"], rtol=1e-4)


def test_nothing_slides_without_a_threshold_or_with_windows_of_another_length(tmp_path, counters, long_counters):
    with sliding_site(tmp_path / "none", promise=None) as site:
        server = SlowServer(long_counters)
        follow(site, server, [1.0, 60.0, 102.0, 160.0], findings=(one := TraceFindings(site, source=long_source(site, server))))
        assert not sliding_rows(site).height and "no threshold" in one._sliding.why_not
    with site_at(tmp_path / "short") as site:
        site.state.set_fact(calibration_fact(shipped_version()), json.dumps(FLAG_ALL))
        watcher = follow(site, SlowServer(counters), np.arange(1, 35, 2.0))
        assert not sliding_rows(site).height and "traces.window_s" in watcher._sliding.why_not
