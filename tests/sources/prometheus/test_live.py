import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.config import PrometheusSection
from stormpetrel.sources.prometheus.cpu_shares import Grid
from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces
from stormpetrel.sources.prometheus.live import LiveTraces
from stormpetrel.sources.prometheus.matrix import read_matrix
from stormpetrel.sources.prometheus.query import Series
from tests.parts.made_counters import T0, MadeServer

WINDOW, AFTER = 10, 4
BEFORE = WINDOW + AFTER
SETTLE_S = 6.0
MODES = ("user", "system", "iowait", "idle", "steal")


class SlowServer(MadeServer):
    """Each scrape can be seen `delay_s` after its time, and nothing that is younger than `now`."""

    def __init__(self, series, *, delay_s=0.1):
        super().__init__(series)
        self.now, self.delay_s = float("inf"), delay_s

    def _within(self, metric, start_s, end_s):
        return super()._within(metric, start_s, min(end_s, self.now - self.delay_s))


def node(rng, name, *, seconds, missed=(), cpus=2, clock=False, from_s=0.0):
    """A node scraped every second, at a place of its own within the second, without the scrapes that were missed."""
    begin = T0 - BEFORE - 10 + from_s + rng.uniform(0.01, 0.9)
    times = np.round(begin + np.arange(seconds) + rng.uniform(-0.04, 0.04, seconds), 3)
    kept = np.array([number not in missed for number in range(seconds)])
    series = []
    for cpu in range(cpus):
        shares = rng.dirichlet(np.ones(len(MODES)), size=seconds) * np.diff(times, prepend=times[0] - 1)[:, None]
        counters = np.round(1000 * rng.random() + np.cumsum(shares, axis=0), 2)
        for place, mode in enumerate(MODES):
            labels = {"__name__": "node_cpu_seconds_total", "cpu": str(cpu), "instance": f"{name}:9100", "mode": mode}
            series.append(Series(labels, times[kept], counters[kept, place]))
        job = {"__name__": "stormpetrel_thread_job_info", "cpu": str(cpu), "instance": f"{name}:9100", "jobid": str(7 + cpu)}
        half = kept & (np.arange(seconds) > seconds * rng.random())
        if half.any():
            series.append(Series(job, times[half], np.ones(int(half.sum()))))
    told = {"__name__": "stormpetrel_threads_told_apart", "instance": f"{name}:9100"}
    series.append(Series(told, times[kept], np.ones(int(kept.sum()))))
    if clock:
        labels = {"__name__": "stormpetrel_sample_time_seconds", "instance": f"{name}:9100"}
        series.append(Series(labels, times[kept], times[kept] + rng.uniform(0, 0.2, int(kept.sum()))))
    return series


def reading(server):
    return PrometheusTraces(PrometheusSection(url="http://made"), window_s=WINDOW, server=server)


def live(server, **more):
    return LiveTraces(reading(server), T0, settle_s=SETTLE_S, before=BEFORE, after=AFTER, **more)


def table(traces, inside):
    """(node, cpu) -> shares and job ids of the steps inside."""
    found = {}
    for trace in traces:
        ids = [job.job_id for job in trace.jobs]
        for column, key in enumerate(zip(trace.nodes, trace.cpus, strict=True)):
            jobs = [ids[number] if number >= 0 else int(number) for number in trace.job[inside, column]]
            found[key] = trace.rates[inside, column], jobs
    return found


def whole(server, end_s):
    grid = Grid(end_s - WINDOW - BEFORE, 1.0, BEFORE + WINDOW + AFTER)
    return table(reading(server).traces(grid), slice(0, BEFORE + WINDOW))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    pauses=st.lists(st.floats(0.3, 9.0), min_size=8, max_size=8),
    missed=st.sets(st.integers(0, 70), max_size=8),
    delay_s=st.floats(0.0, 0.9),
    clock=st.booleans(),
)
def test_pieces_come_to_what_one_read_of_the_whole_comes_to(seed, pauses, missed, delay_s, clock):
    rng = np.random.default_rng(seed)
    server = SlowServer(
        [*node(rng, "n1", seconds=75, missed=missed, clock=clock), *node(rng, "n2", seconds=75), *node(rng, "n3", seconds=31)],
        delay_s=delay_s,
    )
    pieces, now, moments = live(server), T0 - 3.0, []
    for pause in itertools.cycle(pauses):
        now += pause
        if now > T0 + 4.5 * WINDOW:
            break
        server.now = now
        moments += pieces.moments(now)
    server.now = float("inf")
    assert [moment.end_s for moment in moments[:3]] == [T0 + WINDOW, T0 + 2 * WINDOW, T0 + 3 * WINDOW]
    for moment in moments[:3]:
        expected, seen = whole(server, moment.end_s), table(moment.traces, slice(0, BEFORE + WINDOW))
        assert {key for key, (rates, _) in expected.items() if not np.isnan(rates[BEFORE:]).all()} <= set(seen)
        for key, (rates, jobs) in seen.items():
            assert np.array_equal(rates[BEFORE:], expected[key][0][BEFORE:], equal_nan=True), (key, moment.end_s)
            if not np.isnan(rates[BEFORE:]).any():  # else there is no window whose job it could be
                assert jobs[BEFORE:] == expected[key][1][BEFORE:]


