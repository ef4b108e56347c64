"""The statistical forecaster: causal, robust, for any bucket and any rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.events.counts.forecast import CountForecaster
from stormpetrel.events.event_metrics import calm_buckets
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE
from tests.events.rhythmic import broken, rhythmic_series

SUBMIT, EXECUTE, DISCONNECTED = 0, 1, 2


@pytest.fixture(scope="module")
def series():
    return rhythmic_series(10)


@pytest.fixture(scope="module")
def model(series):
    return CountForecaster().fit(series.take(0, 1344).unlabelled())


def with_counts(series, rows, kinds, values):
    counts = series.counts.copy()
    counts[rows, kinds] = values
    return replace(series, counts=counts)


def labelled(series, first, last, label):
    labels = series.label.copy()
    labels[first:last] = label
    return series.with_labels(labels)


def test_it_knows_rhythm_and_growth(series, model):
    forecast = model.forecast(series)
    later = slice(1344, None)
    off = np.abs(forecast.expected[later, SUBMIT] - series.counts[later, SUBMIT]).mean()
    last_week = np.abs(series.counts[1344 - 168 : -168, SUBMIT] - series.counts[later, SUBMIT]).mean()
    assert off < 0.8 * last_week  # better than "as a week ago", which knows the rhythm as well
    assert abs(forecast.expected[later].sum() / series.counts[later].sum() - 1) < 0.04  # although it has never seen such a level


def test_the_band_holds_calm_counts(series, model):
    forecast = model.forecast(series)
    inside = (series.counts >= forecast.low) & (series.counts <= forecast.high)
    assert 0.97 < inside[1344:].mean() <= 1.0


def test_nothing_after_a_bucket_changes_its_score_or_forecast(series, model):
    changed = with_counts(series, slice(1501, None), slice(None), 9999.0)
    np.testing.assert_array_equal(model.score(changed)[:1501], model.score(series)[:1501])
    np.testing.assert_array_equal(model.forecast(changed).expected[:1502], model.forecast(series).expected[:1502])


def test_the_history_that_it_asks_for_is_enough(series, model):
    part = series.take(len(series) - model.history_buckets - 1, len(series))
    assert len(part) < len(series)
    wild = with_counts(series, slice(0, 600), slice(None), 5000.0)
    assert model.score(part)[-1] == pytest.approx(model.score(wild)[-1], abs=1e-9)
    np.testing.assert_allclose(model.forecast(part).expected[-1], model.forecast(wild).expected[-1], rtol=1e-9)


def test_scores_of_the_newest_buckets_alone_are_the_same(series, model):
    since = len(series) - 3
    np.testing.assert_allclose(model.score(series, since=since)[since:], model.score(series)[since:], rtol=1e-9)
    np.testing.assert_array_equal(model.forecast(series, since=since).high[since:], model.forecast(series).high[since:])
    assert np.isnan(model.score(series, since=since)[:since]).all()


def test_outages_stand_above_calm_hours(series, model):
    spans = [(1400, 1405), (1480, 1482), (1560, 1571), (1640, 1640)]
    outages = broken(series, *spans)
    scores = model.score(outages)
    counted = calm_buckets(outages) | (outages.label == ANOMALY)
    counted[:1344] = False
    assert roc_auc(outages.label[counted] == ANOMALY, scores[counted]) > 0.99


def test_work_that_rises_in_all_kinds_is_less_odd_than_starts_that_stay_away(series):
    busy = np.exp(0.3 * np.random.default_rng(4).normal(size=(len(series), 1)))  # users come and go, and jobs with them
    together = replace(series, counts=np.rint(series.counts * np.concatenate([busy, busy, np.ones_like(busy)], axis=1)))
    model = CountForecaster().fit(together)
    rows = slice(1500, 1506)
    rise = with_counts(together, rows, slice(0, 2), np.rint(1.5 * together.counts[rows, :2]))
    away = with_counts(together, rows, EXECUTE, np.rint(together.counts[rows, EXECUTE] / 1.5))
    assert model.score(away)[1505] > model.score(rise)[1505] + 0.5


def test_an_outage_does_not_teach_the_forecast_to_expect_it(series, model):
    storm = with_counts(series, slice(1500, 1512), DISCONNECTED, 300.0)
    expected = model.forecast(storm).expected[1512, DISCONNECTED]
    assert expected < 3 * model.forecast(series).expected[1512, DISCONNECTED]
    assert (model.forecast(storm).surprise[1500:1512, DISCONNECTED] > 5).all()


def test_outages_that_nobody_labelled_spoil_little(series, model):
    spoilt = broken(series, *[(first, first + 5) for first in range(100, 1300, 170)]).unlabelled()
    taught = CountForecaster().fit(spoilt.take(0, 1344))
    test = broken(series, (1500, 1505))
    calm = taught.score(series)[1344:]
    assert taught.score(test)[1500:1506].min() > np.quantile(calm, 0.99)
    off = taught.forecast(series).expected[1344:, :2] / model.forecast(series).expected[1344:, :2] - 1
    assert np.abs(off).mean() < 0.06


def test_labelled_outages_are_not_learnt_as_normal(series):
    labels = broken(series, *[(first, first + 9) for first in range(100, 1300, 40)])
    known = CountForecaster().fit(labels)
    unknown = CountForecaster().fit(labels.unlabelled())
    true_mean = series.counts[:, DISCONNECTED].mean()
    assert abs(known.rhythm_.base[DISCONNECTED] - true_mean) < 0.5 < abs(unknown.rhythm_.base[DISCONNECTED] - true_mean)


def test_a_gap_has_no_score_and_its_neighbours_have(series, model):
    gappy = with_counts(series, slice(1500, 1530), slice(None), np.nan)
    scores = model.score(gappy)
    assert np.isnan(scores[1500:1530]).all() and np.isfinite(scores[1530:]).all()
    assert scores[1530:].max() < 6
    assert np.isfinite(model.forecast(gappy).expected[1500:1530]).all()  # what would have come is known all the same
    assert np.isnan(model.forecast(gappy).surprise[1500:1530]).all()


def test_an_announced_maintenance_is_no_surprise_and_teaches_nothing(series, model):
    down = with_counts(series, slice(1500, 1512), slice(None), 0.0)
    announced = labelled(down, 1500, 1512, MAINTENANCE)
    calm = model.score(series)
    assert model.score(announced)[1500:1512].max() < np.quantile(calm[1344:], 0.99) < model.score(down)[1500:1512].max()
    assert (model.forecast(announced).surprise[1500:1512] == 0).all()
    np.testing.assert_allclose(model.forecast(announced).expected[1515], model.forecast(series).expected[1515], rtol=0.05)


@pytest.mark.parametrize(("bucket_s", "weeks"), [(300, 2), (21_600, 6), (86_400, 8)])
def test_buckets_from_minutes_to_days(bucket_s, weeks):
    series = rhythmic_series(weeks, bucket_s=bucket_s, level=300.0 * bucket_s / 3600)
    model = CountForecaster().fit(series)
    wrong = with_counts(series, slice(-3, None), slice(0, 2), 0.0)
    assert model.score(wrong)[-1] > np.nanmax(model.score(series)) + 1
    part = series.take(max(0, len(series) - model.history_buckets - 1), len(series))
    assert model.score(part)[-1] == pytest.approx(model.score(series)[-1], abs=1e-9)


def test_a_log_with_an_event_every_ten_hours():
    series = rhythmic_series(10)
    sparse = replace(series, counts=np.random.default_rng(3).poisson(0.1, series.counts.shape).astype(float))
    model = CountForecaster().fit(sparse.take(0, 1344))
    forecast = model.forecast(sparse)
    assert (forecast.expected[1344:] < 0.3).all() and (np.abs(forecast.surprise[1344:]) > 3).mean() < 0.005
    busy = with_counts(sparse, slice(1600, 1606), 0, 3.0)
    assert model.score(busy)[1605] > np.nanmax(model.score(sparse)[1344:])


def test_a_week_is_enough_and_less_is_refused_with_what_to_do(series):
    model = CountForecaster().fit(series.take(0, 168))
    assert np.isfinite(model.score(series.take(0, 400))[200:]).all()
    with pytest.raises(ModelError, match=r"6\.9 days .*at least 7 .*stormpetrel ingest events"):
        CountForecaster().fit(series.take(0, 166))


def test_a_series_of_gaps_is_refused(series):
    with pytest.raises(ModelError, match=r"0\.0 days"):
        CountForecaster().fit(replace(series, counts=np.full_like(series.counts, np.nan)))


def test_a_constant_series_has_sane_scores(series):
    constant = replace(series, counts=np.full_like(series.counts, 7.0))
    model = CountForecaster().fit(constant)
    assert np.isfinite(model.score(constant)[24:]).all()
    np.testing.assert_allclose(model.forecast(constant).expected[200:], 7.0, rtol=0.02)
    assert model.score(with_counts(constant, -1, 0, 70.0))[-1] > model.score(constant)[-1] + 2


def test_one_event_of_a_kind_never_seen_is_no_alarm_but_many_are(series):
    never = with_counts(series, slice(None), DISCONNECTED, 0.0)
    model = CountForecaster().fit(never)
    highest = np.nanmax(model.score(never)[168:])
    assert model.score(with_counts(never, -1, DISCONNECTED, 1.0))[-1] < highest + 0.5
    assert model.score(with_counts(never, slice(-3, None), DISCONNECTED, 30.0))[-1] > highest


def test_columns_are_found_by_their_names(series, model):
    turned = series.of_kinds(("JobDisconnected", "Unknown", "Execute", "Submit"))
    np.testing.assert_array_equal(model.score(turned), model.score(series))
    assert model.forecast(turned).kinds == series.kinds


def test_another_bucket_is_refused(model):
    with pytest.raises(ModelError, match="trained on buckets of 3600 s; these are of 86400 s"):
        model.score(rhythmic_series(8, bucket_s=86_400))


def test_a_model_that_has_learnt_nothing_says_so(series):
    with pytest.raises(ModelError, match="learnt nothing"):
        CountForecaster().score(series)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_too_little_before_has_no_score(series, model, rows):
    assert np.isnan(model.score(series.take(0, rows))).all() and model.score(series.take(0, rows)).shape == (rows,)
    assert np.isnan(model.forecast(series.take(0, rows)).expected).all()
