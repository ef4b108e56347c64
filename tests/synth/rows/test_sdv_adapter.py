"""SDV behind our contract."""

import logging

import numpy as np
import pytest

from stormpetrel.errors import MissingExtraError, ModelError
from stormpetrel.synth.choose import GENERATORS, new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.rows import sdv_adapter
from tests.parts import need
from tests.synth.made_workloads import made_workload


def test_it_learns_draws_and_cannot_be_saved(tmp_path):
    need("sdv")
    workload = made_workload(200)
    before = np.random.get_state()[1].tolist(), logging.getLogger("sdv").level
    generator = new_generator("sdv-gaussian-copula", device="cpu").fit(workload)
    made, again, other = (sample(generator, Wanted(jobs=80, seed=seed)).jobs for seed in (1, 1, 2))
    assert made.schema == workload.jobs.schema and made.equals(again) and not made.equals(other)
    assert (np.random.get_state()[1].tolist(), logging.getLogger("sdv").level) == before
    with pytest.raises(ModelError, match="pickles"):
        generator.save(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdv-ctgan", "sdv-tvae", "sdv-copulagan"])
def test_its_networks_learn_and_draw(name):
    need("sdv")
    workload = made_workload(600)
    made = sample(new_generator(name, epochs=1, device="cpu").fit(workload), Wanted(jobs=50))
    assert made.jobs.schema == workload.jobs.schema


@pytest.mark.parametrize("name", [name for name in GENERATORS if name.startswith("sdv-")])
def test_without_sdv_the_extra_is_named(name, monkeypatch):
    monkeypatch.setattr(sdv_adapter, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="'sdv'"):
        new_generator(name).fit(made_workload(50))
