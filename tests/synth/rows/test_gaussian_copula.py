"""The Gaussian copula: correlations, and the minimum of a column."""

import numpy as np
import pytest

from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.rows.gaussian_copula import GaussianCopula
from tests.synth.made_workloads import workload_at


def test_columns_rise_together_and_one_core_jobs_stay_as_many():
    rng = np.random.default_rng(0)
    size = rng.normal(size=3000)
    cores = np.maximum(1, np.round(np.exp2(2 * size + rng.normal(size=3000)))).astype(int)
    real = workload_at(np.cumsum(rng.integers(1, 99, 3000)), cores=cores, runtime_s=np.exp(size))
    made = sample(GaussianCopula().fit(real), Wanted(jobs=3000)).jobs
    assert (made["cores"] == 1).mean() == pytest.approx((cores == 1).mean(), abs=0.03) and (cores == 1).mean() > 0.3
    correlations = [np.corrcoef(np.log(jobs["cores"]), np.log(jobs["runtime_s"]))[0, 1] for jobs in (real.jobs, made)]
    assert correlations[1] == pytest.approx(correlations[0], abs=0.15)


def test_a_damaged_root_is_refused():
    copula = GaussianCopula().fit(workload_at(np.arange(50.0) ** 2, cores=list(range(50))))
    with pytest.raises(ValueError, match="correlations"):
        GaussianCopula()._restore({**copula._record(), "root": [[1.0]]}, {})
