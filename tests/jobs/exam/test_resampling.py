import numpy as np

from stormpetrel.jobs.exam.resampling import filled_with_medians, random_oversample, smote, standardised


def rows(n=60, failed=6, columns=3, seed=1):
    rng = np.random.default_rng(seed)
    y = np.arange(n) < failed
    return (rng.normal(size=(n, columns)) + y[:, None]).astype(np.float32), y


def test_both_classes_are_equally_many_and_the_given_rows_come_first():
    x, y = rows()
    for resample in (random_oversample, smote):
        more_x, more_y = resample(x, y, 0)
        assert more_y.sum() == (~more_y).sum() == 54
        assert np.array_equal(more_x[:60], x) and more_x.dtype == np.float32


def test_oversampled_rows_are_copies_of_the_rarer_class():
    x, y = rows()
    more_x, more_y = random_oversample(x, y, 0)
    assert {row.tobytes() for row in more_x[60:]} <= {row.tobytes() for row in x[y]}
    assert more_y[60:].all()


def test_completed_jobs_are_made_up_where_they_are_the_rarer_ones():
    x, y = rows()
    _, more_y = smote(x, ~y, 0)
    assert not more_y[60:].any() and more_y.sum() == 54


def test_made_up_rows_lie_between_real_ones():
    x, y = rows()
    made = smote(x, y, 0)[0][60:]
    assert (made >= x[y].min(axis=0) - 1e-6).all() and (made <= x[y].max(axis=0) + 1e-6).all()
    assert len(np.unique(made, axis=0)) > 6


def test_a_seed_repeats_and_another_differs():
    x, y = rows()
    assert np.array_equal(smote(x, y, 3)[0], smote(x, y, 3)[0])
    assert not np.array_equal(smote(x, y, 3)[0], smote(x, y, 4)[0])


def test_a_missing_value_does_not_tell_that_a_row_is_made_up():
    x, y = rows()
    x[y, 1] = np.nan
    x[0, 2] = np.nan
    made = smote(x, y, 0)[0][60:]
    assert np.isnan(made[:, 1]).all()
    assert 0 < np.isnan(made[:, 2]).mean() < 1
    assert not np.isnan(made[:, 0]).any()


def test_one_rare_row_is_copied_and_no_rare_row_changes_nothing():
    x, y = rows(failed=1)
    assert np.array_equal(smote(x, y, 0)[0][60:], np.repeat(x[:1], 58, axis=0))
    for resample in (random_oversample, smote):
        same_x, same_y = resample(x, np.zeros(60, dtype=bool), 0)
        assert same_x is x and not same_y.any()


def test_a_column_without_values_is_filled_with_zero_and_stays_zero_when_standardised():
    x = np.array([[np.nan, 1], [np.nan, 3], [np.nan, np.nan]], dtype=np.float32)
    assert filled_with_medians(x).tolist() == [[0, 1], [0, 3], [0, 2]]
    assert np.abs(standardised(filled_with_medians(x))[:, 0]).max() == 0
