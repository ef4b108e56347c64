from datetime import UTC, datetime

import numpy as np
import pytest

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.prometheus import cpu_traces as prometheus
from stormpetrel.sources.prometheus.cpu_shares import Grid
from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces
from tests.parts.made_counters import SHARES, T0, MadeServer, cpu_series, gauge

TIMES = T0 - 5 + np.arange(40)


def reading(*series, window_s=10.0, **settings):
    server = MadeServer([one for many in series for one in many])
    return PrometheusTraces(PrometheusSection(url="http://made", **settings), window_s=window_s, server=server)


def at(unix_s):
    return datetime.fromtimestamp(unix_s, UTC)


def test_nodes_of_different_sizes_lie_side_by_side_with_their_jobs():
    small = cpu_series(TIMES, instance="a:9643")
    large = [one for cpu in range(3) for one in cpu_series(TIMES, cpu=cpu, instance="b:9643")]
    jobs = [gauge("stormpetrel_thread_job_info", TIMES, cpu="2", jobid="7", instance="b:9643")]
    trace = reading(large, small, jobs).trace(T0, T0 + 20)
    assert list(zip(trace.nodes, trace.cpus, strict=True)) == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]
    assert trace.rates.shape == (20, 4, 4) and np.allclose(trace.rates, SHARES, atol=1e-5)
    assert [job.job_id for job in trace.jobs] == ["7"] and trace.job[5].tolist() == [-2, -1, -1, 0]


def test_many_nodes_are_asked_for_a_few_at_a_time_and_a_job_on_several_is_one(monkeypatch):
    monkeypatch.setattr(prometheus, "_MOST_SAMPLES", 300)
    nodes = [cpu_series(TIMES, instance=f"n{n}:9643") for n in range(3)]
    jobs = [gauge("stormpetrel_thread_job_info", TIMES, cpu="0", jobid="7", instance=f"n{n}:9643") for n in (0, 2)]
    source = reading(*nodes, jobs)
    assert [part.threads for part in source.traces(Grid(T0, 1.0, 20))] == [1, 1, 1]
    trace = source.trace(T0, T0 + 20)
    assert trace.job[0].tolist() == [0, -2, 0] and len(trace.jobs) == 1


def test_jobs_are_found_through_another_exporter_on_the_same_node():
    jobs = [gauge("cgroup_cpu_info", TIMES, cgroup="/slurm/uid_1/job_9", cpus="0", instance="n1:9306")]
    trace = reading(cpu_series(TIMES, instance="n1:9100"), jobs).trace(T0, T0 + 20)
    assert (trace.job == 0).all() and trace.jobs[0].job_id == "9"


def test_matchers_of_the_settings_are_in_every_query():
    source = reading(cpu_series(TIMES), select=' {job="node"}, ')
    source.trace(T0, T0 + 20)
    assert len(source._server.asked) == 3 and all('job="node"' in asked for asked in source._server.asked)


def test_a_node_that_lacks_a_mode_is_left_out_and_the_others_are_read():
    odd = cpu_series(TIMES, instance="bsd:9100", shares={"user": 0.4, "system": 0.1, "idle": 0.5})
    source = reading(cpu_series(TIMES), odd)
    assert source.trace(T0, T0 + 20).nodes == ("n1",)
    assert source.notes == ["bsd exports no node_cpu_seconds_total with mode iowait: left out"]


def test_where_no_node_has_all_modes_the_missing_ones_are_named():
    source = reading(cpu_series(TIMES, shares={"user": 0.5, "idle": 0.5}))
    with pytest.raises(SourceFormatError, match="n1 exports no node_cpu_seconds_total with mode system or iowait"):
        source.trace(T0, T0 + 20)


