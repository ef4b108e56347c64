"""Figures of the trace models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.figures import trace_models
from stormpetrel.records.traces import BAD_IO, IDLE, MODES, NP

EVIL = "<b onclick='x'>MPI</b>"


def points(n=12):
    return pl.DataFrame(
        {
            "x": np.arange(n) / 2, "y": -np.arange(n) / 3, "job_type": [(NP, BAD_IO, "", EVIL)[k % 4] for k in range(n)],
            "score": np.arange(n) / 100, "node": ["n1"] * n, "cpu": range(n), "job_id": ["7", None] * (n // 2),
            "max_iowait": np.linspace(0, 1, n), "bad_io_distance": np.linspace(5, 0, n),
        }
    )  # fmt: skip


def test_a_job_type_has_the_same_colour_whatever_else_there_is():
    few, many = trace_models.job_type_style([NP]), trace_models.job_type_style([NP, "a", "b", BAD_IO, IDLE])
    assert few[NP] == many[NP] and many["a"]["color"] != many["b"]["color"]
    assert len({(style["color"], style["symbol"]) for style in many.values()}) == len(many)


def test_the_map_has_one_trace_per_job_type_in_a_fixed_order():
    figure = trace_models.trace_map(points())
    assert [trace.name for trace in figure.data] == [
        "NP",
        "Bad IO",
        trace_models.UNKNOWN_LABEL,
        EVIL.replace("<", "&lt;").replace(">", "&gt;"),
    ]
    assert list(figure.data[0].customdata) == [0, 4, 8]
    assert "node n1" in figure.data[0].text[0] and "job 7" in figure.data[0].text[0]


def test_the_map_leaves_out_what_has_no_place_and_thins_what_is_too_much(monkeypatch):
    gappy = points().with_columns(x=pl.when(pl.col("cpu") > 5).then("x"))
    assert sum(len(trace.x) for trace in trace_models.trace_map(gappy).data) == 6
    monkeypatch.setattr(trace_models, "MOST_POINTS", 4)
    assert sum(len(trace.x) for trace in trace_models.trace_map(points()).data) == 4


def test_an_empty_map_is_a_figure():
    assert trace_models.trace_map(points().clear()).data == ()
    assert trace_models.iowait_diagnosis(points().clear()).data == ()


def test_the_diagnosis_shows_its_region():
    figure = trace_models.iowait_diagnosis(points(), near=2.0, high=0.4)
    assert {(shape.x0, shape.y0) for shape in figure.layout.shapes} == {(2.0, 0), (0, 0.4)}
    assert not trace_models.iowait_diagnosis(points()).layout.shapes


def test_a_reconstruction_shows_every_mode_twice():
    original = np.full((20, 4), 0.25)
    figure = trace_models.trace_reconstruction(list(range(20)), original, original / 2, "n1/<i>3")
    assert len(figure.data) == 2 * len(MODES)
    assert [row.text for row in figure.layout.annotations] == list(MODES)
    assert figure.layout.title.text == "n1/&lt;i&gt;3"
    assert figure.data[1].y[0] == 0.125


def test_several_threads_stand_below_each_other_with_every_model():
    originals = {"NP": np.zeros(10), "Idle": np.ones(10)}
    by_model = {"Vanilla AE": originals, "Job-GNN-AE": originals}
    figure = trace_models.reconstructions(originals, by_model, step_s=2.0)
    assert [trace.name for trace in figure.data] == ["original", "Vanilla AE", "Job-GNN-AE"] * 2
    assert figure.data[0].x[-1] == 18.0 and sum(bool(trace.showlegend) for trace in figure.data) == 3


def test_errors_stand_on_a_log_axis_without_zeros():
    figure = trace_models.error_by_job_type({"Vanilla AE": {NP: [0.0, 0.1], BAD_IO: [0.4]}}, threshold=0.2)
    assert figure.layout.yaxis.type == "log" and min(figure.data[0].y) > 0
    assert list(figure.data[0].x) == ["NP", "NP", "Bad IO"] and len(figure.layout.shapes) == 1


@pytest.mark.parametrize("threshold", [0.01, None])
def test_a_heat_map_keeps_gaps_and_hostile_names(threshold):
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=100 * k) for k in range(3)]
    figure = trace_models.node_heat_map(["1007", EVIL], times, np.array([[0.001, np.nan, 0.01], [0.0, 0.1, 5.0]]), threshold)
    heat = figure.data[0]
    assert heat.z[0][1] is None and heat.customdata[1][2] == 5.0 and heat.zmax - heat.zmin == pytest.approx(3.0)
    assert figure.layout.yaxis.ticktext[0] == "1007" and "<b" not in figure.layout.yaxis.ticktext[1]
    assert any("threshold" in words for words in heat.colorbar.ticktext) == (threshold is not None)


def test_no_nodes_are_an_empty_figure():
    assert trace_models.node_heat_map([], [], np.zeros((0, 0))).data[0].z in (None, (), [])
