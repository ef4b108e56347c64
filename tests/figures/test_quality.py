from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.figures import quality
from tests.builders import T0


@pytest.fixture(scope="module")
def forecast():
    rng = np.random.default_rng(0)
    truth = rng.random(6000) < 0.2
    return truth, np.clip(0.2 + 0.4 * truth + rng.normal(0, 0.15, 6000), 0, 1)


def words(figure):
    layout = figure.layout
    return layout.title.text, layout.xaxis.title.text, layout.yaxis.title.text


def test_roc_curves_have_their_areas_in_the_legend_and_few_points(forecast):
    figure = quality.roc_figure({"model": forecast, "coin": (forecast[0], np.full(6000, 0.5))})
    names = [trace.name for trace in figure.data]
    assert names[1].startswith("model (0.9") and names[2] == "coin (0.500)"
    assert len(figure.data[1].x) < 2000
    assert (figure.data[1].x[0], figure.data[1].y[0], figure.data[1].x[-1], figure.data[1].y[-1]) == (0, 0, 1, 1)


def test_lines_differ_in_more_than_colour(forecast):
    figure = quality.roc_figure(dict.fromkeys("abc", forecast))
    assert len({trace.line.dash for trace in figure.data[1:]}) == 3


def test_every_figure_names_its_axes_and_units(forecast):
    forecasts = {"model": forecast}
    figures = [
        quality.roc_figure(forecasts), quality.precision_recall_figure(forecasts), quality.confidence_figure(*forecast),
        quality.threshold_figure(*forecast), quality.reliability_figure(forecasts),
    ]  # fmt: skip
    assert all(all(words(figure)) for figure in figures)


def test_the_thinned_curve_stays_close_to_the_whole_one(forecast):
    figure = quality.roc_figure({"model": forecast})
    x, y = np.array(figure.data[1].x), np.array(figure.data[1].y)
    area = np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)
    assert area == pytest.approx(float(figure.data[1].name.split("(")[1][:-1]), abs=0.002)


def test_confidence_shares_sum_to_one_hundred_for_each_outcome(forecast):
    figure = quality.confidence_figure(*forecast)
    assert [trace.name.split()[0] for trace in figure.data] == ["Completed", "Failed"]
    assert all(sum(trace.y) == pytest.approx(100) for trace in figure.data)


def test_a_higher_threshold_flags_fewer_jobs(forecast):
    figure = quality.threshold_figure(*forecast, chosen=0.4)
    lines = {trace.name: np.array(trace.y) for trace in figure.data}
    assert lines["share flagged"][0] == lines["recall"][0] == 1.0
    assert (np.diff(lines["share flagged"]) <= 0).all()
    assert lines["share flagged"][50] == pytest.approx((forecast[1] >= 0.5).mean())


def test_the_heat_map_spans_minus_one_to_one_and_leaves_gaps():
    figure = quality.correlation_heatmap(["failed", "hour"], np.array([[1.0, np.nan], [np.nan, 1.0]]))
    assert (figure.data[0].zmin, figure.data[0].zmax) == (-1, 1)
    assert list(figure.data[0].x) == ["failed", "hour"]


def test_the_most_important_feature_is_on_top():
    figure = quality.importance_figure(pl.DataFrame({"feature": ["a", "b", "c"], "mean_abs_shap": [0.1, 0.9, 0.5]}), top=2)
    assert list(figure.data[0].y) == ["c", "b"]


def test_quality_over_time_draws_the_measures_that_are_there_in_order():
    frame = pl.DataFrame({"time": [T0 + timedelta(days=30), T0], "f1": [0.5, 0.4], "roc_auc": [0.8, None]})
    figure = quality.quality_over_time_figure(frame)
    assert [trace.name for trace in figure.data] == ["ROC AUC", "F1"]
    assert list(figure.data[1].y) == [0.4, 0.5]


def test_each_forecast_has_its_share_of_failed_jobs_drawn_and_only_one_is_named(forecast):
    truth, risk = forecast
    figure = quality.precision_recall_figure({"all": forecast, "half": (truth[: len(truth) // 2], risk[: len(truth) // 2])})
    assert [annotation.text for annotation in figure.layout.annotations] == ["share of failed jobs"]


def test_one_class_or_no_rows_still_give_a_figure():
    truth, probability = np.zeros(5, dtype=bool), np.linspace(0, 1, 5)
    empty = np.zeros(0, dtype=bool), np.zeros(0)
    for rows in ((truth, probability), empty):
        assert "no area" in quality.roc_figure({"m": rows}).data[1].name
        assert quality.confidence_figure(*rows).data and quality.threshold_figure(*rows).data
        assert quality.precision_recall_figure({"m": rows}).data and quality.reliability_figure({"m": rows}).data
