import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.records.events import PLACES
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.grid.outages import PlannedOutage
from stormpetrel.simulate.grid.places import focus_of
from stormpetrel.simulate.grid.spec import ALL_KINDS

NOWHERE = ("Submit", "JobRelease")


@pytest.fixture(scope="module")
def grid():
    return simulate_grid(GridSpec(hours=2016, seed=4, kinds=ALL_KINDS))


def worst(grid, outage_type, kind):
    """The severest outage of a type that shows in a kind, and where its hours' change lies: place -> share of its first value."""
    plan = [one for one in grid.plan if one.outage_type == outage_type and one.severity != "mild"]
    assert plan
    one = plan[-1]
    placed = grid.places(one.first, one.last)
    column = ALL_KINDS.index(kind)
    return {place: counts[:, column].sum(axis=0) for place, (_, counts) in placed.items()}


def test_the_counts_of_a_place_sum_to_the_whole(grid):
    placed = grid.places(40, 100)
    assert set(placed) == set(PLACES)
    whole = grid.series.counts[40:100]
    known = [place for place, kind in enumerate(ALL_KINDS) if kind not in NOWHERE]
    for place, (values, counts) in placed.items():
        assert counts.shape == (60, len(ALL_KINDS), len(values)) and counts.min() >= 0 and len(set(values)) == len(values)
        assert np.array_equal(counts.sum(axis=2)[:, known], whole[:, known])
        if place in ("submit_host", "group"):
            assert np.array_equal(counts.sum(axis=2), whole)
        else:
            assert not counts[:, [ALL_KINDS.index(kind) for kind in NOWHERE]].any()


def test_a_site_has_what_its_nodes_have(grid):
    placed = grid.places(10, 20)
    (sites, by_site), (nodes, by_node) = placed["site"], placed["node"]
    for number, site in enumerate(sites):
        own = [place for place, node in enumerate(nodes) if node.endswith("." + site)]
        assert own and np.array_equal(by_node[:, :, own].sum(axis=2), by_site[:, :, number])


def test_an_hour_lies_the_same_whatever_is_asked_beside_it(grid):
    alone, among = grid.places(50, 51), grid.places(20, 90)
    for place, (_, counts) in alone.items():
        assert np.array_equal(counts[0], among[place][1][30])


def test_groups_are_those_that_the_jobs_came_from(grid):
    one = next(hour for hour in range(100, 2000) if (grid.series.counts[hour] == grid.calm.counts[hour]).all())
    assert np.array_equal(grid.places(one, one + 1)["group"][1][0], grid.by_group[one])


def test_a_storm_sits_on_one_submit_host(grid):
    hosts = worst(grid, "disconnect_storm", "JobDisconnected")["submit_host"]
    assert hosts.max() > 0.75 * hosts.sum()


def test_a_collapse_sits_on_one_site(grid):
    lost = worst(grid, "node_collapse", "JobReconnectFailed")
    assert lost["site"].max() > 0.75 * lost["site"].sum()
    assert lost["node"].max() < 0.5 * lost["node"].sum()


def test_a_black_hole_is_one_node(grid):
    nodes = worst(grid, "black_hole", "JobFailedFast")["node"]
    assert nodes.max() > 0.75 * nodes.sum()
    usual = grid.places(0, 24)["node"][1][:, ALL_KINDS.index("Execute")].sum(axis=0)
    assert usual.max() < 0.05 * usual.sum()


def test_an_unresponsive_host_misses_its_submissions():
    grid = simulate_grid(GridSpec(hours=1000, seed=1, outage_types=("submit_unresponsive",), hosts=2))
    missing = []
    for one in (planned for planned in grid.plan if planned.severity == "moderate" and planned.hours > 2):
        counts = grid.places(one.first - 24, one.last)["submit_host"][1][:, 0]  # (hours, hosts)
        before, during = counts[:24].mean(axis=0), counts[25:].mean(axis=0)
        missing.append((during / before).max() - (during / before).min())
    assert missing and max(missing) > 0.3


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (5, 5), (2000, 2017)])
def test_hours_that_are_not_there_are_refused(grid, first, last):
    with pytest.raises(UsageError, match="are not among"):
        grid.places(first, last)


def test_an_outage_says_where_it_sits(grid):
    one = next(planned for planned in grid.plan if planned.outage_type == "disconnect_storm" and planned.severity != "mild")
    place, value = focus_of(grid.spec, one)
    names, counts = grid.places(one.first, one.last)[place]
    assert place == "submit_host" and names[counts[:, ALL_KINDS.index("JobDisconnected")].sum(axis=0).argmax()] == value
    collapse = next(planned for planned in grid.plan if planned.outage_type == "node_collapse" and planned.severity != "mild")
    place, value = focus_of(grid.spec, collapse)
    names, counts = grid.places(collapse.first, collapse.last)[place]
    assert place == "site" and names[counts[:, ALL_KINDS.index("JobReconnectFailed")].sum(axis=0).argmax()] == value
    assert focus_of(grid.spec, PlannedOutage(0, 1, "mine:x", "mild", 0)) == ("", "")
