"""The recurrent forecaster: calm counts lie in its band, outages do not, labels are not needed, torch only to learn."""

from __future__ import annotations

from tests.parts import need

need("torch")

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import nbinom

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.events.lstm_forecast import SMALLEST_LEVEL, RecurrentForecaster, robust_loss
from stormpetrel.events.recurrent_saving import scale_of_record, scale_record
from stormpetrel.events.recurrent_settings import ForecastSettings
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL
from tests.events.rhythmic import broken, rhythmic_series

TINY = ForecastSettings(sequence=6, hidden=8, inner=8, max_epochs=10, patience=4, learning_rate=0.01)
CALM = rhythmic_series(10)
SERIES = broken(CALM, *[(200 + 150 * place, 205 + 150 * place) for place in range(9)])
TRAIN = SERIES.take(0, 1250).unlabelled()


@cache
def fitted() -> RecurrentForecaster:
    return RecurrentForecaster(TINY).fit(TRAIN)


def test_outages_that_nobody_labelled_stand_out_later_on():
    scores, rows = fitted().score(SERIES.unlabelled()), np.arange(len(SERIES))
    judged = (rows >= 1250) & np.isfinite(scores)
    assert roc_auc(SERIES.label[judged] == ANOMALY, scores[judged]) > 0.97


def test_calm_counts_lie_in_the_band_and_the_mean_follows_rhythm_and_growth():
    forecast = fitted().forecast(CALM)
    known = np.isfinite(forecast.expected).all(axis=1)
    assert known[24:].all() and not known[:24].any()
    rows = np.flatnonzero(known)[-300:]  # later than what was learnt
    inside = (CALM.counts[rows] >= forecast.low[rows]) & (CALM.counts[rows] <= forecast.high[rows])
    assert inside.mean() > 0.95
    off = np.abs(forecast.expected[rows, 0] / CALM.counts[rows, 0] - 1)
    assert np.median(off) < 0.2


def test_a_surprise_has_the_sign_of_what_is_wrong():
    forecast = fitted().forecast(SERIES)
    first = 200 + 150 * 8  # the first hour of an outage: half of the work stops, jobs lose their line
    assert forecast.surprise[first, 0] < -1.5 and forecast.surprise[first, 1] < -1.5 and forecast.surprise[first, 2] > 3


def test_a_score_sees_nothing_that_comes_later_and_is_the_same_with_its_history_alone():
    model = fitted()
    whole, reach = model.score(SERIES), model.history_buckets
    assert model.score(SERIES.take(0, 1300))[1299] == pytest.approx(whole[1299], abs=1e-8)
    context = SERIES.take(1299 - reach, 1300)
    assert model.score(context)[-1] == pytest.approx(whole[1299], abs=1e-8)
    last = model.score(context, since=reach)
    assert last[-1] == pytest.approx(whole[1299], abs=1e-8) and np.isnan(last[:-1]).all()


def test_gaps_have_no_score_and_an_announced_maintenance_is_no_surprise():
    counts, label = CALM.counts.copy(), np.full(len(CALM), NORMAL, dtype=np.int8)
    counts[1400:1410], counts[1500:1506], label[1500:1506] = np.nan, 0.0, MAINTENANCE
    odd = replace(CALM, counts=counts, label=label)
    scores, forecast = fitted().score(odd), fitted().forecast(odd)
    assert np.isnan(scores[1400:1410]).all() and np.isfinite(scores[1410:]).all()
    assert np.isnan(forecast.surprise[1400:1410]).all() and (forecast.surprise[1500:1506] == 0).all()
    unannounced = fitted().score(replace(odd, label=np.full(len(CALM), NORMAL, dtype=np.int8)))
    assert scores[1505] < 2 < unannounced[1505]


