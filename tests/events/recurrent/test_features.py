"""What the recurrent networks see: relative to level and rhythm, gaps marked, nothing of what comes later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stormpetrel.errors import ModelError
from stormpetrel.events.recurrent.features import Scaling, level_buckets, slow_level
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE
from tests.events.rhythmic import broken, rhythmic_series

SERIES = rhythmic_series(6)


def test_a_row_does_not_see_what_comes_later():
    scaling, changed = Scaling.of(SERIES), SERIES.counts.copy()
    changed[700:] = 99_999
    later = replace(SERIES, counts=changed)
    before, after = (scaling.departures(one, reach=24)[:700] for one in (SERIES, later))
    assert np.array_equal(before, after)


def test_the_slow_level_depends_on_four_weeks_and_no_more():
    whole, reach = slow_level(SERIES), level_buckets(3600)
    short = slow_level(SERIES.take(len(SERIES) - reach - 1, len(SERIES)))
    assert np.allclose(short[-1], whole[-1], rtol=1e-12)
    assert np.isnan(whole[:24]).all() and np.isfinite(whole[24:]).all()


def test_a_storm_hardly_moves_the_slow_level():
    stormy = broken(SERIES, (500, 511))
    assert np.abs(slow_level(stormy)[512] - slow_level(SERIES)[512]).max() < 0.2  # the counts themselves are 14 times as high


def test_rhythm_and_growth_are_taken_out():
    departures = Scaling.of(SERIES).departures(SERIES, reach=24)[200:, 0]  # Submit
    by_hour = departures[: 24 * 30].reshape(-1, 24).mean(axis=0)
    assert np.abs(by_hour).max() < 0.6 and 0.7 < departures.std() < 1.4
    raw = np.log(SERIES.counts[200 : 200 + 24 * 30, 0]).reshape(-1, 24).mean(axis=0)
    assert np.ptp(raw) > 1.0


def test_a_gap_is_filled_with_what_was_last_seen_and_marked():
    counts = SERIES.counts.copy()
    counts[600:640] = np.nan
    holed, scaling = replace(SERIES, counts=counts), Scaling.of(SERIES)
    columns = scaling.departures(holed, reach=24)
    assert (columns[600:640, -1] == 0).all() and columns[599, -1] == 1 and np.isfinite(columns).all()
    assert (columns[600:624, :3] == columns[599, :3]).all()
    assert (columns[624:640, :3] == 0).all()  # too long ago to say anything


def test_maintenance_is_no_level():
    label, counts = SERIES.label.copy(), SERIES.counts.copy()
    label[600:620], counts[600:620] = MAINTENANCE, 0.0
    kept = replace(SERIES, counts=counts, label=label)
    assert np.allclose(slow_level(kept)[620], slow_level(SERIES)[620], atol=0.03)


def test_outages_do_not_widen_the_scaling():
    calm, stormy = Scaling.of(SERIES), Scaling.of(broken(SERIES, (500, 520), (700, 730)))
    assert stormy.change_spread == pytest.approx(calm.change_spread, rel=0.1)


def test_unknown_kinds_and_background_are_left_out_and_missing_ones_are_marked():
    around = np.column_stack([np.arange(len(SERIES), dtype=float), np.full(len(SERIES), np.nan)])
    rich = replace(SERIES, background=around, background_names=("queued", "health"))
    scaling = Scaling.of(rich)
    assert scaling.width == 3 + 2 * 2 + 1
    poor = SERIES.of_kinds(("JobHeld", "Submit"))
    mine = scaling.fitting(poor)
    assert mine.kinds == rich.kinds and mine.background_names == rich.background_names
    assert (mine.counts[:, 1] == 0).all() and np.array_equal(mine.counts[:, 0], SERIES.counts[:, 0])
    columns = scaling.departures(mine, reach=24)
    assert np.isfinite(columns).all() and (columns[:, 5:7] == 0).all()


def test_buckets_of_another_length_are_refused():
    with pytest.raises(ModelError, match="3600 s"):
        Scaling.of(SERIES).fitting(rhythmic_series(1, bucket_s=1800))


def test_too_little_is_refused_in_words():
    with pytest.raises(ModelError, match="too few buckets"):
        Scaling.of(SERIES.take(0, 20))
    with pytest.raises(ModelError, match="too few buckets"):
        Scaling.of(SERIES.with_labels(np.full(len(SERIES), ANOMALY)))


@pytest.mark.parametrize(
    "change",
    [
        {"bucket_s": 0},
        {"kinds": [1, 2, 3]},
        {"change_spread": [1.0, 1.0]},
        {"departure_spread": [1.0, 1.0, 0.0]},
        {"departure_spread": [1.0, 1.0, float("nan")]},
        {"rhythm": [[0.0] * 3]},
        {"more": 1},
    ],
)
def test_a_damaged_record_is_refused(change):
    record = Scaling.of(SERIES).record()
    assert Scaling.of_record(record) == Scaling.of(SERIES)
    with pytest.raises(ValueError):
        Scaling.of_record(record | change)
