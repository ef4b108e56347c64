"""Figures of the grid: a gap is a gap, a zero is a zero, and thinning loses no peak."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from stormpetrel.figures.cluster.background import background_figure, background_height
from stormpetrel.figures.cluster.counts import MOST_TIMES, counts_figure, outage_timeline, score_figure, where_figure
from stormpetrel.figures.time_axis import (
    ALARM,
    GAP,
    MAINTENANCE,
    MOST_POINTS,
    MOST_SHADED,
    NAMES,
    OUTAGE,
    TimeSpan,
    envelope,
    extremes,
    shaded,
)

T0 = datetime(2026, 3, 2)
MARKUP = "<img src=x onerror=alert(1)>"
ALL_KINDS = (ALARM, OUTAGE, MAINTENANCE, GAP)


def hours(count):
    return np.datetime64(T0, "s") + np.arange(count) * np.timedelta64(3600, "s")


def span(first, last, kind, words=""):
    return TimeSpan(T0 + timedelta(hours=first), T0 + timedelta(hours=last), kind, words)


def lines(figure, kind):
    """The line of a kind: the trace whose points it draws."""
    return next(trace for trace in figure.data if trace.meta == kind)


# --- fewer points ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 8760, 50_001])
def test_thinning_keeps_the_highest_and_the_lowest_point(size):
    values = np.random.default_rng(1).normal(size=size)
    kept = extremes(values, 1000)
    assert {int(values.argmax()), int(values.argmin())} <= set(kept.tolist())
    assert kept.size <= 1002 and (np.diff(kept) > 0).all()


def test_thinning_keeps_a_gap_of_one_bucket_a_gap():
    values = np.ones(9000)
    values[4567] = np.nan
    kept = extremes(values, 100)
    assert np.isnan(values[kept]).sum() == 1


def test_a_thinned_band_holds_the_whole_band():
    rng = np.random.default_rng(2)
    low = rng.uniform(0, 5, 5000)
    high = low + rng.uniform(0, 5, 5000)
    low[:100] = high[:100] = np.nan
    places, lows, highs = envelope(low, high, 50)
    column = np.searchsorted(places, np.arange(5000), side="right") - 1
    known = ~np.isnan(low)
    assert (lows[column][known] <= low[known]).all() and (highs[column][known] >= high[known]).all()
    assert np.isnan(lows[0]) and lows.size <= 50


# --- counts ---------------------------------------------------------------------------------------------------------------------


def some_counts(size=48):
    counts = np.full((size, 2), 10.0)
    counts[5, 0] = 0
    counts[10:14] = np.nan
    counts[20, 1] = 400
    return counts


def test_a_gap_is_a_hole_and_a_zero_is_a_zero():
    figure = counts_figure(hours(48), ["Submit", "JobHeld"], some_counts(), spans=[span(10, 14, GAP, "the log was lost")])
    y = lines(figure, "Submit").y
    assert y[5] == 0 and list(y[10:14]) == [None] * 4 and not lines(figure, "Submit").connectgaps
    hatched = [trace for trace in figure.data if trace.type == "bar"]
    assert len(hatched) == 2 and all(trace.marker.pattern.shape == "/" for trace in hatched)
    assert "the log was lost" in hatched[0].hovertext[0] and hatched[0].width[0] == 4 * 3_600_000


def test_a_bucket_between_two_gaps_is_drawn():
    counts = np.full((9, 1), np.nan)
    counts[4] = 7.0
    figure = counts_figure(hours(9), ["Submit"], counts)
    assert any(trace.mode == "markers" and list(trace.y) == [7.0] for trace in figure.data)


def test_counts_of_an_alarm_outside_of_their_band_are_marked():
    counts = some_counts()
    alarm = np.zeros(48, dtype=bool)
    alarm[20] = True
    figure = counts_figure(
        hours(48), ["Submit", "JobHeld"], counts, low=np.full_like(counts, 5), high=np.full_like(counts, 20), alarm=alarm
    )
    marked = [trace for trace in figure.data if trace.mode == "markers" and trace.y[0] is not None]
    assert [(list(trace.y), trace.yaxis, list(trace.marker.symbol)) for trace in marked] == [([400], "y2", ["triangle-up"])]
    assert lines(figure, "Submit").customdata[0] == "expected 5 to 20"
    assert sum(trace.fill == "toself" for trace in figure.data) == 2


def test_the_band_does_not_run_across_a_gap():
    counts, low, high = (np.full((9, 1), value) for value in (5.0, 2.0, 8.0))
    low[3:5] = high[3:5] = np.nan
    figure = counts_figure(hours(9), ["Submit"], counts, low=low, high=high)
    (band,) = (trace for trace in figure.data if trace.fill)
    assert list(band.y) == [8] * 3 + [2] * 3 + [None] + [8] * 4 + [2] * 4 + [None]
    assert list(band.x[:6]) == [*band.x[:3], *band.x[:3][::-1]] and list(band.x).count(None) == 2


def test_without_a_forecast_there_is_no_band():
    figure = counts_figure(hours(48), ["Submit", "JobHeld"], some_counts())
    assert not any(trace.fill for trace in figure.data) and not any("99 %" in (trace.name or "") for trace in figure.data)


def test_a_year_of_hours_is_drawn_with_few_points_and_its_peak():
    counts = np.random.default_rng(0).poisson(50, (8760, 3)).astype(float)
    counts[4321, 1] = 9999
    figure = counts_figure(hours(8760), ["a", "b", "c"], counts, low=counts - 9, high=counts + 9)
    assert all(len(trace.x) <= MOST_POINTS + 3 for trace in figure.data)
    place = list(lines(figure, "b").y).index(9999)
    assert lines(figure, "b").x[place] == str(T0 + timedelta(hours=4321))[:16]


@pytest.mark.parametrize("size", [0, 1, 2])
def test_hardly_any_buckets_can_be_drawn(size):
    counts, alarm = np.zeros((size, 1)), np.ones(size, dtype=bool)
    assert counts_figure(hours(size), ["Submit"], counts, low=counts, high=counts, alarm=alarm).data
    assert score_figure(hours(size), counts[:, 0], counts[:, 0], alarm).data


def test_rows_do_not_overlap():
    figure = counts_figure(hours(3), [f"kind {number}" for number in range(13)], np.zeros((3, 13)))
    domains = sorted(tuple(axis.domain) for axis in figure.select_yaxes())
    assert len(domains) == 13 and all(before[1] < after[0] for before, after in pairwise(domains))
    assert domains[0][0] >= 0 and domains[-1][1] <= 1


# --- score and spans ------------------------------------------------------------------------------------------------------------


def test_a_severe_outage_does_not_flatten_the_rest():
    score = np.array([1.0, 2.0, 800.0, np.nan, 5.0])
    figure = score_figure(hours(5), score, np.full(5, 4.0), score > 4)
    line, _, alarms = figure.data
    assert max(y for y in line.y if y is not None) == 4 * MOST_TIMES and line.customdata[2] == 800 and line.y[3] is None
    assert list(alarms.marker.symbol) == ["triangle-up", "circle"]


def test_the_threshold_changes_where_the_model_does():
    threshold = np.repeat([4.0, 9.0], 500)
    figure = score_figure(hours(1000), np.zeros(1000), threshold, np.zeros(1000, dtype=bool))
    drawn = next(trace for trace in figure.data if trace.name == "threshold")
    assert list(drawn.y) == [4, 4, 9, 9] and drawn.line.shape == "hv"


def test_every_kind_of_span_has_its_lane_and_is_told_as_text():
    spans = [span(place, place + 1, kind, MARKUP) for place, kind in enumerate(ALL_KINDS)]
    for figure in (outage_timeline(spans), score_figure(hours(9), np.ones(9), np.ones(9), np.ones(9) > 2, spans=spans)):
        bars = [trace for trace in figure.data if trace.type == "bar"]
        assert [trace.name for trace in bars] == [NAMES[kind] for kind in ALL_KINDS]
        assert all("<img" not in trace.hovertext[0] and "&lt;img" in trace.hovertext[0] for trace in bars)
        assert len({(trace.marker.color, trace.marker.pattern.shape) for trace in bars}) == 4


def test_outages_maintenance_and_gaps_are_shaded_behind_the_counts_and_named():
    spans = [span(place, place + 1, kind) for place, kind in enumerate(ALL_KINDS)]
    figure = counts_figure(hours(9), ["Submit"], np.ones((9, 1)), spans=spans)
    assert len(figure.layout.shapes) == 3
    named = {trace.name for trace in figure.data if trace.showlegend is not False}
    assert {"Outage", "Maintenance", "No data"} <= named


def test_of_too_many_spans_the_longest_are_drawn():
    spans = [span(3 * place, 3 * place + 1, OUTAGE) for place in range(MOST_SHADED + 50)] + [span(0, 900, OUTAGE)]
    assert len(shaded(spans)) == MOST_SHADED and str(T0 + timedelta(hours=900)) in {shape["x1"] for shape in shaded(spans)}


def test_places_stand_beside_what_is_usual_there():
    figure = where_figure(["1007", MARKUP], [40.0, 2.0], [1.0, 2.0], now="in this hour", before="usual")
    usual, now = figure.data
    assert list(now.x) == [40, 2] and list(usual.x) == [1, 2]
    assert figure.layout.yaxis.ticktext == ("1007", "&lt;img src=x onerror=alert(1)&gt;")


# --- background -----------------------------------------------------------------------------------------------------------------


def test_background_without_a_sample_is_a_hole():
    values = np.array([[3.0, 0.5], [np.nan, 0.6], [5.0, np.nan]])
    figure = background_figure(hours(3), ["queued", "load"], values)
    assert list(lines(figure, "queued").y) == [3.0, None, 5.0] and not lines(figure, "queued").connectgaps
    assert lines(figure, "queued").mode == "lines+markers", "a sample between two holes is drawn"


def test_each_background_value_has_a_row_and_a_scale_of_its_own():
    values = np.array([[0.1, -4000.0], [0.9, 9000.0]])
    figure = background_figure(hours(2), ["utilisation", "drift"], values, spans=[span(0, 1, OUTAGE)])
    first, second = figure.layout.yaxis, figure.layout.yaxis2
    assert first.domain[0] > second.domain[1] and first.range[1] < 1.5
    assert first.range[0] == 0 and second.range[0] < -4000 and second.range[1] > 9000
    assert (first.tickformat, second.tickformat) == ("~g", "~s"), "half is .5, not 500m"
    assert figure.layout.height == background_height(2) and figure.layout.shapes


def test_a_year_of_background_is_drawn_with_few_points_and_its_peak():
    values = np.ones((8760, 1))
    values[4321] = 77.0
    drawn = lines(background_figure(hours(8760), ["queued"], values), "queued")
    assert len(drawn.x) <= MOST_POINTS and max(drawn.y) == 77.0
