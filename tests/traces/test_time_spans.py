"""Spans of time: overlapping runs are one, and no node and second counts twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.campaign_splits import Cut, counted_once, numbered_spans, overlap_s, split_traces, time_spans
from tests.traces.small import small_trace


def run(name, begin_s, *, steps=100, nodes=1):
    trace = small_trace(0, steps=steps, name=name, nodes=nodes)
    return replace(trace, time_s=begin_s + 1.0 + np.arange(steps))


def names(spans):
    return [tuple(trace.name for trace in span) for span in spans]


def test_runs_join_a_span_through_others():
    spans = time_spans([run("c", 150), run("later", 251), run("a", 0), run("b", 80), run("next", 400)])
    assert names(spans) == [("a", "b", "c"), ("later",), ("next",)]


def test_runs_that_follow_each_other_to_the_second_are_two_spans():
    assert names(time_spans([run("a", 0), run("b", 100)])) == [("a",), ("b",)]
    assert overlap_s(run("a", 0), run("b", 100)) == 0 and overlap_s(run("a", 0), run("b", 60)) == 40


def test_a_repeated_run_keeps_only_what_is_new():
    first, again, inside = counted_once([run("first", 0), run("again", 30), run("inside", 140, steps=20)])
    assert first.steps == 100 and (again.time_s[0], again.time_s[-1], again.steps) == (101.0, 130.0, 30)
    assert inside.steps == 20
    assert [trace.name for trace in counted_once([run("whole", 0), run("part", 20, steps=40)])] == ["whole"]


def test_other_nodes_at_the_same_time_are_kept():
    stranger = replace(run("stranger", 30), nodes=("elsewhere",) * 8)
    kept = counted_once([run("here", 0), stranger])
    assert [trace.steps for trace in kept] == [100, 100] and not np.isnan(kept[1].rates).any()


def test_spans_are_numbered_by_time():
    assert numbered_spans([run("late", 500), run("a", 0), run("b", 80)]) == {"a": 0, "b": 0, "late": 1}


@pytest.mark.realdata
def test_the_public_runs_are_four_spans_and_none_is_on_both_sides(public_logs):
    traces = read_campaigns([public_logs / "telemetry" / "exathlon"])
    assert [len(span) for span in time_spans(traces)] == [2, 1, 2, 3]
    split = split_traces(traces, Cut(100))
    assert split.train.start_s.max() + 100 < split.test.start_s.min()
    for part in (split.train, split.validation, split.test):
        keys = np.stack([part.start_s, part.node, part.cpu], axis=1)
        assert len(np.unique(keys, axis=0)) == len(part)
