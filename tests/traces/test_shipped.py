"""The encoder that comes with the package: whole, small, honest, and without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from benchmarks.traces_shipped import card

from stormpetrel.errors import ModelFormatError
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.windows import cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.shipped import ABOUT, CARD, SHIPPED, load_shipped, shipped_about
from tests.parts.hidden_torch import HIDE_TORCH

WITHOUT_TORCH = (
    HIDE_TORCH
    + """
from stormpetrel.traces.shipped import load_shipped
from tests.traces.small import small_windows

print(load_shipped(threads=1).scorer.score(small_windows(0, steps=64)).shape[0])
"""
)


@pytest.fixture(scope="module")
def shipped():
    return load_shipped(threads=1)


@pytest.fixture(scope="module")
def windows():
    return cut_windows(simulate_campaign(CampaignSpec(nodes=1, threads_per_node=16, minutes=20, seed=987_654)))


def test_it_is_well_under_a_megabyte_and_holds_nothing_that_runs():
    files = sorted(SHIPPED.iterdir())
    assert sum(path.stat().st_size for path in files) < 700_000
    assert [path.name for path in files] == [
        "CARD.md", "about.json", "decoder.onnx", "encoder.onnx", "model.json", "score.onnx", "weights.safetensors",
    ]  # fmt: skip


def test_its_card_says_what_it_was_trained_on_and_how_it_is_made():
    told, about = (SHIPPED / CARD).read_text(), shipped_about()
    assert "simulated campaigns only" in told and "promises no share of false flags" in told
    assert about["command"] in told and about["command"].startswith("python -m benchmarks.traces_shipped --seed 0")
    assert about["made"] in told and f"{about['figures']['simulated']['roc_auc']:.3f}" in told


def test_its_card_is_the_one_that_the_command_writes():
    assert card(shipped_about()) == (SHIPPED / CARD).read_text()


def test_it_tells_bad_io_that_it_has_never_seen(shipped, windows):
    known = windows.take(windows.job_types() != "Mixed")
    assert roc_auc(known.is_anomalous(), shipped.scorer.score(known)) > 0.97


def test_its_reconstruction_has_the_steps_of_the_windows_whatever_they_are(shipped, windows):
    short = cut_windows(simulate_campaign(CampaignSpec(nodes=1, threads_per_node=4, minutes=4, step_s=5.0)), steps=20)
    for some in (windows, short):
        made = shipped.scorer.reconstruct(some)
        assert made.shape == some.rates.shape and np.allclose(made.sum(axis=2), 1, atol=1e-4)


def test_it_runs_where_torch_is_not_installed():
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["64"], found.stderr


@pytest.mark.parametrize("name", ["encoder.onnx", "weights.safetensors", ABOUT])
def test_a_damaged_file_is_refused(tmp_path, name):
    folder = shutil.copytree(SHIPPED, tmp_path / "shipped")
    path = folder / name
    if name == ABOUT:
        path.write_text(json.dumps({**json.loads(path.read_text()), "map": None}))
    else:
        path.write_bytes(path.read_bytes()[:-10] + b"0123456789")
    with pytest.raises(ModelFormatError):
        load_shipped(threads=1, folder=folder)
