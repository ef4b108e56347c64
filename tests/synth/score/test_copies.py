"""What a synthetic workload gives away: a copy is found, an honest draw is not accused."""

import numpy as np
import polars as pl
import pytest

from stormpetrel.synth.score.copies import FEWEST, _nearest, _nearest_by_product, copies
from stormpetrel.synth.workload import SUBMIT, Workload
from tests.synth.made_workloads import made_workload, workload_at

TRAIN, HELD_OUT, HONEST = (made_workload(1500, seed=seed) for seed in (1, 2, 3))


def test_an_honest_draw_looks_like_unseen_jobs():
    found = copies(HONEST, TRAIN, HELD_OUT)
    assert found.exact == pytest.approx(found.natural, abs=0.01)
    assert found.nearest_record_ratio == pytest.approx(1, abs=0.25)
    assert found.membership_auc == pytest.approx(0.5, abs=0.05)


def test_the_training_jobs_themselves_are_found_out():
    found = copies(TRAIN, TRAIN, HELD_OUT)
    assert found.exact == 1 and found.natural < 0.05
    assert found.nearest_record_ratio == 0
    assert found.membership_auc > 0.95


def test_copies_under_a_new_name_and_at_another_time_are_copies():
    moved = TRAIN.jobs.with_columns(pl.col(SUBMIT) + pl.duration(days=400), user=pl.lit("nobody"))
    assert copies(Workload(moved), TRAIN, HELD_OUT).exact == 1


def test_blurred_copies_are_not_exact_but_too_near():
    generator = np.random.default_rng(0)
    blurred = TRAIN.jobs.with_columns(runtime_s=pl.col("runtime_s") + pl.Series(generator.normal(0, 0.5, TRAIN.height)))
    found = copies(Workload(blurred), TRAIN, HELD_OUT)
    assert found.exact < 0.1
    assert found.nearest_record_ratio < 0.5 and found.membership_auc > 0.9


def test_windows_betray_what_single_rows_do_not():
    generator = np.random.default_rng(5)

    def few_kinds():
        return workload_at(np.cumsum(generator.integers(1, 4, 400)), cores=generator.integers(1, 4, 400))

    train, held_out = few_kinds(), few_kinds()
    copied = train.between(0, 200)  # every single row is common; only the order is of the training part
    assert copies(copied, train, held_out).membership_auc > 0.52


def test_what_texts_round_is_still_equal():
    rounded = TRAIN.jobs.with_columns(runtime_s=pl.col("runtime_s") + 1e-5)
    assert copies(Workload(rounded), TRAIN, HELD_OUT).exact == 1


def test_only_columns_of_all_sides_count():
    extra = Workload(TRAIN.jobs.with_columns(tag=pl.lit("x"), partition=pl.lit(7)))
    assert copies(extra, TRAIN, HELD_OUT).exact == 1


def test_the_attack_can_be_left_out_and_all_repeats_with_a_seed():
    assert copies(HONEST, TRAIN, HELD_OUT, attack=False).membership_auc is None
    assert copies(HONEST, TRAIN, HELD_OUT, seed=4) == copies(HONEST, TRAIN, HELD_OUT, seed=4)


def test_more_rows_than_are_asked_are_drawn_with_the_seed(monkeypatch):
    monkeypatch.setattr("stormpetrel.synth.score.copies.MOST_QUERIES", 200)
    found = copies(TRAIN, TRAIN, HELD_OUT)
    assert found.exact == 1 and found.membership_auc > 0.95 and found == copies(TRAIN, TRAIN, HELD_OUT)


@pytest.mark.parametrize("n", [0, 1, FEWEST - 1])
def test_a_handful_of_jobs_gives_none_and_a_note(n):
    few = TRAIN.between(0, n)
    for sides in ((few, TRAIN, HELD_OUT), (HONEST, few, HELD_OUT), (HONEST, TRAIN, few)):
        found = copies(*sides)
        assert found.exact is None and found.membership_auc is None and "need 20 jobs each" in found.notes[0]


def test_jobs_that_all_repeat_give_no_ratio_and_say_so():
    same = workload_at(np.arange(100) * 60, cores=[4] * 100, runtime_s=[None, 5.0] * 50)
    found = copies(same, same, same)
    assert found.natural == 1 and found.nearest_record_ratio is None and found.notes
    assert found.membership_auc == 0.5


def test_a_column_that_is_empty_in_one_part_is_not_compared():
    train = Workload(TRAIN.jobs.with_columns(runtime_s=pl.lit(None, pl.Float64)))
    found = copies(TRAIN, train, HELD_OUT)
    assert found.exact == 1 and found.natural > 0.1  # without the run time many jobs are alike


def test_the_nearest_record_is_the_same_with_a_tree_and_without(monkeypatch):
    monkeypatch.setattr("stormpetrel.synth.score.copies._CELLS_AT_ONCE", 1000)
    generator = np.random.default_rng(0)
    records = generator.normal(size=(300, 5))
    asked = np.concatenate([generator.normal(size=(50, 5)), records[:20]])
    every = np.linalg.norm(asked[:, None] - records, axis=2).min(axis=1)
    assert _nearest(asked, records) == pytest.approx(every) and _nearest_by_product(asked, records) == pytest.approx(every)
    monkeypatch.setattr("stormpetrel.synth.score.copies._TREE_COLUMNS", 4)
    assert _nearest(asked, records)[-20:].max() == 0
