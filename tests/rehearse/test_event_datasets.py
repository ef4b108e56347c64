"""Data sets to judge the alarm of the grid by: in the order of time, and honest about what each model may know."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL, UNLABELLED
from stormpetrel.rehearse.event_study import injected_dataset, labelled_dataset, simulated_dataset
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS, OUTAGES
from tests.events.rhythmic import broken, rhythmic_series

OTHERS = "tests.rehearse.outages_of_others"


@pytest.fixture(scope="module")
def simulated():
    return simulated_dataset(7, hours=1680)


@pytest.fixture(scope="module")
def recorded():
    return rhythmic_series(20, seed=3)


def test_the_parts_of_a_simulated_grid_follow_each_other(simulated):
    whole = simulated.whole()
    assert len(whole) == 1680
    shares = [len(part) / 1680 for part in (simulated.train, simulated.calm, simulated.test)]
    assert shares == pytest.approx([0.50, 0.15, 0.35], abs=0.02)


def test_outages_of_the_test_part_are_its_labelled_hours(simulated):
    inside = np.zeros(len(simulated.test), dtype=bool)
    for one in simulated.outages:
        inside[one.first : one.last + 1] = True
        assert one.outage_type in OUTAGES and one.severity in ("mild", "moderate", "severe")
    np.testing.assert_array_equal(inside, simulated.test.label == ANOMALY)
    assert simulated.outages


def test_models_without_labels_see_the_same_counts_and_no_label(simulated):
    np.testing.assert_array_equal(simulated.train.counts, simulated.train_unlabelled.counts)
    assert (simulated.train.label == ANOMALY).any()
    assert set(np.unique(simulated.train_unlabelled.label)) <= {UNLABELLED, MAINTENANCE}
    assert not (simulated.whole().label == ANOMALY).any()


def test_the_same_seed_gives_the_same_data_set_and_another_seed_another():
    one, same, other = (simulated_dataset(seed, hours=1400) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.test.counts, same.test.counts)
    assert one.outages == same.outages != other.outages


def test_recorded_counts_stay_as_they_are_before_the_later_half(recorded):
    found = injected_dataset("log", recorded, seed=0)
    half = len(recorded) // 2
    np.testing.assert_array_equal(found.train_unlabelled.counts, recorded.counts[: len(found.train)])
    np.testing.assert_array_equal(found.calm.counts, recorded.counts[len(found.train) : half])
    assert len(found.test) == len(recorded) - half
    assert len(found.calm) == pytest.approx(0.3 * half, abs=1)


def test_outages_are_injected_and_nothing_else_is_changed(recorded):
    found = injected_dataset("log", recorded, seed=0)
    calm = recorded.counts[len(recorded) // 2 :]
    touched = np.zeros(len(found.test), dtype=bool)
    for one in found.outages:
        touched[one.first : one.last + 1 + AFTERMATH_HOURS] = True
        assert (found.test.label[one.first : one.last + 1] == ANOMALY).all()
    np.testing.assert_array_equal(found.test.counts[~touched], calm[~touched])
    assert (found.test.counts[touched] != calm[touched]).any()
    assert (found.test.label == ANOMALY).sum() == sum(one.last - one.first + 1 for one in found.outages)


def test_models_that_learn_from_labels_get_other_outages_than_those_of_the_test(recorded):
    found = injected_dataset("log", recorded, seed=0)
    assert (found.train.label == ANOMALY).any() and set(np.unique(found.train.label)) == {NORMAL, ANOMALY}
    assert not (found.train_unlabelled.label == ANOMALY).any() and not (found.calm.label == ANOMALY).any()
    assert (found.train.counts != found.train_unlabelled.counts).any()
    assert injected_dataset("log", recorded, seed=1).outages != found.outages


def test_no_outage_is_injected_into_a_gap(recorded):
    torn = rhythmic_series(20, seed=3)
    torn.counts[2000:2300] = np.nan
    found = injected_dataset("log", torn, seed=0)
    gap = found.test.is_gap
    assert gap.sum() == 300 and not (found.test.label[gap] == ANOMALY).any()


def test_labelled_outages_are_taken_as_they_are():
    series = broken(rhythmic_series(20), (500, 510), (1650, 1690), (3000, 3010))  # 1680 is where the training part would end
    found = labelled_dataset("counts", series.with_labels(np.where(series.label == NORMAL, UNLABELLED, series.label)), seed=4)
    assert len(found.train) == 1691 + AFTERMATH_HOURS and (found.train.label == ANOMALY).sum() == 52
    assert [(one.outage_type, one.severity) for one in found.outages] == [("outage", "recorded")]
    assert (found.test.label[found.outages[0].first : found.outages[0].last + 1] == ANOMALY).all()


def test_without_a_labelled_outage_in_the_test_part_nothing_can_be_judged():
    with pytest.raises(UsageError, match="No labelled outage of counts lies in the last 35 %"):
        labelled_dataset("counts", broken(rhythmic_series(20), (500, 510)), seed=0)


@pytest.mark.parametrize(
    "make", [lambda: simulated_dataset(0, hours=1000), lambda: injected_dataset("log", rhythmic_series(5), 0)]
)
def test_too_short_a_series_is_refused_with_what_is_needed(make):
    with pytest.raises(UsageError, match=r"too few to judge models by\. Use a series of 8 weeks"):
        make()


def test_outages_of_others_are_injected_too(recorded):
    own = f"{OTHERS}:cooling_failure"
    for found in (injected_dataset("log", recorded, 0, plug_ins=(own,)), simulated_dataset(0, hours=2400, plug_ins=(own,))):
        ours = [one for one in found.outages if one.outage_type == own]
        assert ours and all((found.test.counts[one.first : one.last + 1] == 0).all() for one in ours)


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_module_x:f", "cannot be loaded"), (f"{OTHERS}:NOT_CALLABLE", "no function"), ("os.system", "MODULE:FUNCTION")],
)
def test_a_plug_in_that_is_none_is_refused(recorded, name, said):
    with pytest.raises(UsageError, match=said):
        injected_dataset("log", recorded, 0, plug_ins=(name,))


def test_an_outage_that_returns_nonsense_is_refused(recorded):
    with pytest.raises(UsageError, match="of shape"):
        injected_dataset("log", recorded, 0, plug_ins=(f"{OTHERS}:of_another_shape",))
