"""The figures of workloads hold what they are drawn from, stay small, and show names as text."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.figures.workload import (
    acf_figure,
    cdf_figure,
    cdf_grid,
    distances,
    hour_of_week_figure,
    hourly_counts_figure,
    jobs_per_hour,
    scorecard_figure,
)
from stormpetrel.figures.workload_curves import MOST_POINTS, OTHERS, columns_of, picture_of, rising
from stormpetrel.synth.score.fidelity import autocorrelation, hour_of_week
from tests.synth.made_workloads import made_workload, shuffled, workload_at

MARKUP = "<a href='http://evil'>x</a>"


@pytest.fixture(scope="module")
def pair():
    real = made_workload(600, weeks=3)
    return {"real": real, "rows": shuffled(real)}


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_every_column_has_a_field_and_every_workload_one_entry_in_the_legend(pair):
    figure = cdf_grid(pair)
    fields = [note.text for note in figure.layout.annotations]
    assert fields[:3] == ["interval between submissions (s)", "run time (s)", "cores"] and len(fields) == len(columns_of(pair))
    assert [trace.name for trace in figure.data if trace.showlegend] == ["real", "rows"]


def test_a_distribution_rises_from_nothing_to_one_and_keeps_the_smallest_value(pair):
    drawn = traces(cdf_figure("cores", pair))["real"]
    cores = pair["real"].jobs["cores"].to_numpy()
    assert drawn.y[0] == 0.0 and drawn.y[-1] == 1.0
    assert drawn.x[1] == cores.min() and drawn.y[1] == pytest.approx((cores == cores.min()).mean())


def test_a_large_column_is_thinned_and_no_step_is_off_by_more_than_one_point():
    values = np.concatenate([np.random.default_rng(0).exponential(100, 50_000), np.full(20_000, 50.0)])
    curve = rising(values)
    assert curve.x.size <= MOST_POINTS
    exact = np.searchsorted(np.sort(values), curve.x, side="right") / values.size
    assert np.abs(exact - curve.y).max() == 0.0
    at = 49.999  # just before the large step
    shown = curve.y[np.searchsorted(curve.x, at, side="right") - 1]
    assert abs(shown - (values <= at).mean()) <= 1.5 / MOST_POINTS


def test_names_that_differ_on_both_sides_are_compared_by_rank():
    few = workload_at(np.arange(10.0), user=["a"] * 7 + ["b"] * 3)
    renamed = workload_at(np.arange(10.0), user=["user1"] * 3 + ["user2"] * 7)
    found = picture_of("user", {"real": few, "synthetic": renamed})
    assert found.kind == "ranks"
    assert found.curves["real"].y.tolist() == found.curves["synthetic"].y.tolist() == [0.7, 1.0]


def test_rare_categories_are_drawn_together():
    names = [f"queue{number}" for number in range(20)]
    found = picture_of("partition", {"real": workload_at(np.arange(40.0), partition=[*names, *["queue0"] * 20])})
    heights = found.curves["real"].y
    assert found.categories[0] == "queue0" and found.categories[-1] == OTHERS
    assert heights[0] == pytest.approx(21 / 40) and heights.sum() == pytest.approx(1.0)


def test_a_column_that_one_side_lacks_is_drawn_for_the_other(pair):
    lacking = {"real": pair["real"], "other": workload_at(np.arange(30.0))}
    assert [trace.name for trace in cdf_figure("runtime_s", lacking).data] == ["real"]


def test_waits_are_drawn_only_where_all_workloads_have_them():
    waited, fresh = workload_at(np.arange(9.0), wait_s=[1.0] * 9), workload_at(np.arange(9.0))
    assert "wait_s" in columns_of({"real": waited, "other": waited})
    assert "wait_s" not in columns_of({"real": waited, "other": fresh})


def test_the_memory_of_intervals_and_the_rhythm_are_those_of_the_scorecard(pair):
    memory = traces(acf_figure(pair))
    assert list(memory["real"].y) == pytest.approx(autocorrelation(pair["real"].interval_s(), 50).tolist())
    assert abs(memory["rows"].y[0]) < memory["real"].y[0]
    rhythm = traces(hour_of_week_figure(pair))["real"]
    assert list(rhythm.y) == pytest.approx((100 * hour_of_week(pair["real"])).tolist()) and sum(rhythm.y) == pytest.approx(100)


def test_hours_of_a_log_without_a_clock_are_said_to_be_counted():
    counted = workload_at(np.arange(0.0, 1e6, 1000), has_clock=False)
    assert "no clock" in hour_of_week_figure({"real": counted}).layout.title.subtitle.text


def test_jobs_per_hour_count_the_empty_hours():
    counts = jobs_per_hour(np.array([0.0, 10.0, 3 * 3600.0]))
    assert sorted(counts.tolist()) == [0, 0, 1, 2]
    drawn = hourly_counts_figure({"real": workload_at(np.array([0.0, 10.0, 3 * 3600.0]))}).data[0]
    assert list(drawn.x) == [1, 2] and list(drawn.y) == pytest.approx([0.5, 0.25])


def test_one_job_and_constant_intervals_are_drawn():
    odd = {"one": workload_at(np.array([5.0])), "even": workload_at(np.arange(0.0, 600.0, 10.0))}
    for draw in (cdf_grid, acf_figure, hour_of_week_figure, hourly_counts_figure):
        draw(odd).to_json()


def test_a_hostile_column_and_a_hostile_name_are_text():
    made = {MARKUP: workload_at(np.arange(30.0), **{MARKUP: [MARKUP, "b"] * 15})}
    for figure in (cdf_grid(made), cdf_figure(MARKUP, made), acf_figure(made)):
        assert "<a " not in figure.to_json().replace("\\u003c", "<")


CARD = {
    "columns": {"interval_s": {"ks": {"mean": 0.04, "std": 0.01, "n": 5}}, "runtime_s": {"ks": 0.1}, "cores": {"ks": None}},
    "lag1": {"real": -0.1, "synthetic": 0.3}, "acf_mae": 0.05, "dispersion": {"real": 2.0, "synthetic": 9.0},
    "hour_profile_tv": 0.2, "same_user_share": {"real": None, "synthetic": None}, "c2st_row": 0.4, "c2st_sequence": 1.0,
}  # fmt: skip


def test_a_scorecard_is_drawn_as_distances_from_the_ideal():
    found = distances(CARD)
    assert found["KS of interval"] == 0.04 and found["KS of cores"] is None
    assert found["lag-1 autocorrelation"] == pytest.approx(0.4)
    assert found["dispersion of hourly counts"] == 1.0 and found["same user as before"] is None
    assert found["told apart by rows (C2ST)"] == pytest.approx(0.2) and found["told apart by sequences (C2ST)"] == 1.0


def test_the_floor_stands_beside_the_bars():
    figure = scorecard_figure({"ours": CARD}, CARD)
    assert [trace.name for trace in figure.data] == ["ours", "floor: two halves of the real log"]
    assert list(figure.data[1].x) == list(distances(CARD).values())
