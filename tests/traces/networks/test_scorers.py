"""Which runtime scores: ONNX Runtime unless a GPU is there and wanted."""

from __future__ import annotations

import pytest

from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.traces.networks import scorers
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.shipped import SHIPPED


@pytest.fixture
def dev(tmp_path, monkeypatch):
    """An empty /dev."""
    monkeypatch.setattr(scorers, "_DEV", tmp_path)
    return tmp_path


def test_auto_is_onnx_runtime_without_a_gpu_and_torch_is_not_asked(dev, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert isinstance(scorers.load_scorer(SHIPPED, threads=1, device="auto"), TraceScorer)


def test_a_gpu_is_seen_by_the_files_of_its_driver(dev, monkeypatch):
    monkeypatch.setattr(scorers, "find_spec", lambda name: name)
    assert not scorers.may_use_gpu()
    (dev / "nvidiactl").touch()
    assert not scorers.may_use_gpu()
    (dev / "nvidia0").touch()
    assert scorers.may_use_gpu()


@pytest.mark.needs("torch")
def test_a_gpu_that_torch_cannot_use_is_no_reason_to_fail_where_nobody_asked_for_it(dev):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    (dev / "nvidia0").touch()
    assert isinstance(scorers.load_scorer(SHIPPED, threads=1, device="auto"), TraceScorer)
    with pytest.raises(UsageError, match="no GPU that torch can use"):
        scorers.load_scorer(SHIPPED, device="cuda")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["gpu", "meta", "../x"])
def test_unknown_devices_are_refused(name):
    with pytest.raises(UsageError, match="Unknown device"):
        scorers.load_scorer(SHIPPED, device=name)


def test_a_gpu_without_torch_names_the_extra(monkeypatch):
    monkeypatch.setattr(scorers, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="traces"):
        scorers.load_scorer(SHIPPED, device="cuda")
