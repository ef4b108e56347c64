import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL
from stormpetrel.records.events import SEED_KINDS
from stormpetrel.records.outages import OutageKind
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS
from stormpetrel.simulate.grid.rhythm import REFILL_HOURS
from stormpetrel.simulate.grid.spec import ALL_KINDS, FAILURE_KINDS, GRID_KINDS


@pytest.fixture(scope="module")
def grid():
    return simulate_grid(GridSpec())


def column(grid, kind):
    return grid.calm.counts[:, grid.spec.kinds.index(kind)]


def test_the_grid_tells_the_kinds_of_htcondor(grid):
    assert tuple(map(str, SEED_KINDS)) == GRID_KINDS == grid.series.kinds
    assert len(grid.series) == 4368 and grid.series.moment(0) == datetime(2025, 1, 6, tzinfo=UTC)


def test_counts_are_whole_and_in_the_thousands(grid):
    counts = grid.series.counts
    assert np.isfinite(counts).all() and counts.min() >= 0 and (counts == np.rint(counts)).all()
    for kind in ("Submit", "Execute", "JobTerminated", "JobImageSize"):
        assert 2000 < column(grid, kind).mean() < 12_000


def test_a_seed_repeats_and_another_differs(grid):
    again = simulate_grid(GridSpec())
    assert np.array_equal(again.series.counts, grid.series.counts) and again.outages == grid.outages
    assert np.array_equal(again.series.background, grid.series.background)
    other = simulate_grid(GridSpec(hours=300, seed=1))
    assert not np.array_equal(other.series.counts, simulate_grid(GridSpec(hours=300, seed=2)).series.counts)


def test_every_job_that_starts_was_handed_in_and_ends_follow_starts(grid):
    submit, execute, ended = (column(grid, kind) for kind in ("Submit", "Execute", "JobTerminated"))
    assert execute.sum() < 1.1 * submit.sum()  # the tenth: those that start again
    assert 0.85 * execute.sum() < ended.sum() < execute.sum()
    smooth = [np.convolve(one - one.mean(), np.ones(3) / 3, "same") for one in (submit, ended)]
    lags = [np.dot(smooth[0][: len(submit) - lag], smooth[1][lag:]) for lag in range(24)]
    assert int(np.argmax(lags)) >= 1  # the ends come later than the submissions


def test_slots_are_bounded_and_the_queue_takes_what_does_not_fit(grid):
    queued, running, utilisation = grid.calm.background.T
    assert running.max() <= grid.spec.slots and queued.min() >= 0
    assert np.allclose(utilisation, running / grid.spec.slots)
    full, empty = queued > 20_000, queued < 500
    assert column(grid, "Submit")[full].std() > 2 * column(grid, "Execute")[full].std()  # saturated: starts do not follow
    assert running[full].mean() > 1.1 * running[empty].mean()


def test_submissions_scatter_more_than_chance_and_carry_over_hours(grid):
    submit = column(grid, "Submit")
    assert submit.var() / submit.mean() > 100
    assert np.corrcoef(submit[1:], submit[:-1])[0, 1] > 0.5


def test_people_work_by_day_and_rest_at_weekends(grid):
    hour = grid.calm.bucket_of_week()
    submit = column(grid, "Submit")
    noon, night = (submit[(hour < 120) & (hour % 24 == at)].mean() for at in (14, 3))
    assert noon > 1.3 * night
    assert submit[hour < 120].mean() > 1.1 * submit[hour >= 120].mean()


def test_people_work_by_the_clock_on_their_own_wall():
    spec = {"hours": 1680, "outages_per_week": 0, "seed": 3}
    here, there = (simulate_grid(GridSpec(zone=zone, **spec)).calm for zone in ("UTC", "Asia/Tokyo"))
    hour = here.bucket_of_week() % 24
    peak = [int(np.argmax([one.counts[hour == at, 0].mean() for at in range(24)])) for one in (here, there)]
    assert 6 <= (peak[0] - peak[1]) % 24 <= 12  # nine hours, as far as a few weeks tell


def test_mistakes_of_users_are_bursts_and_no_outages(grid):
    held = column(grid, "JobHeld")
    burst = held > 10 * np.median(held)
    assert burst.sum() >= 5
    assert (grid.calm.label[burst] != ANOMALY).all()
    without = simulate_grid(GridSpec(mistakes_per_week=0)).calm
    assert without.counts[without.label == NORMAL, grid.spec.kinds.index("JobHeld")].max() < held.max() / 4


def test_nothing_starts_while_a_maintenance_drains_and_the_slots_fill_afterwards(grid):
    planned = [one for one in grid.outages if one.kind is OutageKind.MAINTENANCE]
    assert 3 <= len(planned) <= 7
    for one in planned:
        first, last = (round((moment - grid.spec.start).total_seconds() / 3600) for moment in (one.start, one.end))
        assert (grid.series.label[first:last] == MAINTENANCE).all()
        running = grid.series.background[first:last, 1]
        assert running.min() == 0 and running[-1] > 0.3 * grid.spec.slots
        assert not column(grid, "Execute")[first : last - REFILL_HOURS].any()
        assert column(grid, "JobEvicted")[first:last].max() > 500  # what still ran was thrown out


def test_outages_are_labelled_and_change_the_counts_of_their_hours_only(grid):
    touched = np.zeros(len(grid.series), dtype=bool)
    for one in grid.plan:
        assert (grid.series.label[one.first : one.last] == ANOMALY).all()
        touched[one.first : one.last + AFTERMATH_HOURS] = True
    changed = (grid.series.counts != grid.calm.counts).any(axis=1)
    assert changed[grid.series.label == ANOMALY].mean() > 0.97 and not changed[~touched].any()
    assert (grid.series.label == ANOMALY).sum() == sum(one.hours for one in grid.plan)
    listed = [one for one in grid.outages if one.kind is OutageKind.OUTAGE]
    assert [(one.outage_type, one.severity) for one in listed] == [(one.outage_type, one.severity) for one in grid.plan]


def test_failures_are_told_to_those_who_ask_and_change_nothing_else(grid):
    asked = simulate_grid(GridSpec(kinds=ALL_KINDS))
    assert np.array_equal(asked.calm.counts[:, : len(GRID_KINDS)], grid.calm.counts)
    failed, fast = (column(asked, kind) for kind in FAILURE_KINDS)
    assert (fast <= failed).all() and (failed <= column(asked, "JobTerminated")).all() and fast.mean() > 1


def test_the_simulator_needs_nothing_but_numpy():
    code = (
        "import sys\nfrom stormpetrel.simulate.grid import grid as g\n"
        "g.simulate_grid(g.GridSpec(hours=200)).places(0, 2)\nprint(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"polars", "pydantic", "typer", "torch", "scipy", "sklearn", "numba"} & set(loaded)


@pytest.mark.parametrize("hours", [1, 30, 169])
def test_any_span_can_be_simulated(hours):
    made = simulate_grid(GridSpec(hours=hours, outages_per_week=0.3, slots=50, groups=1, hosts=1, sites=1, nodes=1))
    assert len(made.series) == hours
    assert made.places(0, hours)["node"][1].shape == (hours, 13, 1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"hours": 0}, "at least one of: hours"),
        ({"nodes": 3}, "12 sites need"),
        ({"seed": -1}, "seed"),
        ({"start": datetime(2025, 1, 6)}, "time zone"),
        ({"kinds": ("Submit", "Nonsense")}, "Nonsense"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(wrong, words):
    with pytest.raises(UsageError, match=words):
        GridSpec(**wrong)
