import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.exporter import windows
from stormpetrel.exporter.bindings import Bindings
from stormpetrel.exporter.proc_stat import WIDTH, CpuSample
from stormpetrel.exporter.windows import Ring, read_window

NOBODY = Bindings({}, told_apart=True)


def sample(time_s, rows):
    return CpuSample(time_s, tuple(rows), [value for row in rows.values() for value in row])


def row(user=0, nice=0, system=0, idle=0, iowait=0, irq=0, softirq=0, steal=0):
    return [user, nice, system, idle, iowait, irq, softirq, steal]


def ring_of(*samples, bindings=NOBODY, hertz=1, keep_s=300):
    ring = Ring(hertz, keep_s)
    for one in samples:
        ring.add(one, bindings)
    return ring


def steady(count, cpus=(0, 1)):
    return [sample(1000.0 + at, {cpu: row(user=at * 60, idle=at * 40) for cpu in cpus}) for at in range(count)]


def test_modes_are_folded_into_the_four_that_models_see():
    before, after = row(), row(user=1, nice=2, system=4, idle=8, iowait=16, irq=32, softirq=64, steal=128)
    window = read_window(ring_of(sample(1, {0: before}), sample(2, {0: after})).window(100))
    assert window["modes"] == ("user", "system", "iowait", "other")
    assert window["ticks"] == [[(3, 100, 16, 136)]]


def test_a_window_holds_what_lies_in_it():
    ring = ring_of(*steady(201))
    window = read_window(ring.window(100, node="node7"))
    assert len(window["times_s"]) == 100 and window["times_s"][-1] == 1200.0
    assert window["ticks"][0] == [(60, 0, 0, 40)] * 2
    assert (window["node"], window["hertz"], window["cpus"]) == ("node7", 1, [0, 1])
    early = read_window(ring.window(10, until=1050.5))
    assert early["times_s"] == [1041.0 + at for at in range(10)]
    assert ring.window(10, until=500.0) is None
    assert Ring(1, 10).window(10) is None


def test_old_rows_make_room_for_new_ones():
    ring = ring_of(*steady(50), keep_s=10)
    assert read_window(ring.window(1000))["times_s"] == [1040.0 + at for at in range(10)]


def test_memory_is_bounded_whatever_was_asked_for(monkeypatch):
    monkeypatch.setattr(windows, "MAX_BYTES", 5000)
    ring = ring_of(*steady(500, cpus=range(16)), keep_s=86_400)
    assert ring._bytes <= 5000
    kept = read_window(ring.window(1e6))["times_s"]
    assert kept[-1] == 1499.0 and 5 < len(kept) < 25


def test_a_window_of_128_cpus_at_10_hz_fits_in_a_few_megabytes():
    rows = [{cpu: row(user=at * 6, idle=at * 4) for cpu in range(128)} for at in range(30)]
    ring = ring_of(*(sample(at / 10, rows[at]) for at in range(30)), hertz=10)
    assert ring._bytes / 29 < 1300


def test_a_cpu_that_comes_or_goes_is_unknown_for_the_rows_without_it():
    both = {0: row(user=1), 1: row(user=1)}
    ring = ring_of(
        sample(1, both),
        sample(2, {0: row(user=2)}),
        sample(3, {0: row(user=3), 1: row(user=9)}),
        sample(4, both | {0: row(user=4), 1: row(user=12)}),
    )
    window = read_window(ring.window(100))
    assert window["cpus"] == [0, 1]
    assert [second for _, second in window["ticks"]] == [None, None, (3, 0, 0, 0)]
    assert [first for first, _ in window["ticks"]] == [(1, 0, 0, 0)] * 3


def test_counters_that_begin_anew_and_gaps_that_are_too_long_are_unknown():
    ring = ring_of(sample(1, {0: row(idle=9000)}), sample(2, {0: row(idle=5)}), sample(3, {0: row(idle=5 + 40_000)}))
    assert read_window(ring.window(100))["ticks"] == [[None], [None]]


def test_jobs_are_told_row_by_row():
    ring = Ring(1, 300)
    changes = [
        NOBODY,
        Bindings({0: "1", 1: "1"}, told_apart=True),
        Bindings({0: "1", 1: "1"}, told_apart=True),
        Bindings({}, told_apart=False),
    ]
    for at, (one, bindings) in enumerate(zip(steady(4), changes, strict=True)):
        ring.add(one, bindings)
        assert at < 2 or len(json.loads(ring.window(100))["jobs"]) == at - 1
    window = read_window(ring.window(100))
    assert window["jobs"] == [{0: "1", 1: "1"}, {0: "1", 1: "1"}, {}]
    assert window["told_apart"] == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 200), min_size=3 * WIDTH, max_size=3 * WIDTH), min_size=1, max_size=8),
    st.dictionaries(st.integers(0, 2), st.text(min_size=1, max_size=6)),
    st.booleans(),
)
def test_what_is_written_is_read_again(steps, jobs, told):
    bindings = Bindings(jobs, told_apart=told)
    total = [0] * (3 * WIDTH)
    ring = ring_of(CpuSample(0.0, (0, 1, 2), list(total)), bindings=bindings)
    for at, step in enumerate(steps):
        total = [have + more for have, more in zip(total, step, strict=True)]
        ring.add(CpuSample(at + 1.0, (0, 1, 2), total), bindings)
    window = read_window(ring.window(100))
    for ticks, step in zip(window["ticks"], steps, strict=True):
        assert [sum(four) for four in ticks] == [sum(step[at * WIDTH : (at + 1) * WIDTH]) for at in range(3)]
    assert window["told_apart"] == [told] * len(steps)
    shown = {cpu: job.encode("utf-8", "backslashreplace").decode() for cpu, job in jobs.items()}
    assert window["jobs"] == [shown] * len(steps)


@pytest.mark.parametrize("damage", ["", "[]", "{}", "null", '{"format":"stormpetrel window","version":2}', "{" * 5000])
def test_what_is_no_window_is_refused(damage):
    with pytest.raises(ValueError, match="no window"):
        read_window(damage)


@pytest.mark.parametrize(
    "change",
    [
        {"ticks": [[1, 2, 3]]},
        {"times_s": []},
        {"cpus": None},
        {"jobs": [{"from": 0}]},
        {"ticks": [["a"] * 8]},
        {"jobs": {"a": 1}},
    ],
)
def test_a_damaged_window_is_refused(change):
    good = json.loads(ring_of(*steady(2)).window(100))
    with pytest.raises(ValueError, match="no window"):
        read_window(json.dumps({**good, **change}))
