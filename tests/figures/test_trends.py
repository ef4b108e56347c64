"""Figures of trends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stormpetrel.figures.trends import failure_trend_figure, trend_heatmap_figure
from stormpetrel.jobs.trends import failure_trend
from stormpetrel.records.jobs import job_frame
from tests.builders import T0


def some_trend(users=3, weeks=4):
    rows = [
        {
            "job_id": k,
            "user": f"10{user}",
            "state": "FAILED" if k <= user else "COMPLETED",
            "end_time": T0 + timedelta(weeks=week),
        }
        for user in range(users)
        for week in range(weeks)
        for k in range(12)
        if (user, week) != (0, 1)
    ]
    return failure_trend(job_frame(rows), by="user", top=None)


def test_each_group_is_a_line_in_its_band():
    figure = failure_trend_figure(some_trend())
    lines = [trace for trace in figure.data if trace.fill is None]
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    assert [line.name for line in lines] == ["102", "101", "100"]  # the most failures first
    assert len(bands) == len(lines)
    for line, band in zip(lines, bands, strict=True):
        assert max(band.y) >= max(line.y) and min(band.y) <= min(line.y)


def test_more_groups_than_colours_differ_in_their_dashes():
    lines = [trace for trace in failure_trend_figure(some_trend(users=10)).data if trace.fill is None]
    assert len({(line.line.color, line.line.dash) for line in lines}) == 10


def test_the_heatmap_has_a_gap_where_there_were_no_jobs():
    heatmap = trend_heatmap_figure(some_trend()).data[0]
    assert len(heatmap.z) == 3
    assert [row.count(None) for row in map(list, heatmap.z)] == [0, 0, 1]
    assert heatmap.z[2][1] is None


def test_a_user_named_by_a_number_is_a_label():
    assert list(trend_heatmap_figure(some_trend()).layout.yaxis.ticktext) == ["102", "101", "100"]


@pytest.mark.parametrize("draw", [failure_trend_figure, trend_heatmap_figure])
def test_axes_are_named_and_nothing_to_draw_is_a_sentence(draw):
    layout = draw(some_trend()).layout
    assert layout.title.text == "Failure rate over time, by user"
    assert layout.xaxis.title.text and layout.yaxis.title.text
    empty = draw(failure_trend(job_frame([]), by="user"))
    assert [note.text for note in empty.layout.annotations] == ["No group has enough jobs that ended."]
