import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SourceFormatError, SourceUnavailableError
from stormpetrel.ingest import traces as trace_ingest
from stormpetrel.ingest.traces import ingest_campaigns, ingest_live
from stormpetrel.records.traces import BAD_IO, NP, Split, Trace, TraceJob
from stormpetrel.records.window_frames import WINDOW_KEY, windows_of
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces
from stormpetrel.sources.prometheus.query import Series
from stormpetrel.sources.trace_files import write_trace
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.made_counters import SHARES, T0, MadeServer, cpu_series, gauge

WINDOW_S = 10.0
INGEST = """
import sys
from pathlib import Path
from stormpetrel.store.site import open_site
from stormpetrel.ingest.traces import ingest_campaigns
ingest_campaigns(open_site(Path(sys.argv[1])), [Path(sys.argv[2])])
"""


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", traces={"window_s": WINDOW_S}, site={"cluster": "alpha"}) as opened:
        yield opened


def stored(site):
    return site.cpu_windows.read().collect().sort(WINDOW_KEY)


def adds_up(report):
    told = report.as_dict()
    assert told["read"] == told["kept"] + told["known"] + told["changed"] + sum(told["left_out"].values())
    return told


# Campaign files


def campaign(name="c1", *, steps=105, split=Split.TRAIN, threads=3, start=T0):
    rates = np.random.default_rng(0).dirichlet(np.ones(4), size=(steps, threads)).astype(np.float32)
    job = np.tile(np.arange(threads, dtype=np.int32) % 2, (steps, 1))
    time_s = start + 1.0 + np.arange(steps)
    jobs = (TraceJob("1", NP), TraceJob("2", BAD_IO))
    return Trace(name, 1.0, time_s, ("n1",) * threads, tuple(range(threads)), rates, job, jobs, split)


def test_campaigns_become_windows_with_their_split_and_job_types(site, tmp_path):
    write_trace(campaign(), tmp_path / "c1.npz")
    told = adds_up(ingest_campaigns(site, [tmp_path / "c1.npz"]))
    assert (told["read"], told["kept"], told["nodes"], told["threads"]) == (30, 30, 1, 3)
    assert told["first"] == "2023-11-14T22:13:20+00:00" and told["last"] == "2023-11-14T22:15:00+00:00"
    rows = stored(site)
    assert set(rows["split"]) == {"train"} and set(rows["job_type"]) == {NP, BAD_IO} and set(rows["cluster"]) == {"alpha"}
    assert np.allclose(windows_of(rows).rates.sum(axis=2), 1, atol=1e-5)


def test_a_folder_twice_changes_nothing(site, tmp_path):
    (tmp_path / "all").mkdir()
    for number, split in enumerate(Split):
        write_trace(campaign(f"c{number}", split=split), tmp_path / "all" / f"c{number}.npz")
    assert ingest_campaigns(site, [tmp_path / "all"]).kept == 90
    before, version = stored(site), site.cpu_windows.table.version()
    told = adds_up(ingest_campaigns(site, [tmp_path / "all", tmp_path / "all" / "c1.npz"]))
    assert (told["kept"], told["known"]) == (0, 90)
    assert stored(site).equals(before) and site.cpu_windows.table.version() == version


def test_gaps_and_traces_that_are_too_short_are_counted(site, tmp_path):
    trace = campaign(steps=30)
    trace.rates[3:5, 0] = np.nan  # bridged
    trace.rates[12:18, :] = np.nan
    write_trace(trace, tmp_path / "a.npz")
    write_trace(campaign("short", steps=5), tmp_path / "b.npz")
    told = adds_up(ingest_campaigns(site, [tmp_path / "a.npz", tmp_path / "b.npz"]))
    assert told["left_out"] == {"gap": 3} and told["bridged"] == 1 and told["kept"] == 9 and told["short_jobs"] == 3
    assert told["gaps"] == [{"node": "n1", "from": "2023-11-14T22:13:32+00:00", "to": "2023-11-14T22:13:38+00:00"}]


