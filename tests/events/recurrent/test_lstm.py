"""The supervised network: it finds what it was shown, learns nothing from gaps and maintenance, and is saved without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.events.recurrent.lstm import Balance, LstmSettings, SupervisedLstm, class_weights, outages_in, parted_by_time
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL, UNLABELLED
from tests.events.rhythmic import broken, rhythmic_series

TINY = LstmSettings(sequence=8, hidden=6, max_epochs=4, patience=4, learning_rate=0.01)
CALM = rhythmic_series(10)
OUTAGES = [(200 + 150 * place, 207 + 150 * place) for place in range(9)]
SERIES = broken(CALM, *OUTAGES)
TRAIN, LATER = SERIES.take(0, 1250), SERIES.take(1000, len(SERIES))


@cache
def fitted(balance: str = Balance.WEIGHTS.value) -> SupervisedLstm:
    return SupervisedLstm(replace(TINY, balance=balance)).fit(TRAIN)


@pytest.mark.parametrize("balance", list(Balance))
@pytest.mark.needs("torch")
def test_it_tells_outages_it_has_not_seen_from_normal_hours(balance):
    scores = fitted(balance.value).score(LATER.unlabelled())
    known = np.isfinite(scores)
    assert roc_auc(LATER.label[known] == ANOMALY, scores[known]) > 0.95


@pytest.mark.needs("torch")
def test_a_score_sees_nothing_that_comes_later_and_is_the_same_with_its_history_alone():
    model = fitted()
    whole = model.score(SERIES)
    reach = model.history_buckets
    assert model.score(SERIES.take(0, 1300))[1299] == pytest.approx(whole[1299], abs=1e-9)
    assert model.score(SERIES.take(1299 - reach, 1300))[-1] == pytest.approx(whole[1299], abs=1e-9)
    last = model.score(SERIES.take(1299 - reach, 1300), since=reach)
    assert last[-1] == pytest.approx(whole[1299], abs=1e-9) and np.isnan(last[:-1]).all()


@pytest.mark.needs("torch")
def test_gaps_have_no_score_and_do_not_spoil_those_after_them():
    counts = SERIES.counts.copy()
    counts[1200:1205] = np.nan
    scores = fitted().score(replace(SERIES, counts=counts))
    assert np.isnan(scores[1200:1205]).all() and np.isfinite(scores[1205:]).all() and np.isnan(scores[:7]).all()


@pytest.mark.needs("torch")
def test_what_maintenance_and_unlabelled_hours_hold_teaches_nothing():
    label = TRAIN.label.copy()
    label[300:306], label[460:480] = MAINTENANCE, UNLABELLED
    one = TRAIN.with_labels(label)
    counts = one.counts.copy()
    counts[300:306] = 7.0
    kept = SupervisedLstm(replace(TINY, max_epochs=1)).fit(one)
    other = SupervisedLstm(replace(TINY, max_epochs=1)).fit(replace(one, counts=counts))
    assert all(np.array_equal(kept.weights_[name], other.weights_[name]) for name in kept.weights_)


@pytest.mark.needs("torch")
def test_saved_and_loaded_it_says_the_same(tmp_path):
    fitted().save(tmp_path / "model")
    loaded = SupervisedLstm.load(tmp_path / "model")
    assert np.array_equal(loaded.score(LATER), fitted().score(LATER), equal_nan=True)
    assert loaded.settings == fitted().settings and loaded.history_ == fitted().history_
    with pytest.raises(ModelFormatError, match="exists already"):
        fitted().save(tmp_path / "model")


@pytest.mark.needs("torch")
def test_scoring_needs_no_torch(tmp_path):
    fitted().save(tmp_path / "model")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from stormpetrel.events.recurrent.lstm import SupervisedLstm\n"
        "from tests.events.rhythmic import rhythmic_series\n"
        f"scores = SupervisedLstm.load(Path({str(tmp_path / 'model')!r})).score(rhythmic_series(2))\n"
        "print(float(scores[-1]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(fitted().score(rhythmic_series(2))[-1], abs=1e-9)


@pytest.mark.needs("torch")
def test_a_damaged_folder_is_refused(tmp_path):
    fitted().save(tmp_path / "model")
    record = tmp_path / "model" / "model.json"
    for change in ({"settings": {}}, {"scaling": None}, {"kind": "jobs"}):
        record.write_text(json.dumps(json.loads(record.read_text()) | change))
        with pytest.raises(ModelFormatError):
            SupervisedLstm.load(tmp_path / "model")


def test_without_a_labelled_outage_it_says_what_to_do():
    with pytest.raises(ModelError, match=r"No outage is labelled.*events label"):
        SupervisedLstm(TINY).fit(CALM)
    with pytest.raises(ModelError, match="No outage is labelled"):
        SupervisedLstm(TINY).fit(SERIES.take(0, 0))
    with pytest.raises(ModelError, match="No normal bucket"):
        SupervisedLstm(TINY).fit(SERIES.with_labels(np.where(SERIES.label == ANOMALY, ANOMALY, UNLABELLED)))
    with pytest.raises(ModelError, match="not been trained"):
        SupervisedLstm(TINY).score(SERIES)


@pytest.mark.parametrize("outages", [1, 2])
@pytest.mark.needs("torch")
def test_it_learns_from_a_single_outage_too(outages):
    few = broken(CALM, *OUTAGES[:outages]).take(0, 700)
    model = SupervisedLstm(replace(TINY, max_epochs=2)).fit(few)
    assert np.isfinite(model.score(few)[TINY.sequence :]).all()


def test_outages_are_on_one_side_of_the_cut_and_too_few_are_all_learnt():
    taught = np.ones(len(TRAIN), dtype=bool)
    learnt, judged = parted_by_time(TRAIN, taught)
    assert outages_in(TRAIN.label, learnt) + outages_in(TRAIN.label, judged) == outages_in(TRAIN.label, taught) == 7
    assert np.flatnonzero(learnt)[-1] < np.flatnonzero(judged)[0]
    few, none = parted_by_time(TRAIN.take(0, 400), taught[:400])
    assert few.all() and not none.any()


def test_both_classes_weigh_the_same():
    label = np.array([NORMAL] * 9 + [ANOMALY], dtype=np.int8)
    normal, bad = class_weights(label)
    assert 9 * normal == pytest.approx(bad)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.needs("torch")
def test_few_buckets_have_no_score(rows):
    assert np.isnan(fitted().score(SERIES.take(0, rows))).tolist() == [True] * rows


@pytest.mark.parametrize(
    "change", [{"sequence": 1}, {"hidden": 0}, {"dropout": 1.0}, {"learning_rate": 0.0}, {"batch": 2.5}, {"balance": "luck"}]
)
def test_settings_that_make_no_sense_are_refused(change):
    with pytest.raises(ModelError, match=next(iter(change))):
        LstmSettings(**change)
    with pytest.raises(ModelError):
        LstmSettings.of_record(LstmSettings().record() | change)
