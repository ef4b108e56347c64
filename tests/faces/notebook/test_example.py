"""The notebook in examples/: kept without outputs, and run from the first cell to the last in a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stormpetrel.faces.notebook.predicting import COLUMNS
from stormpetrel.faces.notebook.waterfall import PLOTLY_MIME
from tests.faces.notebook.hostile import assert_is_text

EXAMPLE = Path(__file__).parents[3] / "examples" / "early-warning.ipynb"
_SECONDS = 300


def test_the_example_is_kept_without_outputs():
    import nbformat  # 5 s of processor time, which whoever collects the tests would pay

    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
            assert "execution" not in cell.metadata


def test_the_example_names_no_place_of_this_machine():
    text = EXAMPLE.read_text(encoding="utf-8")
    assert "/home/" not in text.replace("/home/x", "") and "/tmp" not in text and "/work" not in text


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of each cell, by its id."""
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("example")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))  # the kernel makes its site there
        NotebookClient(notebook, timeout=_SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def bundles(outputs: list[Any]) -> list[dict[str, Any]]:
    return [output["data"] for output in outputs if "data" in output]


def test_every_cell_ends_without_an_error_or_a_warning(executed):
    for outputs in executed.values():
        assert [output for output in outputs if output.output_type in ("error", "stream")] == []


def test_the_five_steps_show_what_they_found(executed):
    shown = {name: bundles(executed[name])[-1] for name in ("load", "prepare", "model", "predict")}
    assert "state_jobs" in shown["load"]["text/html"]
    assert "jobs were kept" in shown["prepare"]["text/html"]
    assert "Model loaded: version 1" in shown["model"]["text/html"]
    assert all(f"<th>{column}</th>" in shown["predict"]["text/html"] for column in COLUMNS)


def test_one_job_is_explained_with_a_waterfall_and_words_of_advice(executed):
    above, figure, below = bundles(executed["look-into"])
    assert "Risk of failing" in above["text/html"]
    assert figure[PLOTLY_MIME]["data"][0]["type"] == "waterfall"
    assert "Next time: Ask for" in below["text/html"] and "Risk if submitted now" in below["text/html"]
    for bundle in (above, figure, below):
        assert_is_text(bundle["text/html"])


def test_the_widget_is_shown(executed):
    (bundle,) = bundles(executed["widget"])
    assert "application/vnd.jupyter.widget-view+json" in bundle


@pytest.mark.parametrize("name", ["reliability", "waste"])
def test_the_figures_beyond_the_five_steps_are_drawn(executed, name):
    (bundle,) = bundles(executed[name])
    assert bundle[PLOTLY_MIME]["data"]


def test_following_the_advice_lowers_the_risk(executed):
    (before,) = bundles(executed["check"])
    (after,) = bundles(executed["again"])
    assert "risk of failing" in before["text/html"]
    words = after["text/markdown"]
    first, second = (float(part.split("%")[0]) for part in words.split("**")[1::2])
    assert second < first
