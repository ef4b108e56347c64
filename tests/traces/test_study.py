"""The study: ensembles trained once, judged, measured, and found again in their folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from stormpetrel.answers.studies.trace_study import evaluation_answer, study_answer
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.traces import UNKNOWN_JOB, Split
from stormpetrel.traces import study
from stormpetrel.traces.campaign_splits import Cut, split_traces
from stormpetrel.traces.networks.architecture import Architecture
from stormpetrel.traces.study import StudyPlan, kept_cut, kept_plan, run_study
from tests.parts import need
from tests.traces.small import STEPS, one_torch_thread, small_trace, tiny

KINDS = (Architecture.VANILLA, Architecture.JOB_GNN)
PLAN = StudyPlan(KINDS, 2, "cpu", tiny(max_epochs=2, seed=5))


@pytest.fixture(scope="module", autouse=True)
def _quickly():
    with one_torch_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "SPEED_S", 0.02)
        yield


def campaigns(**changes):
    traces = [replace(small_trace(seed, name=split.value, nodes=1), split=split) for seed, split in enumerate(Split)]
    return split_traces([replace(trace, **changes) for trace in traces], Cut(STEPS))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    need("torch")
    folder = tmp_path_factory.mktemp("kept")
    return folder, run_study(campaigns(), PLAN, folder)


def test_a_folder_knows_how_its_windows_were_cut(kept, tmp_path):
    assert kept_cut(kept[0]) == Cut(STEPS) and kept_cut(tmp_path) == Cut()
    (tmp_path / "windows.json").write_text('{"window_s": "much"}')
    with pytest.raises(UsageError, match="cannot be read"):
        kept_cut(tmp_path)


def test_every_kind_is_trained_judged_and_measured(kept):
    told = study_answer(kept[1]).model_dump()
    assert {path.name for path in kept[0].iterdir() if path.is_dir()} == {"vanilla-5", "vanilla-6", "job_gnn-5", "job_gnn-6"}
    assert set(told["model"]) == {"vanilla", "job_gnn"} and told["model"]["vanilla"]["re_normal"]["n"] == 2
    assert set(told) >= {
        "model",
        "why",
        "baselines",
        "by_job_type",
        "per_run",
        "windows",
        "windows_per_second_per_core",
        "seconds",
    }
    assert told["windows"] == {"train": 80, "validation": 80, "test": 80, "left_out": 0, "mixed": 0}
    assert all(speed > 0 for speed in told["windows_per_second_per_core"].values())
    json.dumps(told, allow_nan=False)


def test_models_that_are_there_are_used_again_and_say_the_same(kept):
    folder, first = kept
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    again = run_study(campaigns(), kept_plan(folder), folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert evaluation_answer(again.evaluation) == evaluation_answer(first.evaluation)


def test_models_of_other_windows_are_refused(kept):
    others = [replace(small_trace(7 + seed, name=split.value, nodes=1), split=split) for seed, split in enumerate(Split)]
    with pytest.raises(ModelError, match="other settings or other windows"):
        run_study(split_traces(others, Cut(STEPS)), kept_plan(kept[0]), kept[0])


@pytest.mark.needs("torch")
def test_a_kind_that_cannot_be_trained_is_left_out_with_a_reason(tmp_path):
    split = campaigns()
    unknown = [replace(part, job=part.job * 0 + UNKNOWN_JOB) for part in (split.train, split.validation, split.test)]
    found = run_study(type(split)(*unknown), replace(PLAN, models=1), tmp_path)
    answer = study_answer(found)
    assert answer.model["job_gnn"] is None and "No thread is known" in answer.why["job_gnn"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["vanilla-5"]


def test_a_folder_tells_how_its_models_were_made(kept, tmp_path):
    plan = kept_plan(kept[0])
    assert (plan.architectures, plan.models, plan.settings.seed, plan.settings.max_epochs) == (KINDS, 2, 5, 2)
    for nothing in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="There is no trace model"):
            kept_plan(nothing)


_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("polars", "pydantic", "typer", "onnx", "onnxruntime")))  # as if they were not installed
import stormpetrel.traces.study, stormpetrel.traces.diagnosis, stormpetrel.traces.campaign_splits
assert "torch" not in sys.modules and "sklearn" not in sys.modules
"""


def test_the_study_can_be_imported_on_a_machine_that_only_trains():
    subprocess.run([sys.executable, "-c", _WITHOUT], check=True)
