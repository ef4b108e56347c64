"""The notebooks in examples/: kept without outputs, and run from the first cell to the last in a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stormpetrel.faces.notebook.predicting import COLUMNS
from stormpetrel.faces.notebook.waterfall import PLOTLY_MIME
from tests.faces.notebook.hostile import assert_is_text
from tests.parts import hide_public_logs, need

EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE = EXAMPLES / "early-warning.ipynb"
# The other stories, with how many figures each draws and what it needs besides the notebook itself.
STORIES = {"admin-week": (3, ()), "cluster-alarm": (2, ()), "cpu-traces": (5, ("torch",)), "synthetic-theta": (3, ())}
_SECONDS = 300


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_examples_are_kept_without_outputs(path):
    import nbformat  # 5 s of processor time, which whoever collects the tests would pay

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
            assert "execution" not in cell.metadata


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_examples_name_no_place_of_this_machine(path):
    text = path.read_text(encoding="utf-8")
    assert "/home/" not in text.replace("/home/x", "") and "/tmp" not in text and "/work" not in text


def test_every_notebook_is_run_and_listed():
    names = {path.stem for path in EXAMPLES.glob("*.ipynb")}
    assert names == {*STORIES, EXAMPLE.stem}
    assert [name for name in names if f"({name}.ipynb)" not in (EXAMPLES / "README.md").read_text()] == []


def run_notebook(path: Path, folder: Path) -> dict[str, list[Any]]:
    """The outputs of each cell, by its id; the kernel works and makes its sites in `folder`."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        NotebookClient(notebook, timeout=_SECONDS, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return run_notebook(EXAMPLE, tmp_path_factory.mktemp("example"))


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_told_to_its_end_with_its_figures(name, tmp_path, monkeypatch):
    figures, needed = STORIES[name]
    need(*needed)
    hide_public_logs(monkeypatch)
    outputs = run_notebook(EXAMPLES / f"{name}.ipynb", tmp_path)
    assert [output for cell in outputs.values() for output in cell if output.output_type in ("error", "stream")] == []
    shown = [bundle for cell in outputs.values() for bundle in bundles(cell)]
    assert sum(bool(bundle.get(PLOTLY_MIME, {}).get("data")) for bundle in shown) == figures
    if name == "synthetic-theta":
        assert "a simulated site, not Theta" in bundles(outputs["data"])[0]["text/plain"]
    if name == "admin-week":
        assert "risk of failing" in bundles(outputs["check"])[0]["text/html"]


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