def test_a_window_is_given_out_as_soon_as_every_node_was_scraped_behind_its_end():
    rng = np.random.default_rng(0)
    server = SlowServer([*node(rng, "n1", seconds=60), *node(rng, "n2", seconds=60)])
    pieces, given_at = live(server), None
    for now in np.arange(T0 + 5, T0 + WINDOW + SETTLE_S, 0.25):
        server.now = float(now)
        if list(pieces.moments(float(now))):
            given_at = float(now)
            break
    assert given_at is not None and given_at <= T0 + WINDOW + 1.5


def test_a_node_that_fell_silent_holds_up_a_window_no_longer_than_samples_settle():
    rng = np.random.default_rng(0)
    server = SlowServer([*node(rng, "n1", seconds=60), *node(rng, "n2", seconds=BEFORE + 10 + 5)])
    pieces = live(server)
    server.now = T0 + WINDOW + SETTLE_S - 0.1
    assert not list(pieces.moments(server.now))
    server.now = T0 + WINDOW + SETTLE_S + 0.1
    (moment,) = pieces.moments(server.now)
    shares = table(moment.traces, slice(BEFORE, BEFORE + WINDOW))
    assert not np.isnan(shares["n1", 0][0]).any() and np.isnan(shares["n2", 0][0][-3:]).all()


def test_each_sample_is_read_about_once():
    rng = np.random.default_rng(0)
    server = SlowServer(node(rng, "n1", seconds=200))
    read = Counter()

    def count(selector, start_s, end_s, ask=server.block):
        block = ask(selector, start_s, end_s)
        read[selector.partition("{")[0]] += block.time_s.size
        return block

    server.block = count
    pieces = live(server)
    for now in np.arange(T0, T0 + 100, 2.0):
        server.now = float(now)
        list(pieces.moments(float(now)))
    assert read["node_cpu_seconds_total"] < 2.1 * 100 * 2 * len(MODES)


def test_what_is_held_does_not_grow_with_time():
    rng = np.random.default_rng(0)
    server = SlowServer(node(rng, "n1", seconds=400))
    pieces, held = live(server), []
    for now in np.arange(T0, T0 + 350, 5.0):
        server.now = float(now)
        if list(pieces.moments(float(now))):
            (one,) = pieces._exporters["n1"].values()
            jobs = max(one.time_s.size for one in pieces._companions_of["n1"].series())
            held.append((len(one._rates), len(one._time_s), one.clock_s.size, jobs))
    assert len(held) > 20 and max(held[5:]) <= (BEFORE + WINDOW + 20, 20, 20, 60) and held[-1][0] <= held[5][0] + 5


# The reader of matrices


def answer(entries, head='"isPartial":false,'):
    return ('{"status":"success",' + head + '"data":{"resultType":"matrix","result":' + entries + "}}").encode()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3),
            st.lists(st.tuples(st.integers(0, 2**41), st.floats()), min_size=1, max_size=4),
        ),
        max_size=4,
    )
)
def test_a_matrix_is_read_as_json_reads_it(series):
    texts = {float("inf"): "+Inf", float("-inf"): "-Inf"}
    entries = [
        {"metric": labels, "values": [[t / 1000, texts.get(v, "NaN" if v != v else repr(v))] for t, v in samples]}
        for labels, samples in series
    ]
    body = answer(json.dumps(entries, separators=(",", ":")))
    found = read_matrix(body)
    assert found is not None
    block, rest = found
    assert json.loads(rest)["data"] == {"resultType": "matrix", "result": []}
    for number, entry in enumerate(entries):
        samples = slice(block.first[number], block.first[number + 1])
        assert json.loads(block.metrics[number]) == entry["metric"]
        assert block.time_s[samples].tolist() == [pair[0] for pair in entry["values"]]
        assert np.array_equal(block.values[samples], [float(pair[1]) for pair in entry["values"]], equal_nan=True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        answer('[{"metric":{"a":"b"},"value":[1,"2"]}]'),
        answer('[{"metric":{"a":"b"},"values":[[1,"x"]]}]'),
        answer('[{"metric":{"a":"b"},"values":[[1,"2"]'),
        answer('[{"metric":{"a":"b"}, "values":[[1,"2"]]}]'),
        answer('[{"metric":{"a":"b","values":[[1,"2"]]}]')[:60],
        answer('[{"values":[[1,"2"]],"metric":{}}]'),
    ],
)
def test_what_is_written_otherwise_is_left_to_the_reader_of_any_json(body):
    assert read_matrix(body) is None