def test_a_scrape_interval_that_is_not_the_step_is_refused_with_what_to_set():
    rare = T0 - 60 + np.arange(10) * 15.0
    with pytest.raises(SourceFormatError, match=r"n1 is scraped every 15 s, and prometheus\.step_s is 1"):
        reading(cpu_series(rare)).trace(T0, T0 + 60)
    trace = reading(cpu_series(rare), step_s=15.0, window_s=60.0).trace(T0, T0 + 60)
    assert np.allclose(trace.rates, SHARES, atol=1e-5)


def test_a_label_that_names_no_node_is_told():
    with pytest.raises(SourceFormatError, match="has the label 'instance'"):
        reading(cpu_series(TIMES, instance="")).trace(T0, T0 + 20)


def test_a_time_without_samples_is_told():
    with pytest.raises(SourceUnavailableError, match="no samples of node_cpu_seconds_total"):
        reading(cpu_series(TIMES)).trace(T0 + 5_000, T0 + 5_020)


def test_labels_cannot_leave_their_quotes():
    source = reading(cpu_series(TIMES, instance='n1"} or up{x="'))
    assert source.trace(T0, T0 + 20).nodes == ('n1"} or up{x="',)


# Which time is read


def spans_of(cursor, now_s, window_s=100.0, **settings):
    source = reading(window_s=window_s, **settings)
    return [(span.start_s, span.end_s, span.cursor.position / 1e6) for span in source.spans(cursor, at(now_s))]


def test_windows_lie_at_multiples_of_their_length_and_settle_before_they_are_read():
    now_s = 1_700_000_050.0  # settled up to …035
    spans = spans_of(None, now_s, chunk_minutes=20.0)
    assert spans[0][0] == 1_699_996_500 and spans[-1][1] == 1_700_000_000
    assert all(start % 100 == 0 and end % 100 == 0 and end - start <= 1_200 and end == cursor for start, end, cursor in spans)
    assert [start for start, _, _ in spans[1:]] == [end for _, end, _ in spans[:-1]]


def test_a_later_run_begins_at_the_cursor_less_the_overlap_and_the_cursor_never_moves_back():
    spans = spans_of(1_700_000_000_000_000, 1_700_000_350.0, overlap_s=300.0, chunk_minutes=3.0)
    assert spans[0][0] == 1_699_999_700 and spans[-1][1:] == (1_700_000_300, 1_700_000_300)
    assert [cursor - 1_700_000_000 for _, _, cursor in spans] == [0, 0, 0, 100, 200, 300]
    assert spans_of(1_700_000_000_000_000, 1_699_000_000.0) == []


def test_the_first_moment_can_be_set():
    assert spans_of(None, 1_700_000_050.0, since="2023-11-14T22:00")[0][0] == 1_699_999_200
    with pytest.raises(SettingsError, match=r"prometheus\.since"):
        spans_of(None, 1_700_000_050.0, since="yesterday")


def test_a_window_needs_two_steps():
    with pytest.raises(SettingsError, match="fewer than two steps"):
        reading(window_s=10.0, step_s=15.0)


def test_the_shards_of_a_site_have_every_node_of_the_server_once_and_read_no_other():
    series = [
        one
        for number in (1, 65, 129, 193, 257)
        for one in cpu_series(range(int(T0), int(T0) + 20), instance=f"n{number:03d}:9100")
    ]
    found = []
    for number in (1, 2, 3):
        settings = PrometheusSection(url="http://made", shard=f"{number}/3")
        found.append(list(PrometheusTraces(settings, window_s=10.0, server=MadeServer(series)).nodes(T0, T0 + 20)))
    assert sorted(name for part in found for name in part) == ["n001", "n065", "n129", "n193", "n257"]
    assert sum(bool(part) for part in found) > 1


@pytest.mark.parametrize("shard", ["0/8", "9/8", "2", "2/", "-1/8", "1/0", "a/b", "1/2/3", " 1/2"])
def test_what_is_no_shard_is_refused(shard):
    with pytest.raises(ValueError, match="is no shard"):
        PrometheusSection(shard=shard)
