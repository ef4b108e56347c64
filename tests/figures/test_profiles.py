"""Figures of labels and profiles."""

from __future__ import annotations

import polars as pl

from stormpetrel.figures.profiles import (
    elbow_figure,
    label_distribution_figure,
    profile_composition_figure,
    profile_resources_figure,
)

LABELS = pl.DataFrame(
    {
        "state": ["COMPLETED", "TIMEOUT", "CANCELLED"],
        "label": ["Completed", "Failed", "Other"],
        "count": [6, 3, 1],
        "share": [0.6, 0.3, 0.1],
    }
)
RESOURCES = pl.DataFrame(
    {
        "profile": [0, 1], "jobs": [10, 1], "cpu_mean": [2.0, 64.0], "cpu_std": [1.0, None], "mem_gb_mean": [None, None],
        "mem_gb_std": [None, None], "run_time_s_mean": [60.0, 7200.0], "run_time_s_std": [600.0, None],
        "wait_time_s_mean": [1.0, 300.0], "wait_time_s_std": [2.0, None],
    },
    schema_overrides={"mem_gb_mean": pl.Float64, "mem_gb_std": pl.Float64},
)  # fmt: skip


def test_every_state_has_a_bar_with_its_share():
    figure = label_distribution_figure(LABELS)
    assert {bar.name: list(bar.y) for bar in figure.data} == {"Completed": [60.0], "Failed": [30.0], "Other": [10.0]}
    assert figure.layout.yaxis.title.text == "jobs (%)"


def test_the_elbow_is_marked():
    figure = elbow_figure(pl.DataFrame({"k": [1, 2, 3, 4], "distortion": [10.0, 5.0, 1.0, 0.9]}), 3)
    assert figure.layout.shapes[0].x0 == 3 and list(figure.data[0].x) == [1, 2, 3, 4]


def test_resources_that_the_log_lacks_have_no_panel():
    figure = profile_resources_figure(RESOURCES)
    assert len(figure.data) == 3
    titles = [axis.title.text for axis in figure.select_yaxes() if axis.title.text]
    assert titles == ["CPUs per job", "run time (s)", "wait time (s)"]


def test_composition_is_stacked_to_a_hundred_and_empty_groups_are_left_out():
    table = pl.DataFrame({"profile": [0, 1], "Long": [1, 0], "Short": [3, 2], "Unknown": [0, 0]})
    figure = profile_composition_figure(table, "Duration")
    assert {bar.name: list(bar.y) for bar in figure.data} == {"Long": [25.0, 0.0], "Short": [75.0, 100.0]}
    assert figure.layout.barmode == "stack" and figure.layout.title.text == "Duration"


def test_a_group_keeps_its_colour_where_another_is_empty():
    full = pl.DataFrame({"profile": [0], "Balanced": [1], "Compute": [1], "Memory": [1]})
    gap = full.with_columns(Compute=pl.lit(0))
    colours = [
        {bar.name: bar.marker.color for bar in profile_composition_figure(table, "Type").data}["Memory"] for table in (full, gap)
    ]
    assert colours[0] == colours[1]


def test_empty_tables_make_empty_figures():
    assert len(label_distribution_figure(LABELS.clear()).data) == 0
    assert len(profile_resources_figure(RESOURCES.clear()).data) == 0
    empty = pl.DataFrame(schema={"profile": pl.Int32, "Long": pl.Int64})
    assert len(profile_composition_figure(empty, "Duration").data) == 0
