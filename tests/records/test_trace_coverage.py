from collections import Counter
from datetime import UTC, datetime, timedelta

import polars as pl

from stormpetrel.records.trace_coverage import (
    TRACE_COVERAGE_SCHEMA,
    SamplingPlan,
    chosen_first,
    drawn_in_turn,
    in_shard,
    is_due,
    next_plan,
    rotation_of,
)
from stormpetrel.records.traces import LIVE

NODES = [f"n{number:03d}" for number in range(256)]


def test_each_node_has_its_turn_once_in_every_so_many_windows_wherever_one_begins_to_count():
    for every in (2, 4, 8, 32):
        for first in (0, 7, 17_000_000):
            turns = Counter(node for window in range(first, first + every) for node in NODES if is_due(node, window, every))
            assert turns == dict.fromkeys(NODES, 1)


def test_the_turns_of_numbered_nodes_are_of_one_size():
    sizes = [sum(is_due(node, window, 8) for node in NODES) for window in range(8)]
    assert sizes == [len(NODES) // 8] * 8


def test_eight_neighbours_are_judged_together_and_names_without_numbers_have_a_turn_too():
    together = NODES[16:24]
    assert {tuple(is_due(node, window, 16) for window in range(16)) for node in together}.__len__() == 1
    assert sum(is_due("gateway", window, 16) for window in range(16)) == 1


def test_a_plan_that_includes_every_node_asks_for_no_name():
    assert SamplingPlan().includes("anything", 3)
    assert SamplingPlan(4, frozenset({"n017"})).includes("n017", 0) and SamplingPlan(4, frozenset({"n017"})).includes("n017", 1)


def plans(loads_and_lags, *, longest=32, start=None):
    """The rotation after each window."""
    plan, found = start or SamplingPlan(), []
    for load, lag in loads_and_lags:
        plan = next_plan(plan, load=load, lag_windows=lag, longest=longest)
        found.append(plan.every)
    return found


def test_a_watch_that_keeps_up_judges_all_nodes_however_late_the_past_is():
    assert plans([(0.3, 0.03), (0.79, 0.9), (0.7, 864.0), (0.1, 500.0)]) == [1, 1, 1, 1]


def test_one_that_loses_ground_goes_at_once_to_the_rotation_that_halves_its_load():
    assert plans([(1.2, 0.5), (1.2, 1.4)]) == [1, 4]
    assert plans([(0.9, 1.5)]) == [2]
    assert plans([(7.0, 6.0)]) == [16]


def test_the_rotation_is_a_power_of_two_up_to_the_longest_that_the_settings_allow():
    assert plans([(300.0, 300.0)]) == [32]
    assert plans([(300.0, 300.0)], longest=12) == [8]
    assert plans([(300.0, 300.0)], longest=1) == [1]


def test_it_shrinks_by_half_after_three_windows_in_a_row_with_time_for_twice_as_many_nodes():
    calm, busy = (0.25, 0.1), (0.4, 0.1)
    assert plans([calm] * 3, start=SamplingPlan(8)) == [8, 8, 4]
    assert plans([calm, calm, busy, calm, calm, calm], start=SamplingPlan(8)) == [8, 8, 8, 8, 8, 4]


def test_where_there_is_no_room_for_all_threads_the_rotation_does_not_end():
    assert [rotation_of(threads, 100) for threads in (0, 1, 100, 101, 200, 201, 1000)] == [1, 1, 1, 2, 2, 4, 16]
    calm = SamplingPlan(4, calm=2)
    assert next_plan(calm, load=0.1, lag_windows=0.1, longest=32, least=4).every == 4
    assert next_plan(SamplingPlan(), load=0.1, lag_windows=0.1, longest=32, least=8).every == 8
    assert next_plan(SamplingPlan(), load=0.1, lag_windows=0.1, longest=4, least=8).every == 4
    assert next_plan(SamplingPlan(2), load=4.0, lag_windows=2.0, longest=32, least=4).every == 16


def test_while_it_catches_up_the_rotation_stays():
    assert plans([(0.2, 5.0), (0.2, 4.2), (0.2, 3.4)], start=SamplingPlan(4)) == [4, 4, 4]


def test_a_rotation_that_fits_is_kept_and_does_not_swing():
    """A load of a constant and a part that grows with the nodes: it comes to rest."""
    plan, lag, seen = SamplingPlan(), 0.0, []
    for _ in range(60):
        load = 0.1 + 2.0 / plan.every
        lag = max(0.02, lag + load - 1)
        plan = next_plan(plan, load=load, lag_windows=lag, longest=32)
        seen.append(plan.every)
    assert len(set(seen[10:])) == 1 and lag < 1


def test_open_incidents_come_before_what_is_unusual_and_both_have_no_more_room_than_a_turn():
    unusual = [f"u{number}" for number in range(100)]
    first = chosen_first(["n1", "n2"], ["n2", *unusual], nodes=64, every=4)
    assert first == {"n1", "n2", *unusual[:14]}
    assert len(chosen_first([], unusual, nodes=4, every=32)) == 8


def test_scores_of_nodes_that_were_judged_besides_their_turn_are_no_sample_of_what_is_calm():
    start = datetime(2026, 11, 2, tzinfo=UTC)
    starts = [start + timedelta(seconds=100 * number) for number in range(8)]
    rows = pl.DataFrame(
        [(trace, node, at) for trace in (LIVE, "campaign") for node in NODES[:64] for at in starts],
        schema={"trace": pl.String, "node": pl.String, "window_start": pl.Datetime("us", "UTC")},
        orient="row",
    )
    sampled = [
        {**dict.fromkeys(TRACE_COVERAGE_SCHEMA), "window_start": at, "window_s": 100.0, "every": 8 if at > starts[3] else 1}
        for at in starts[2:]
    ]
    kept = drawn_in_turn(rows, pl.DataFrame(sampled, schema=TRACE_COVERAGE_SCHEMA))
    live = kept.filter(pl.col("trace") == LIVE)
    assert kept.height - live.height == 64 * 8
    counts = dict(live.group_by("window_start").len().iter_rows())
    assert [counts[at] for at in starts] == [64] * 4 + [8] * 4
    assert drawn_in_turn(rows, pl.DataFrame(schema=TRACE_COVERAGE_SCHEMA)).equals(rows)


def test_each_node_is_in_one_shard_and_the_shards_are_of_about_one_size():
    names = [f"n{number:04d}" for number in range(2048)]
    for shards in (1, 2, 8, 16):
        sizes = [sum(in_shard(name, f"{number}/{shards}") for name in names) for number in range(1, shards + 1)]
        assert sum(sizes) == len(names) and max(sizes) - min(sizes) <= 64
    assert all(in_shard(name, "") for name in names)


def test_within_a_shard_the_turns_of_a_rotation_are_of_one_size():
    names = [name for name in (f"n{number:04d}" for number in range(4096)) if in_shard(name, "3/8")]
    sizes = [sum(is_due(name, window, 8) for name in names) for window in range(8)]
    assert max(sizes) - min(sizes) <= 16 and min(sizes) > 0
