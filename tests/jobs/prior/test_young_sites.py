"""Young sites: the first days of a log with nothing known before, and failure rates that are moved."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.prior.young_sites import DAY_S, PriorLog, sample_young_sites, young_site
from tests.jobs.logs import make_log, one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def log():
    return PriorLog.of("made", make_log(900, 4, days=12))


def test_a_young_site_knows_nothing_from_before_its_start(log):
    start = log.submit_s[0] + 6 * DAY_S
    site = young_site(log, start)
    matrix = site.features[Moment.SUBMIT]
    assert matrix.values[0, matrix.names.index("user.ended_total")] == 0, "the first job finds no past"
    assert site.age_s.min() >= 0 and site.failed.size < log.usable.sum()
    ended_early = np.isin(np.arange(log.submit_s.size), np.flatnonzero(log.submit_s < start))
    other = PriorLog.of("other", log.jobs.filter(pl.Series(~ended_early)).drop("profile"))
    np.testing.assert_array_equal(young_site(other, start).features[Moment.SUBMIT].values, matrix.values)


def test_profiles_play_no_part(log):
    matrix = young_site(log, log.submit_s[0]).features[Moment.SUBMIT]
    about = [name for name in matrix.names if name.startswith("profile.") or name == "request.profile"]
    assert about and all(np.isnan(matrix.values[:, matrix.names.index(name)]).all() for name in about)


def test_rows_of_many_starts_repeat_with_a_seed_and_have_other_failure_rates_than_the_log(log):
    rows, again = (sample_young_sites(log, starts=12, most_rows=600, seed=5) for _ in range(2))
    for moment in MOMENTS:
        np.testing.assert_array_equal(rows.features[moment].values, again.features[moment].values)
        assert len(rows.features[moment].values) == rows.failed[moment].size == len(rows.outcome[moment])
    assert rows.failed[Moment.TWO_MINUTES].size < rows.failed[Moment.SUBMIT].size, "not every job lives for two minutes"
    share = log.failed[log.usable].mean()
    assert abs(rows.failed[Moment.SUBMIT].mean() - share) > 0.02


def test_a_fingerprint_tells_logs_apart(log):
    same, other = PriorLog.of("again", log.jobs.drop("profile")), PriorLog.of("other", make_log(900, 5, days=12))
    assert same.fingerprint == log.fingerprint != other.fingerprint
