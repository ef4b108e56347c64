"""The odd–even protocol: what is learnt from, what is judged, and the figures over seeds."""

import json

import numpy as np
import polars as pl
import pytest

from stormpetrel.engine import Engine, no_progress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.synth.choose import GeneratorMaker
from stormpetrel.synth.score.scorecard import errors, evaluate_odd_even, odd_even_split
from tests.synth.made_workloads import made_workload, shuffled, workload_at


class Repeater:
    """A stand-in: gives back the jobs it was shown, in their order or in none."""

    def __init__(self, seed, *, keep_order):
        self.seed, self.keep_order, self.seen, self.wanted = seed, keep_order, None, None

    def fit(self, workload, *, progress=no_progress):
        progress(0.5, "learning")
        self.seen = workload
        return self

    def batches(self, wanted):
        self.wanted = wanted
        jobs = (self.seen if self.keep_order else shuffled(self.seen, self.seed)).jobs
        copies = -(-wanted.jobs // jobs.height)
        weeks = 60
        frames = [jobs.with_columns(pl.col("submit_time") + pl.duration(weeks=weeks * k)) for k in range(copies)]
        yield pl.concat(frames).head(wanted.jobs)


@pytest.fixture(scope="module")
def run():
    jobs, made, told = made_workload(900, weeks=10), [], []

    def make(seed):
        made.append(Repeater(seed, keep_order=False))
        return made[-1]

    result = evaluate_odd_even(jobs, make, (3, 4), lambda share, words: told.append((share, words)))
    return jobs, made, told, result


def test_generators_learn_the_odd_weeks_and_are_asked_for_as_many_jobs_as_the_even_ones_have(run):
    jobs, made, _, result = run
    odd, even = odd_even_split(jobs)
    assert [generator.seed for generator in made] == [3, 4] == list(result.seeds)
    assert all(generator.seen.jobs.equals(odd.jobs) for generator in made)
    assert all((generator.wanted.jobs, generator.wanted.seed) == (even.height, generator.seed) for generator in made)


def test_every_figure_is_mean_std_and_n_beside_its_floor(run):
    made = json.loads(json.dumps(run[3].as_dict(), allow_nan=False))
    values = [card.c2st_sequence for card in run[3].cards]
    assert made["c2st_sequence"] == pytest.approx({"mean": np.mean(values), "std": np.std(values), "n": 2})
    assert made["columns"]["interval_s"]["ks"]["n"] == 2 and made["lag1"]["synthetic"]["std"] > 0
    assert made["categories"]["user"]["by"] == "rank" and made["tstr"] is None
    assert isinstance(made["floor"]["acf_mae"], float) and made["seeds"] == [3, 4]


def test_ratios_are_errors_over_the_error_of_the_floor(run):
    result = run[3]
    floor, each = errors(result.floor), [errors(card) for card in result.cards]
    found = result.as_dict()["floor_ratio"]
    for name in ("interval_ks", "acf_mae", "dispersion"):
        assert found[name]["mean"] == pytest.approx(np.mean([card[name] for card in each]) / floor[name])
    dispersion = result.cards[0].fidelity.dispersion
    assert each[0]["dispersion"] == pytest.approx(abs(dispersion.synthetic / dispersion.real - 1))


def test_progress_rises_to_the_end_and_names_the_seed(run):
    shares = [share for share, _ in run[2]]
    assert shares == sorted(shares) and shares[-1] == 1
    assert "seed 4: learning" in [words for _, words in run[2]]


def test_a_generator_that_repeats_the_odd_weeks_is_as_good_as_the_floor_and_caught_copying():
    jobs = made_workload(900, weeks=10)
    result = evaluate_odd_even(jobs, lambda seed: Repeater(seed, keep_order=True), (0,))
    assert result.floor_ratio()["interval_ks"]["mean"] == pytest.approx(1, abs=0.3)
    card = result.cards[0]
    assert card.copies.exact > 0.95 and card.copies.membership_auc > 0.8 and card.floor is result.floor


def test_a_floor_of_zero_gives_no_ratio():
    week = np.arange(60) * 9000.0
    same = workload_at(np.concatenate([week + k * 7 * 86400 for k in range(2)]), cores=[1] * 120)
    result = evaluate_odd_even(same, lambda seed: Repeater(seed, keep_order=True), (0,))
    assert result.floor_ratio()["interval_ks"] == {"mean": None, "std": None, "n": 0}
    json.dumps(result.as_dict(), allow_nan=False)


def test_a_short_log_is_one_clear_sentence():
    with pytest.raises(NotEnoughJobsError, match=r"odd weeks have 50 jobs and the even weeks 0; each needs 20.*two weeks"):
        evaluate_odd_even(workload_at(np.arange(50)), lambda seed: Repeater(seed, keep_order=True))
    with pytest.raises(UsageError, match="No seed"):
        evaluate_odd_even(made_workload(300), lambda seed: Repeater(seed, keep_order=True), ())


def test_seeds_in_processes_give_what_one_process_gives():
    jobs, make = made_workload(300, weeks=6), GeneratorMaker("gaussian-copula")
    alone, apart = (evaluate_odd_even(jobs, make, (0, 1), engine=Engine(workers)) for workers in (1, 2))
    assert [card.fidelity.columns["interval_s"].ks for card in apart.cards] == [
        card.fidelity.columns["interval_s"].ks for card in alone.cards
    ]
    assert json.dumps(apart.floor.as_dict()) == json.dumps(alone.floor.as_dict())
