"""The traces of the demo, where torch is not installed."""

from __future__ import annotations

import pytest
from rich.console import Console

from stormpetrel.faces.cli.demo import models as demo_models
from stormpetrel.faces.cli.demo.text import print_traces
from tests.builders import make_site


@pytest.fixture
def small(monkeypatch):
    """A demo of one node, without torch."""
    monkeypatch.setattr(demo_models, "_NODES", 1)
    monkeypatch.setattr(demo_models, "_MINUTES", 8.0)
    installed = demo_models.find_spec
    monkeypatch.setattr(demo_models, "find_spec", lambda name: None if name == "torch" else installed(name))


def test_without_torch_the_shipped_encoder_scores_the_demo_and_it_says_so(tmp_path, small):
    with make_site(tmp_path / "site") as site:
        done = demo_models.add_traces(site, quiet=True)
        assert done.shipped and done.scored == site.cpu_windows.read().collect().height > 0
        assert demo_models.add_traces(site, quiet=True).scored == 0, "opened again, it has its traces and scores"
    out = Console(record=True, width=200)
    print_traces(out, done)
    assert "by the shipped encoder, which was not trained on this site" in out.export_text()
