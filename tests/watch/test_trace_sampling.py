"""A watch of traces that has no time for all nodes: on a clock that goes on by what each answer of the server takes."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.alarms.trace_rules import OddWindow, odd_node
from stormpetrel.ingest.source_checks import check_watch
from stormpetrel.records.trace_coverage import is_due
from stormpetrel.records.window_frames import WINDOW_KEY
from stormpetrel.store.source_health import SourceBook
from stormpetrel.store.watch_status import WatchStatus, read_watch, write_sources, write_status
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.metrics import WatchMetrics
from stormpetrel.watch.service import Health
from stormpetrel.watch.system_findings import SystemFindings
from stormpetrel.watch.trace_findings import SOURCE, TraceFindings
from tests.builders import make_site
from tests.parts.made_counters import T0
from tests.sources.prometheus.test_live import SlowServer, node
from tests.watch.test_trace_findings import WINDOW_S, KilledError, site_at, source

NODES = 32
UNTIL_S = 330.0
SAMPLES = NODES * 12 * WINDOW_S  # of a window


class BusyServer(SlowServer):
    """A server whose answers take as long as they have samples, by the clock of the test."""

    def __init__(self, series, *, load):
        super().__init__(series)
        self.sample_s = load * WINDOW_S / SAMPLES
        self.now = T0

    def samples(self, selector, start_s, end_s):
        series = super().samples(selector, start_s, end_s)
        self.now += self.sample_s * sum(one.time_s.size for one in series)
        return series


@pytest.fixture(scope="module")
def counters():
    rng = np.random.default_rng(5)
    return [one for number in range(NODES) for one in node(rng, f"n{number:03d}", seconds=400, cpus=2)]


def watch(site, server, *, until_s=UNTIL_S, watcher=None, book=None, note_coverage=lambda coverage: None):
    """Step as the watch does, until a moment of the test's clock; the watcher, or what killed it."""
    site.now = lambda: datetime.fromtimestamp(server.now, UTC)
    watcher = watcher or TraceFindings(site, book, source=source(site, server), note_coverage=note_coverage)
    while server.now < T0 + until_s:
        watcher.step(site.now())
        server.now += watcher.every_s
    return watcher


def judged(site):
    """The nodes that have scores, by number of the window."""
    rows = site.trace_scores.read().select("window_start", "node").unique().sort("node").collect()
    return {
        round(start.timestamp() / WINDOW_S): part["node"].to_list()
        for (start,), part in rows.group_by("window_start", maintain_order=True)
    }


def coverage(site):
    return site.trace_coverage.read().sort("window_start").collect()