def test_a_site_of_short_jobs_is_not_all_mixed(site, tmp_path):
    trace = campaign(steps=60, threads=2)
    trace.job[:] = (np.arange(60, dtype=np.int32) // 6)[:, None]  # ten jobs of six seconds, one after the other
    jobs = tuple(TraceJob(str(100 + number), NP) for number in range(10))
    write_trace(replace(trace, jobs=jobs), tmp_path / "short.npz")
    told = adds_up(ingest_campaigns(site, [tmp_path / "short.npz"]))
    rows = stored(site)
    assert told["short_jobs"] == 20 and sorted(set(rows.filter(job_type=NP)["job_id"]), key=int) == [job.job_id for job in jobs]
    assert set(rows.filter(job_type=NP)["user"].list.len()) == {6} and rows.filter(job_type="Mixed").height == 12 - 4


def test_two_campaigns_of_one_name_are_refused(site, tmp_path):
    for name in ("a", "b"):
        write_trace(campaign("same", start=T0 + 1_000 * (name == "b")), tmp_path / f"{name}.npz")
    with pytest.raises(SourceFormatError, match="both call their campaign 'same'"):
        ingest_campaigns(site, [tmp_path / "a.npz", tmp_path / "b.npz"])


def test_killed_anywhere_and_run_again_the_table_is_the_same(site, tmp_path):
    (tmp_path / "all").mkdir()
    for number in range(8):
        write_trace(campaign(f"c{number:02d}", threads=40, steps=300), tmp_path / "all" / f"c{number:02d}.npz")
    ingest_campaigns(site, [tmp_path / "all"])
    with make_site(tmp_path / "killed", traces={"window_s": WINDOW_S}, site={"cluster": "alpha"}) as killed:
        for rows in (1, 5_000):  # killed after the first commit, and later and later
            process = subprocess.Popen([sys.executable, "-c", INGEST, str(killed.folder), str(tmp_path / "all")])
            wait_until(lambda rows=rows: killed.cpu_windows.read().collect().height >= rows, "some windows are there", limit_s=60)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        ingest_campaigns(killed, [tmp_path / "all"])
        assert stored(killed).equals(stored(site))


# A server


class Live:
    """A site and a server whose clock the test holds."""

    def __init__(self, site, series, **settings):
        self.site, self.server = site, MadeServer(series)
        self.settings = PrometheusSection(
            url="http://made", since="2023-11-14T22:13:20", settle_s=5.0, overlap_s=20.0, **settings
        )

    def ingest(self, now_s):
        self.site.now = lambda: datetime.fromtimestamp(now_s, UTC)
        source = PrometheusTraces(self.settings, window_s=WINDOW_S, server=self.server)
        return ingest_live(self.site, source=source)

    def cursor_s(self):
        position = self.site.cpu_windows.cursor(CURSOR)
        return None if position is None else position / 1e6 - T0


def node(times_s, cpus=2, **more):
    series = [one for cpu in range(cpus) for one in cpu_series(times_s, cpu=cpu, **more)]
    return [*series, gauge("stormpetrel_threads_told_apart", times_s, **{k: v for k, v in more.items() if k == "instance"})]


def without(series, unseen):
    keep = [~np.isin(np.round(one.time_s - T0), unseen) for one in series]
    return [Series(one.labels, one.time_s[k], one.values[k]) for one, k in zip(series, keep, strict=True)]


LONG = T0 - 20 + np.arange(200) + 0.25


def test_a_second_run_goes_on_where_the_first_stopped(site):
    live = Live(site, node(LONG))
    assert adds_up(live.ingest(T0 + 37))["kept"] == 6 and live.cursor_s() == 30
    told = adds_up(live.ingest(T0 + 67))
    assert (told["kept"], told["known"]) == (6, 4) and live.cursor_s() == 60
    rows = windows_of(stored(site))
    assert np.allclose(rows.rates, SHARES, atol=1e-5) and len(rows) == 12
    assert set(stored(site)["trace"]) == {"live"} and set(stored(site)["job_type"]) == {"Idle"}


def test_nothing_that_has_not_settled_is_read_and_no_new_window_is_no_error(site):
    live = Live(site, node(LONG))
    live.ingest(T0 + 37)
    asked = len(live.server.asked)
    assert live.ingest(T0 + 38).kept == 0 and len(live.server.asked) > asked
    live.settings = live.settings.model_copy(update={"overlap_s": 0.0})
    assert adds_up(live.ingest(T0 + 39))["read"] == 0


def test_chunks_of_any_length_give_the_same_windows(site, tmp_path):
    uneven = np.sort(LONG + np.random.default_rng(0).uniform(-0.2, 0.2, LONG.size))
    series = without(node(uneven), [29, 30, 58, 59, 60, 91])
    Live(site, series).ingest(T0 + 130)
    with make_site(tmp_path / "other", traces={"window_s": WINDOW_S}, site={"cluster": "alpha"}) as other:
        live = Live(other, series, chunk_minutes=0.17)
        for now_s in (T0 + 35, T0 + 77, T0 + 130):
            live.ingest(now_s)
        assert stored(other).equals(stored(site)) and stored(site).height > 16


def test_short_jobs_of_a_server_have_their_windows_in_chunks_of_any_length(site, tmp_path):
    spans = [(13, 18), (18, 33), (33, 36), (57, 69), (69, 74), (88, 91)]  # seconds from the start, one job after the other
    jobs = [
        gauge("stormpetrel_thread_job_info", T0 + np.arange(first, end) + 0.25, cpu="0", jobid=str(number))
        for number, (first, end) in enumerate(spans)
    ]
    series = [*node(LONG), *jobs]
    Live(site, series).ingest(T0 + 130)
    found = stored(site).filter(job_type="")  # nobody says what they are, but they are jobs
    assert sorted(set(found["job_id"])) == [str(number) for number in range(6)] and set(found["cpu"]) == {0}
    with make_site(tmp_path / "other", traces={"window_s": WINDOW_S}, site={"cluster": "alpha"}) as other:
        live = Live(other, series, chunk_minutes=0.17)
        for now_s in (T0 + 35, T0 + 47, T0 + 77, T0 + 130):
            adds_up(live.ingest(now_s))
        assert stored(other).equals(stored(site))
        first, again = (one.job_starts.read().collect().sort("window_start") for one in (site, other))
        assert first["job_id"].to_list() == ["1", "3"] and again.equals(first)  # the others were over too soon
        assert [start.timestamp() - T0 for start in first["window_start"]] == [18.0, 57.0]


def test_a_gap_stays_a_gap_and_late_samples_fill_it(site):
    whole = node(LONG)
    live = Live(site, without(whole, list(range(13, 18))))
    told = adds_up(live.ingest(T0 + 37))
    assert told["kept"] == 4 and told["left_out"] == {"gap": 2}
    assert told["gaps"][0]["node"] == "n1" and told["gaps"][0]["from"].startswith("2023-11-14T22:13:32")
    live.server.series = whole
    told = adds_up(live.ingest(T0 + 37))
    assert (told["kept"], told["known"], told["changed"]) == (2, 2, 0)  # the first window is older than the overlap


def test_a_bridge_is_replaced_by_what_really_was(site):
    whole = node(LONG)
    for one in whole:
        if one.labels.get("mode") == "user":
            one.values[34] += 0.4  # a moment of work within the gap
            one.values[35:] += 0.4
    live = Live(site, without(whole, [14]))
    assert adds_up(live.ingest(T0 + 37))["bridged"] == 2
    live.server.series = whole
    assert adds_up(live.ingest(T0 + 37))["changed"] == 2
    assert stored(site).height == 6


def test_a_server_that_goes_away_in_the_middle_loses_nothing(site):
    live = Live(site, node(LONG), chunk_minutes=0.17)
    live.server.fails_at = 7  # in the third chunk
    with pytest.raises(SourceUnavailableError, match=r"The cursor stays at 2023-11-14T22:13:40Z; the next run resumes there\."):
        live.ingest(T0 + 67)
    assert live.cursor_s() == 20 and stored(site).height == 4
    live.server.fails_at = None
    live.ingest(T0 + 67)
    assert live.cursor_s() == 60 and stored(site).height == 12


def test_a_time_without_samples_does_not_move_the_cursor_until_there_are_samples_after_it(site):
    series = without(node(LONG), list(range(18, 200)))
    live = Live(site, series, chunk_minutes=0.17)
    live.ingest(T0 + 37)
    assert live.cursor_s() == 20
    live.server.series = without(node(LONG), list(range(18, 75)))
    live.ingest(T0 + 97)
    assert live.cursor_s() == 90
    live.server.series = []
    with pytest.raises(SourceUnavailableError, match="has no samples of node_cpu_seconds_total from"):
        live.ingest(T0 + 190)
    assert live.cursor_s() == 90


def test_many_nodes_are_several_commits_and_only_the_last_moves_the_cursor(site, monkeypatch):
    monkeypatch.setattr(trace_ingest, "COMMIT_WINDOWS", 4)
    commits = []
    original = site.cpu_windows.commit
    monkeypatch.setattr(
        site.cpu_windows, "commit", lambda frame, *, cursor=None: commits.append(cursor) or original(frame, cursor=cursor)
    )
    told = adds_up(Live(site, [*node(LONG), *node(LONG, 1, instance="n2:9643")]).ingest(T0 + 37))
    assert (told["nodes"], told["threads"], told["kept"]) == (2, 3, 9)
    assert [cursor is not None for cursor in commits] == [False, False, True]


def test_resets_are_told_and_the_ingest_is_remembered(site):
    before, after = node(LONG[:45]), node(LONG[45:], uptime_s=2.0)
    both = [Series(a.labels, LONG, np.concatenate([a.values, b.values])) for a, b in zip(before, after, strict=True)]
    told = adds_up(Live(site, both).ingest(T0 + 67))
    assert told["seen"] == {"counter reset": 1} and told["bridged"] == 2
    assert site.state.past_ingests(1)[0]["kept"] == told["kept"]
