import numpy as np
import pytest

from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.jobs.exam.feature_study import ablation, correlations, importance, which_to_keep

NAMES = ("rate", "rate_copy", "hour", "limit", "constant", "never", "gaps")
GROUPS = {"rate": "history", "rate_copy": "history", "hour": "calendar", "limit": "request"}


def study(n=4000, seed=0):
    """Jobs that fail by their user's rate and their limit; the other columns are noise, constant, or empty."""
    rng = np.random.default_rng(seed)
    rate, limit, hour = rng.random(n), rng.random(n), rng.integers(0, 24, n)
    y = rng.random(n) < 1 / (1 + np.exp(-(6 * rate + 5 * limit - 7)))
    gaps = np.where(rng.random(n) < 0.5, np.nan, -(rate**3))
    x = np.column_stack([rate, 2 * rate + 1, hour, limit, np.ones(n), np.full(n, np.nan), gaps]).astype(np.float32)
    return x, y


@pytest.fixture(scope="module")
def jobs():
    return study()


@pytest.fixture(scope="module")
def ablated(jobs):
    x, y = jobs
    return ablation(x, NAMES, GROUPS, y)


@pytest.fixture(scope="module")
def verdicts(jobs, ablated):
    x, y = jobs
    return {
        row["feature"]: row
        for row in which_to_keep(
            correlations(x, NAMES, y), importance(x, NAMES, y), ablated, GROUPS
        ).to_dicts()
    }  # fmt: skip


def test_correlations_agree_with_numpy_and_constants_have_none(jobs):
    x, y = jobs
    table = {row["feature"]: row for row in correlations(x, NAMES, y).table.to_dicts()}
    assert table["rate"]["pearson"] == pytest.approx(np.corrcoef(x[:, 0], y)[0, 1])
    known = ~np.isnan(x[:, 6])
    assert table["gaps"]["pearson"] == pytest.approx(np.corrcoef(x[known, 6], y[known])[0, 1])
    assert table["gaps"]["missing"] == pytest.approx(1 - known.mean())
    assert table["constant"]["pearson"] is None and table["never"]["spearman"] is None
    assert table["never"]["missing"] == 1.0


def test_spearman_sees_through_a_bend(jobs):
    x, y = jobs
    bent = np.column_stack([x[:, 0], np.exp(12 * x[:, 0])])
    table = correlations(bent.astype(np.float32), ("straight", "bent"), y).table.sort("feature", descending=True)
    assert table["spearman"][0] == pytest.approx(table["spearman"][1], abs=1e-6)
    assert abs(table["pearson"][0]) > abs(table["pearson"][1])


def test_the_matrix_is_symmetric_and_taken_over_pairs_of_known_values(jobs):
    x, y = jobs
    found = correlations(x, NAMES, y)
    known = ~np.isnan(x[:, 6])
    assert np.allclose(found.matrix, found.matrix.T, equal_nan=True)
    assert found.matrix[1, 7] == pytest.approx(np.corrcoef(x[known, 0], x[known, 6])[0, 1], abs=1e-6)
    assert found.matrix[1, 2] == pytest.approx(1.0, abs=1e-6)
    names, small = found.top(3)
    assert names[0] == "failed" and small.shape == (4, 4) and not np.isnan(small).any()


def test_what_drives_failures_is_important_and_noise_is_not(jobs):
    x, y = jobs
    found = importance(x, NAMES, y)
    rank = {name: place for place, name in enumerate(found["feature"])}
    assert max(rank["limit"], rank["rate"]) < rank["hour"] < rank["constant"]
    assert found.filter(feature="never")["mean_abs_shap"].item() == 0


def test_a_group_that_matters_is_missed_and_one_that_does_not_is_not(ablated):
    groups = {row["group"]: row for row in ablated.groups.to_dicts()}
    assert groups["request"]["pr_lost"] > 0.05 and groups["history"]["features"] == 2
    assert groups["request"]["pr_lost"] > 3 * groups["request"]["pr_error"] > 0
    assert groups["calendar"]["pr_lost"] < groups["calendar"]["pr_error"]
    assert groups["request"]["roc_alone"] > 0.6 > groups["calendar"]["roc_alone"]
    assert ablated.roc_auc > groups["request"]["roc_alone"]


def test_verdicts_come_with_reasons_in_words(verdicts):
    assert verdicts["limit"]["verdict"] == "keep" and verdicts["limit"]["reason"].startswith("adds .")
    assert "with its group, request" in verdicts["limit"]["reason"]
    assert verdicts["constant"]["reason"] == "constant in this log"
    assert verdicts["never"]["reason"] == "never known in this log"
    assert verdicts["hour"]["verdict"] == "drop"


def test_of_two_copies_one_stays(verdicts):
    pair = [verdicts["rate"], verdicts["rate_copy"]]
    assert sorted(one["verdict"] for one in pair) == ["drop", "keep"]
    assert any("a copy of rate" in one["reason"] and "r = 1.00" in one["reason"] for one in pair)


def test_a_seed_repeats_and_progress_is_told(jobs):
    x, y = jobs
    told = []
    first = ablation(x, NAMES, GROUPS, y, max_rows=800, seed=3, progress=lambda *step: told.append(step))
    assert first.groups.equals(ablation(x, NAMES, GROUPS, y, max_rows=800, seed=3).groups)
    assert told[0] == ("history", 0, 6) and told[-1] == ("", 6, 6)


def test_jobs_of_one_outcome_and_a_matrix_of_another_shape_are_refused(jobs):
    x, y = jobs
    with pytest.raises(UsageError, match="same outcome"):
        ablation(x, NAMES, GROUPS, np.zeros_like(y))
    with pytest.raises(UsageError, match="one name per column"):
        correlations(x, NAMES[:-1], y)


@pytest.mark.slow
def test_groups_in_processes_give_what_one_process_gives(jobs, ablated):
    x, y = jobs
    apart = ablation(x, NAMES, GROUPS, y, engine=Engine(2))
    assert apart.groups.equals(ablated.groups)