def test_a_watch_that_keeps_up_judges_every_node_and_writes_nothing_about_it(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        watch(site, BusyServer(counters, load=0.4), until_s=80.0)
        assert {len(nodes) for nodes in judged(site).values()} == {NODES}
        assert coverage(site).is_empty()


def test_one_that_falls_behind_judges_each_node_in_turn_and_catches_up(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        server = BusyServer(counters, load=2.4)
        watch(site, server)
        rows = coverage(site)
        assert rows["every"].max() >= 4
        last = rows.tail(8)
        assert last["lag_s"].max() < 2 * WINDOW_S, "it came back to the present, and stays there"
        per_window, starts = judged(site), rows.filter(pl.col("every") > 1)
        for row in starts.iter_rows(named=True):
            number = round(row["window_start"].timestamp() / WINDOW_S)
            due = [f"n{one:03d}" for one in range(NODES) if is_due(f"n{one:03d}", number, row["every"])]
            assert per_window.get(number, []) == due
            assert (row["judged"], row["skipped"], row["nodes"]) == (len(due), NODES - len(due), NODES)
        counted = {node for number in list(per_window)[-int(last["every"].max()) :] for node in per_window[number]}
        assert counted == {f"n{one:03d}" for one in range(NODES)}, "nobody is left out for good"


def test_the_node_of_an_open_incident_is_judged_in_every_window(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        at = datetime.fromtimestamp(T0, UTC)
        odd = OddWindow(
            "n003", at - timedelta(seconds=WINDOW_S), at, score=4.0, threads=2, of_threads=2, what="waits for its disk"
        )
        finding = odd_node(odd, "alpha", at, share=0.001, model="made/1")
        assert IncidentKeeper(site).take("traces", [finding], "", at)
        watch(site, BusyServer(counters, load=2.4), until_s=200.0)
        sampled = coverage(site).filter(pl.col("every") > 1)
        per_window = judged(site)
        numbers = [round(start.timestamp() / WINDOW_S) for start in sampled["window_start"]]
        assert sampled.height > 4 and all("n003" in per_window[number] for number in numbers)
        besides = [number for number in numbers if not is_due("n003", number, sampled["every"].max())]
        assert besides, "also where it has not its turn"


def test_no_window_is_lost_without_being_counted(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        watch(site, BusyServer(counters, load=2.4))
        rows, per_window = coverage(site), judged(site)
        end = round(site.cpu_windows.cursor("prometheus") / 1e6 / WINDOW_S)
        first = min(per_window)
        skipped = int((rows["skipped"] + rows["passed_over"] * NODES).sum())
        assert sum(len(nodes) for nodes in per_window.values()) + skipped == (end - first) * NODES


def test_the_share_of_the_time_that_was_not_judged_is_no_calm_time(tmp_path, counters):
    """Rows of scores add up to the windows that were judged: what was skipped is in none of them."""
    with site_at(tmp_path / "site") as site:
        watch(site, BusyServer(counters, load=2.4), until_s=150.0)
        rows = coverage(site).filter(pl.col("every") > 1)
        scored = site.trace_scores.read().filter(pl.col("window_start").is_in(rows["window_start"].to_list())).collect()
        assert scored["stands_for"].sum() == 2 * rows["judged"].sum()
        promise_windows = site.state.fact("traces_shipped_promise_2") or site.state.fact("traces_shipped_promise")
        assert promise_windows is not None


def test_the_rotation_shrinks_when_there_is_time_again(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        server = BusyServer(counters, load=2.4)
        watcher = watch(site, server, until_s=150.0)
        assert coverage(site)["next_every"][-1] > 1
        server.sample_s /= 20
        watch(site, server, watcher=watcher)
        rows = coverage(site)
        assert rows["next_every"][-1] == 1
        assert len(judged(site)[round(site.cpu_windows.cursor("prometheus") / 1e6 / WINDOW_S) - 1]) == NODES


def test_even_the_longest_rotation_may_not_be_enough_and_then_windows_are_passed_over_and_counted(tmp_path, counters):
    with site_at(tmp_path / "site", rotation=2) as site:
        watch(site, BusyServer(counters, load=9.0))
        rows = coverage(site)
        assert rows["passed_over"].sum() > 0
        assert rows["lag_s"][-1] < rows["lag_s"].max(), "it does not fall behind without an end"


def test_a_decision_to_pass_windows_over_holds_although_it_was_killed_before_the_cursor(tmp_path, counters, monkeypatch):
    with site_at(tmp_path / "site", rotation=2) as site:
        commit, killed = site.cpu_windows.table.append, []

        def killing(*args, **named):
            if not killed and coverage(site)["passed_over"].sum():
                killed.append(True)
                raise KilledError
            return commit(*args, **named)

        monkeypatch.setattr(site.cpu_windows.table, "append", killing)
        server = BusyServer(counters, load=9.0)
        with pytest.raises(KilledError):
            watch(site, server)
        rows = coverage(site)
        watch(site, server, until_s=server.now - T0 + 1.0)
        assert coverage(site).head(rows.height).equals(rows)
        passed = rows.filter(pl.col("passed_over") > 0).row(0, named=True)
        first = round(passed["window_start"].timestamp() / WINDOW_S)
        assert not set(judged(site)) & set(range(first + 1, first + 1 + passed["passed_over"]))


def test_more_threads_than_there_is_room_for_are_never_read_in_one_window_not_even_in_the_first(tmp_path, counters):
    with site_at(tmp_path / "site", most_threads=16) as site:  # of 64
        server = BusyServer(counters, load=0.2)
        watch(site, server, until_s=60.0)
        per_window, rows = judged(site), coverage(site)
        assert max(len(nodes) for nodes in per_window.values()) == NODES // 4
        assert rows["next_every"].unique().to_list() == [4]
        assert {node for nodes in per_window.values() for node in nodes} == {f"n{one:03d}" for one in range(NODES)}
        site.settings.traces.__dict__["most_threads"] = 1000
        watch(site, server, until_s=150.0)
        assert coverage(site)["next_every"][-1] == 1, "there is room now"


def test_with_a_rotation_of_one_nothing_is_ever_left_out(tmp_path, counters):
    with site_at(tmp_path / "site", rotation=1) as site:
        watch(site, BusyServer(counters, load=1.5), until_s=100.0)
        assert {len(nodes) for nodes in judged(site).values()} == {NODES}
        assert coverage(site).is_empty()


@pytest.mark.parametrize("kill_at", range(2, 27, 3))
def test_killed_between_any_two_commits_the_tables_are_those_of_its_decisions(tmp_path, counters, monkeypatch, kill_at):
    """What is measured after a kill is another time; so the one beside it runs with the decisions of the one that was killed."""
    with site_at(tmp_path / "killed") as site, site_at(tmp_path / "calm") as calm:
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

        server, until_s = BusyServer(counters, load=2.4), 130.0
        for table in (site.trace_scores.table, site.cpu_windows.table, site.trace_coverage.table):
            monkeypatch.setattr(table, "append", counted(table.append))
        with pytest.raises(KilledError):
            watch(site, server, until_s=until_s)
        watch(site, server, until_s=until_s + 40.0)
        for row in coverage(site).iter_rows(named=True):
            calm.trace_coverage.append(row)
        watch(calm, BusyServer(counters, load=0.0), until_s=until_s + 40.0)
        end = datetime.fromtimestamp(site.cpu_windows.cursor("prometheus") / 1e6, UTC)
        by_model = ("score", "x", "y", "bad_io_distance", "embedding")
        for name in ("cpu_windows", "trace_scores"):
            rows = [getattr(each, name).read(until=end).collect().sort(WINDOW_KEY) for each in (site, calm)]
            one, other = (frame.drop(by_model, strict=False) for frame in rows)
            assert one.height and one.equals(other)


def test_it_says_so_wherever_one_looks(tmp_path, counters):
    with site_at(tmp_path / "site") as site:
        book = SourceBook()
        metrics, health = WatchMetrics(book), Health(5.0, book)
        watch(site, BusyServer(counters, load=2.4), until_s=120.0, book=book, note_coverage=metrics.note_coverage)
        every = coverage(site)["next_every"][-1]
        said = f"each node in one of {every} windows"
        (trouble,) = book.troubles()
        assert (trouble.source, trouble.kind) == (SOURCE, "behind") and said in trouble.what
        assert said in health.notes[0] and health.not_ready == "The first look is under way."
        text = metrics.text().decode()
        assert f"stormpetrel_traces_rotation_windows {every}.0" in text
        write_sources(site.state, book.sources(), datetime.now(UTC))
        write_status(site.state, WatchStatus(1, "here", *(datetime.now(UTC).isoformat() for _ in range(3))))
        assert ("warning", f"{SOURCE}: {trouble.what}") in [(one.level, one.what) for one in check_watch(site)]
        assert read_watch(site.state).state(datetime.now(UTC)) == "live", "it does its work"
        skipped = int((coverage(site)["skipped"]).sum())
        assert f'stormpetrel_traces_node_windows_total{{result="skipped"}} {skipped}.0' in text


def test_a_part_that_is_judged_is_no_source_that_is_gone(tmp_path):
    with make_site(tmp_path / "site") as site:
        book = SourceBook(patience_s=0.0)
        with book.poll(SOURCE, watcher="traces", every_s=1e6):
            book.note_behind(SOURCE, "CPU traces are judged in part.")
        watcher = SystemFindings(site, book)
        later = site.now() + timedelta(hours=1)
        assert watcher.step(site.now()) == [] and watcher.step(later) == []
