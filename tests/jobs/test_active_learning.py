import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.jobs.active_learning import active_learning, informativeness, region_density


def rows(n, seed):
    """Jobs that fail where the sum of two of three columns is high: a slanted line to be learned."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return x, x[:, 0] + x[:, 1] > 1.5


def tree():
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(min_samples_leaf=5, random_state=0)


def learned(start=60, top_n=60, rounds=6, seed=0, make_model=tree):
    return active_learning(
        *rows(3000, 1), *rows(1500, 2), start=start, top_n=top_n, rounds=rounds, make_model=make_model, seed=seed
    )


def test_each_round_adds_the_same_number_of_rows_and_the_best_round_is_kept():
    model, history = learned()
    assert history["rows"].to_list() == [60 + 60 * k for k in range(7)]
    best = history.filter("best")
    assert best.height == 1 and best["f1"].item() == history["f1"].max()
    x, y = rows(1500, 2)
    said = model.predict_proba(x)[:, 1] >= 0.5
    assert (said & y).sum() / y.sum() == pytest.approx(best["recall"].item())


def test_more_rounds_teach_and_seek_out_the_rare_class():
    _, history = learned()
    assert history["f1"].max() > history["f1"][0] + 0.03
    share = history["failed"] / history["rows"]
    assert share[-1] > 1.3 * share[0]  # undecided rows lie at the border, where failures are not rare


def test_a_seed_repeats():
    assert learned(seed=4)[1].equals(learned(seed=4)[1])
    assert not learned(seed=4)[1].equals(learned(seed=5)[1])


def test_a_pool_that_is_used_up_ends_the_rounds():
    _, history = learned(start=2000, top_n=900, rounds=9)
    assert history["rows"].to_list() == [2000, 2900, 3000]


def test_the_start_has_both_classes_however_small_it_is():
    _, history = learned(start=2, rounds=0)
    assert history.select("rows", "failed").row(0) == (2, 1)


def test_a_pool_without_failures_is_refused_with_advice():
    x, y = rows(50, 1)
    with pytest.raises(UsageError, match="Count other states"):
        active_learning(x, np.zeros_like(y), x, y, start=5, top_n=5, rounds=1, make_model=tree, seed=0)


def test_undecided_rows_in_populated_regions_are_the_most_informative():
    worth = informativeness(np.array([0.5, 0.5, 0.9, 1.0]), np.array([1.0, 0.5, 1.0, 1.0]))
    assert worth.tolist() == pytest.approx([1.0, 0.5, 0.2, 0.0])


def test_a_crowd_is_denser_than_an_outlier_and_missing_values_do_not_matter():
    x, _ = rows(500, 3)
    x[0] = 40.0
    x[1, 2] = np.nan
    density = region_density(x, seed=0)
    assert density.argmin() == 0
    assert np.isfinite(density).all() and (density > 0).all() and (density <= 1).all()
