"""Ranks: a column there and back, with its ties."""

import numpy as np
import pytest

from stormpetrel.synth.rows.gaussian_copula import Marginal, from_normal, learn_marginals, to_normal
from stormpetrel.synth.rows.row_table import Table


@pytest.mark.parametrize("distinct", [5, 100_000])
def test_every_value_comes_back(distinct):
    rng = np.random.default_rng(0)
    column = np.round(rng.exponential(1e6, 20_000)) % distinct
    marginal = Marginal.learn(column)
    back = marginal.from_uniform(marginal.to_uniform(column, rng))
    assert np.array_equal(np.round(back), column) if distinct == 5 else np.abs(back - column).max() < 1


def test_a_third_of_one_core_jobs_stays_a_third():
    rng = np.random.default_rng(0)
    cores = np.where(rng.random(10_000) < 1 / 3, 1.0, np.round(rng.lognormal(9, 2, 10_000)) + 2)  # many values: quantiles
    made = Marginal.learn(cores).from_uniform(rng.random(10_000))
    assert len(np.unique(cores)) > 2000 and np.mean(made == 1) == pytest.approx(1 / 3, abs=0.02)


def test_ties_spread_over_their_stretch_so_that_scores_are_normal():
    rng = np.random.default_rng(0)
    table = Table({"cores": rng.choice([1.0, 2.0, 64.0], 20_000)}, {}, {})
    marginals = learn_marginals(table)
    scores = to_normal(table, marginals, rng)
    assert np.std(scores.numbers["cores"]) == pytest.approx(1, abs=0.03)
    assert np.array_equal(from_normal(scores, marginals).numbers["cores"], table.numbers["cores"])


def test_a_value_beside_those_seen_gets_the_rank_of_its_neighbours():
    marginal = Marginal.learn(np.arange(5000.0))
    assert marginal.to_uniform(np.array([-5.0, 2499.75, 9e9]), np.random.default_rng(0)) == pytest.approx([0, 0.5, 1], abs=1e-3)


def test_a_record_that_does_not_rise_is_refused():
    with pytest.raises(ValueError, match="rise"):
        Marginal.of_record({"values": [2.0, 1.0], "cumulative": None})
