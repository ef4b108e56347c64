import numpy as np

from stormpetrel.traces.regions import CALM_SHARE, Regions, fit_region


def cloud(centre, n, *, seed=0, spread=0.1):
    return (np.array(centre) + spread * np.random.default_rng(seed).standard_normal((n, 2))).astype(np.float32)


CALM = cloud((0, 0), 5000)


def test_later_windows_of_a_trouble_apart_from_calm_raise_its_name_and_calm_ones_do_not():
    regions = Regions((fit_region("hung", cloud((3, 3), 40, seed=1), range(40), CALM),))
    inside = regions.names_of(cloud((3, 3), 200, seed=2))
    assert (inside.name == "hung").mean() > 0.9 and np.isfinite(inside.distance[inside.name == "hung"]).all()
    assert (regions.names_of(cloud((0, 0), 2000, seed=3)).name == "").all()
    assert (regions.names_of(cloud((-3, 3), 200, seed=4)).name == "").all()  # as far from calm, and another trouble


def test_a_trouble_among_calm_windows_keeps_to_the_promised_share_and_says_what_it_misses():
    region = fit_region("idle", cloud((0.1, 0), 60, seed=1), range(60), CALM)
    assert region.calm_inside <= CALM_SHARE and region.coverage is not None and region.coverage < 0.5
    fresh = Regions((region,)).names_of(cloud((0, 0), 5000, seed=5)).name
    assert (fresh == "idle").mean() < 5 * CALM_SHARE


def test_a_region_whose_examples_are_calm_windows_themselves_holds_nothing():
    examples = np.repeat(CALM[:1], 3, axis=0)
    region = fit_region("nothing", examples, [1, 2, 3], np.repeat(CALM[:1], 50, axis=0))
    assert region.radius == 0 and (Regions((region,)).names_of(examples).name == "").all()
    assert region.coverage == 0 and region.calm_inside == 0


def test_one_moment_reaches_half_the_way_to_the_calm_windows():
    region = fit_region("once", np.array([[4.0, 0.0]], np.float32), [1], np.zeros((100, 2), np.float32))
    assert region.coverage is None and 1.9 < region.radius < 2.0


def test_of_two_regions_the_one_that_a_window_lies_deeper_in_names_it():
    left, right = (fit_region(name, cloud((x, 5), 40, seed=1), range(40), CALM) for name, x in (("left", 0.0), ("right", 8.0)))
    names = Regions((left, right)).names_of(np.array([[0.0, 5.0], [8.0, 5.0], [4.0, 5.0]], np.float32)).name
    assert names.tolist() == ["left", "right", ""]


def test_without_regions_or_windows_there_is_nothing_inside():
    assert Regions().names_of(CALM[:3]).name.tolist() == ["", "", ""]
    region = fit_region("hung", cloud((3, 3), 4), range(4), np.zeros((0, 2), np.float32))
    assert len(Regions((region,)).names_of(CALM[:0]).name) == 0
