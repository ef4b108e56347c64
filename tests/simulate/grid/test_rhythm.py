from datetime import UTC, datetime

import numpy as np
import pytest

from stormpetrel.simulate.grid.rhythm import DRAIN_HOURS, REFILL_HOURS, groups_of, maintenances, mistakes, submissions
from stormpetrel.simulate.grid.spec import GridSpec, wander


@pytest.mark.parametrize("start", [datetime(2025, 1, 6, tzinfo=UTC), datetime(2025, 3, 1, 13, tzinfo=UTC)])
def test_maintenance_is_on_a_working_day_and_lies_within_the_span(start):
    found = maintenances(GridSpec(start=start, hours=6000))
    assert 4 <= len(found) <= 9
    for one in found:
        assert 0 <= one.first == one.down - DRAIN_HOURS and one.last == one.up + REFILL_HOURS <= 6000
        moment = datetime.fromtimestamp(start.timestamp() + 3600 * one.down, UTC)
        assert moment.weekday() in (1, 2, 3) and 6 <= moment.hour < 10


def test_a_grid_without_maintenance_has_none():
    assert maintenances(GridSpec(maintenance_weeks=0)) == []


def test_groups_ask_for_the_load_that_was_ordered():
    spec = GridSpec(maintenance_weeks=0)
    asked = []
    for seed in range(6):
        one = GridSpec(seed=seed, maintenance_weeks=0)
        groups = groups_of(one)
        slot_hours = submissions(one, groups, []) @ (groups.run_mix @ [0.4, 3.0, 11.0])
        asked.append(slot_hours.mean() / one.slots)
    assert np.mean(asked) == pytest.approx(spec.load, rel=0.08)


def test_groups_differ_and_some_grow_while_others_decline():
    growth = np.concatenate([groups_of(GridSpec(seed=seed)).growth for seed in range(5)])
    assert growth.min() < -0.1 and growth.max() > 0.3
    weight = groups_of(GridSpec()).weight
    assert weight.sum() == pytest.approx(1) and weight.max() > 3 * weight.min()


def test_a_mistake_is_made_by_one_group_and_none_without_a_rate():
    made = mistakes(GridSpec(hours=168 * 20), [])
    assert (np.count_nonzero(made.held, axis=1) <= 2).all() and np.count_nonzero(made.held) > 20
    assert made.removed.sum() > 0 and made.terminated.sum() > 0
    assert not mistakes(GridSpec(mistakes_per_week=0), []).held.any()


def test_what_wanders_has_spread_one_and_forgets():
    made = wander(np.random.default_rng(0), (20_000, 2), 10.0)
    assert made.std() == pytest.approx(1, abs=0.1)
    for lag in (1, 10):
        assert np.mean(made[lag:] * made[:-lag]) == pytest.approx(np.exp(-lag / 10), abs=0.1)