def test_saved_and_loaded_it_says_the_same(tmp_path):
    fitted().save(tmp_path / "model")
    loaded = RecurrentForecaster.load(tmp_path / "model")
    assert np.array_equal(loaded.score(SERIES), fitted().score(SERIES), equal_nan=True)
    assert loaded.history_buckets == fitted().history_buckets
    record = tmp_path / "model" / "model.json"
    whole = json.loads(record.read_text())
    record.write_text(json.dumps(whole | {"scale": []}))
    with pytest.raises(ModelFormatError):
        RecurrentForecaster.load(tmp_path / "model")


@pytest.mark.parametrize(
    "change", [{"centre": [0.0]}, {"precision": [[1.0]]}, {"tail": 0.0}, {"hours": -1.0}, {"knots": [float("nan")]}]
)
def test_a_scale_that_does_not_fit_its_kinds_is_refused(change):
    record = scale_record(fitted().scale_)
    assert scale_of_record(record, 3, 3600).memories[0].tail == fitted().scale_.memories[0].tail
    for wrong in ([record[0] | change], "scale", []):
        with pytest.raises(ValueError):
            scale_of_record(wrong, 3, 3600)


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    short = replace(TINY, max_epochs=1)
    one, again = (RecurrentForecaster(short).fit(TRAIN) for _ in range(2))
    other = RecurrentForecaster(short, seed=5).fit(TRAIN)
    assert all(np.array_equal(one.weights_[name], again.weights_[name]) for name in one.weights_)
    assert not np.array_equal(one.weights_["lstm.weight_hh_l0"], other.weights_["lstm.weight_hh_l0"])


def test_a_constant_series_and_a_kind_never_seen_have_sane_scores():
    still = replace(CALM, counts=np.tile([50.0, 0.0, 0.0], (len(CALM), 1))).take(0, 400)
    model = RecurrentForecaster(replace(TINY, max_epochs=2)).fit(still)
    assert np.isfinite(model.score(still)[30:]).all()
    counts = still.counts.copy()
    counts[-1, 2] = 500
    assert model.score(replace(still, counts=counts))[-1] > model.score(still)[-1] + 1


def test_too_little_is_refused_in_words():
    with pytest.raises(ModelError, match="needs 96"):
        RecurrentForecaster(TINY).fit(TRAIN.take(0, 90))
    with pytest.raises(ModelError, match="too few"):
        RecurrentForecaster(TINY).fit(TRAIN.take(0, 0))
    with pytest.raises(ModelError, match="too few"):
        RecurrentForecaster(TINY).fit(replace(TRAIN, counts=np.full(TRAIN.counts.shape, np.nan)))
    with pytest.raises(ModelError, match="not been trained"):
        RecurrentForecaster(TINY).score(SERIES)
    assert fitted().score(SERIES.take(0, 0)).shape == (0,) and np.isnan(fitted().score(SERIES.take(0, 1))).all()


def test_the_loss_is_the_likelihood_of_a_negative_binomial():
    counts = torch.tensor([[3.0, 40.0]], dtype=torch.float64)
    level = torch.log1p(torch.tensor([[5.0, 30.0]], dtype=torch.float64) - SMALLEST_LEVEL)
    raw = torch.tensor([[0.0, 0.0, 0.5, -1.0]], dtype=torch.float64)
    spread = np.log1p(np.exp([0.5, -1.0])) + 1e-3
    r, mean = 1 / spread, np.array([5.0, 30.0])
    expected = -nbinom.logpmf([3, 40], r, r / (r + mean)).sum()
    assert float(robust_loss(raw, counts, level, 0.0)) == pytest.approx(expected, rel=1e-9)


def test_a_count_that_cannot_be_expected_pulls_less_than_without_the_wide_part():
    level = torch.log1p(torch.full((1, 1), 10.0, dtype=torch.float64))
    pulls = []
    for share in (0.0, 0.02):
        raw = torch.tensor([[0.0, -3.0]], dtype=torch.float64, requires_grad=True)
        robust_loss(raw, torch.full((1, 1), 500.0, dtype=torch.float64), level, share).backward()
        pulls.append(abs(float(raw.grad[0, 0])))
    assert pulls[1] < 0.01 * pulls[0]
