"""Spans of time: runs that overlap in time saw the same machines at the same seconds, and count as one.

Traces -> time_spans -> groups of overlapping runs, earliest first; traces -> counted_once -> the same with every node and second
in one of them only; parts of a split -> refuse_overlaps. Public recordings hold the same nodes at the same seconds under several
names (up to 96 % of the values equal): split by file, what a model has learnt is what it is judged on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import Trace


def time_spans(traces: Sequence[Trace]) -> list[tuple[Trace, ...]]:
    """Group runs that overlap in time, directly or through others; groups by their first second, runs within them too."""
    spans: list[list[Trace]] = []
    end_s = -np.inf
    for trace in sorted((trace for trace in traces if trace.steps), key=lambda trace: (_begin_s(trace), trace.name)):
        if _begin_s(trace) >= end_s:
            spans.append([])
        spans[-1].append(trace)
        end_s = max(end_s, float(trace.time_s[-1]))
    return [tuple(span) for span in spans]


def counted_once(traces: Sequence[Trace]) -> list[Trace]:
    """Return the runs without what an earlier run of the same span has seen of the same node.

    Such steps become gaps, and steps that are nothing but gaps at either end are cut off; a run of which nothing is left is left
    out. Runs that overlap nobody are returned as they are, and the order is by span and time.
    """
    return [trace for span in time_spans(traces) for trace in _once(span)]


def refuse_overlaps(parts: Mapping[str, Sequence[Trace]]) -> None:
    """UsageError where runs of two parts of a split overlap in time."""
    for (name, some), (other_name, others) in combinations(parts.items(), 2):
        for trace in some:
            for other in others:
                if overlap_s(trace, other) > 0:
                    raise UsageError(
                        f"The run {trace.name[:80]!r} is for {name} and {other.name[:80]!r} for {other_name}, and they overlap by"
                        f" {overlap_s(trace, other):,.0f} s: what is learnt from one would be judged on the other.",
                        hint="Give runs that overlap in time the same split, or leave one of them out.",
                    )


def overlap_s(trace: Trace, other: Trace) -> float:
    """Seconds that two runs share."""
    if not trace.steps or not other.steps:
        return 0.0
    begin_s, end_s = max(_begin_s(trace), _begin_s(other)), min(float(trace.time_s[-1]), float(other.time_s[-1]))
    return max(0.0, end_s - begin_s)


def numbered_spans(traces: Sequence[Trace]) -> dict[str, int]:
    """The number of the span of each run, by its name, counted from 0 in the order of time."""
    return {trace.name: number for number, span in enumerate(time_spans(traces)) for trace in span}


def _begin_s(trace: Trace) -> float:
    return float(trace.time_s[0]) - trace.step_s


def _once(span: Sequence[Trace]) -> list[Trace]:
    if len(span) == 1:
        return list(span)
    kept = []
    covered: dict[str, list[tuple[float, float]]] = {}  # node -> (first, last) seconds that runs before have seen
    for trace in span:
        kept.extend(_without(trace, covered))
        for node in set(trace.nodes):
            covered.setdefault(node, []).append((float(trace.time_s[0]), float(trace.time_s[-1])))
    return kept


def _without(trace: Trace, covered: Mapping[str, Sequence[tuple[float, float]]]) -> list[Trace]:
    """The run with gaps where a node was covered already; none where nothing is left of it."""
    rates, nodes = trace.rates.copy(), np.array(trace.nodes)
    for node in set(trace.nodes) & covered.keys():
        for first_s, last_s in covered[node]:
            steps = (trace.time_s >= first_s - trace.step_s / 2) & (trace.time_s <= last_s + trace.step_s / 2)
            rates[np.ix_(steps, nodes == node)] = np.nan
    seen = np.flatnonzero(~np.isnan(rates[:, :, 0]).all(axis=1))
    if not seen.size:
        return []
    rows = slice(int(seen[0]), int(seen[-1]) + 1)
    return [replace(trace, time_s=trace.time_s[rows], rates=rates[rows], job=trace.job[rows])]
