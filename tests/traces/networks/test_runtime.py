"""The runtime without torch: it says what the network says, holds nothing back, and refuses folders that are not ours."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load, save
from scipy.stats import spearmanr

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.traces.networks import runtime
from stormpetrel.traces.networks.architecture import DECODER, ENCODER, FORMAT_VERSION, KIND, WEIGHTS, Architecture, Scorer
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.runtime import TraceScorer
from tests.parts import need, wait_until
from tests.traces.small import one_torch_thread, small_windows, tiny

TRAIN, VALIDATION, TEST = (small_windows(seed) for seed in range(3))


@pytest.fixture(scope="module", params=Architecture)
def trained(request, tmp_path_factory) -> tuple[TraceAutoencoder, Path]:
    """A network and the folder that it was saved to."""
    need("torch")
    with one_torch_thread():
        model = TraceAutoencoder(tiny(request.param)).fit(TRAIN, VALIDATION, device="cpu")
    folder = tmp_path_factory.mktemp("models") / request.param
    model.save(folder)
    return model, folder


@pytest.fixture(scope="module")
def vanilla(tmp_path_factory) -> Path:
    need("torch")
    folder = tmp_path_factory.mktemp("models") / "plain"
    with one_torch_thread():
        TraceAutoencoder(tiny(max_epochs=1)).fit(TRAIN, VALIDATION, device="cpu").save(folder)
    return folder


def _remade(folder: Path, to: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The model with other files, saved so that its digests are right."""
    record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
    change(files)
    metadata = {name: record[name] for name in record if name not in {"kind", "format_version", "files", "digest"}}
    save_model(to, kind=KIND, format_version=FORMAT_VERSION, metadata=metadata, files=files)
    return to


def test_it_says_what_the_network_says(trained):
    model, folder = trained
    scorer: Scorer = TraceScorer.load(folder, threads=1)
    assert scorer.settings == model.settings
    assert np.abs(scorer.embed(TEST) - model.embed(TEST)).max() < 1e-4
    assert np.abs(scorer.reconstruct(TEST) - model.reconstruct(TEST)).max() < 1e-4
    assert np.allclose(scorer.score(TEST), model.score(TEST), rtol=1e-3, atol=1e-7)


def test_it_ranks_the_windows_as_the_network_does(trained):
    model, folder = trained
    fast, slow = TraceScorer.load(folder, threads=1).score(TEST), model.score(TEST)
    assert spearmanr(fast, slow).statistic > 0.999
    assert roc_auc(TEST.is_anomalous(), fast) == pytest.approx(roc_auc(TEST.is_anomalous(), slow), abs=1e-3)


def test_shapes_and_types_are_those_promised(trained):
    scorer = TraceScorer.load(trained[1], threads=1)
    z, rates, scores = scorer.embed(TEST), scorer.reconstruct(TEST), scorer.score(TEST)
    assert (z.shape, z.dtype) == ((len(TEST), 4), np.float32)
    assert (rates.shape, rates.dtype) == (TEST.rates.shape, np.float32) and np.allclose(rates.sum(axis=2), 1, atol=1e-5)
    assert (scores.shape, scores.dtype) == ((len(TEST),), np.float64)
    assert np.allclose(scores, np.square(rates - TEST.rates).mean(axis=(1, 2)), rtol=1e-4)


def test_no_windows_have_no_scores(trained):
    scorer, none = TraceScorer.load(trained[1], threads=1), TEST.take(slice(0))
    assert (
        scorer.score(none).shape == (0,) and scorer.embed(none).shape == (0, 4) and scorer.reconstruct(none).shape == (0, 16, 4)
    )


def test_neither_the_order_nor_the_size_of_the_portions_matters(trained, monkeypatch):
    scorer = TraceScorer.load(trained[1], threads=1)
    whole, order = scorer.score(TEST), np.random.default_rng(0).permutation(len(TEST))
    monkeypatch.setattr(runtime, "AT_ONCE", 10)
    assert np.allclose(scorer.score(TEST.take(order)), whole[order], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("trained", [Architecture.JOB_GNN], indirect=True)
def test_it_needs_no_torch(trained):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from tests.traces.small import small_windows\n"
        "from stormpetrel.traces.networks.runtime import TraceScorer\n"
        "print(*TraceScorer.load(Path(sys.argv[1]), threads=1).score(small_windows(2).take(slice(8))))"
    )
    done = subprocess.run([sys.executable, "-c", program, trained[1]], capture_output=True, text=True, check=True, timeout=60)
    assert np.allclose(np.array(done.stdout.split(), dtype=float), trained[0].score(TEST.take(slice(8))), rtol=1e-3)


def test_a_model_without_graphs_is_served_from_its_weights(trained, tmp_path):
    folder = _remade(trained[1], tmp_path / "m", lambda files: [files.pop(name) for name in (ENCODER, DECODER)])
    assert np.array_equal(TraceScorer.load(folder, threads=1).score(TEST), TraceScorer.load(trained[1], threads=1).score(TEST))


@pytest.mark.parametrize(
    "weight",
    [np.zeros(3, np.float32), np.ones((), np.float32), np.zeros((4, 3, 3)), np.zeros((4, 2, 3), np.float32), None],
    ids=["flat", "no axis", "doubles", "other channels", "missing"],
)
def test_weights_that_make_no_graph_are_refused(vanilla, tmp_path, weight):
    def change(files: dict[str, bytes]) -> None:
        weights = load(files[WEIGHTS]) | {"encoder.blocks.0.convolution.weight": weight}
        files.clear()
        files[WEIGHTS] = save({name: value for name, value in weights.items() if value is not None})

    with pytest.raises(ModelFormatError, match="damaged"):
        TraceScorer.load(_remade(vanilla, tmp_path / "m", change), threads=1)


def test_several_threads_may_use_one_scorer(trained):
    scorer = TraceScorer.load(trained[1], threads=1)
    alone = scorer.score(TEST)
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(lambda _: scorer.score(TEST), range(8)):
            assert np.array_equal(together, alone)


def _threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_calls_start_no_threads_and_a_dropped_scorer_leaves_none(vanilla):
    TraceScorer.load(vanilla, threads=2)  # whatever ONNX Runtime starts once
    gc.collect()
    before = _threads_of_this_process()
    scorers = [TraceScorer.load(vanilla, threads=2) for _ in range(3)]
    loaded = _threads_of_this_process()
    assert loaded > before  # otherwise the rest says nothing
    for _ in range(5):
        scorers[0].score(TEST)
    assert _threads_of_this_process() == loaded
    scorers.clear()
    gc.collect()
    wait_until(lambda: _threads_of_this_process() <= before, "the threads of dropped scorers to end", limit_s=10)


def test_windows_of_another_length_or_with_gaps_are_refused(vanilla):
    scorer = TraceScorer.load(vanilla, threads=1)
    with pytest.raises(ModelError, match="have 10 steps, and the autoencoder sees 16"):
        scorer.score(replace(TEST, rates=TEST.rates[:, :10]))
    rates = TEST.rates.copy()
    rates[2, 1] = np.nan
    with pytest.raises(ModelError, match="not numbers"):
        scorer.embed(replace(TEST, rates=rates))


def _other_operation(files: dict[str, bytes]) -> None:
    model = onnx.load_model_from_string(files[ENCODER])
    model.graph.node[0].op_type = "Loop"
    files[ENCODER] = model.SerializeToString()


def _graph_that_does_not_fit(files: dict[str, bytes]) -> None:
    model = onnx.load_model_from_string(files[DECODER])
    del model.graph.node[3:5]
    files[DECODER] = model.SerializeToString()


def _graph_that_blows_up(files: dict[str, bytes]) -> None:
    model = onnx.load_model_from_string(files[DECODER])
    (scales,) = (constant for constant in model.graph.initializer if constant.name == "each_step_twice")
    scales.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 1, 1, 1e12], np.float32), scales.name))
    files[DECODER] = model.SerializeToString()


def _weights_that_are_not_numbers(files: dict[str, bytes]) -> None:
    model = onnx.load_model_from_string(files[DECODER])
    for constant in model.graph.initializer:
        if constant.name == "modes.bias":
            constant.CopyFrom(onnx.numpy_helper.from_array(np.full(4, np.nan, np.float32), constant.name))
    files[DECODER] = model.SerializeToString()


DAMAGED = {
    _other_operation: "Loop",
    _graph_that_does_not_fit: "damaged",
    _graph_that_blows_up: "damaged",
    _weights_that_are_not_numbers: "something else",
    lambda files: files.update({WEIGHTS: b"\xff" * 100}): "damaged",
    lambda files: files.pop(WEIGHTS): "damaged",
    lambda files: files.update({ENCODER: files[DECODER]}): "takes something else than rates",
}


@pytest.mark.parametrize(("change", "words"), DAMAGED.items(), ids=lambda item: getattr(item, "__name__", " "))
def test_a_damaged_model_is_refused_in_one_sentence(vanilla, tmp_path, change, words, capfd):
    folder = _remade(vanilla, tmp_path / "m", change)
    with pytest.raises(ModelFormatError, match=words) as refused:
        TraceScorer.load(folder, threads=1)
    assert "\n" not in str(refused.value) and "stormpetrel traces train" in str(refused.value)
    assert capfd.readouterr().err == ""  # ONNX Runtime would like to say it, too


def test_files_that_were_changed_after_saving_are_refused(vanilla, tmp_path):
    folder = _remade(vanilla, tmp_path / "m", lambda files: None)
    (folder / ENCODER).write_bytes((folder / DECODER).read_bytes())
    with pytest.raises(ModelFormatError, match="not the file that was saved"):
        TraceScorer.load(folder)


def test_settings_that_make_no_sense_are_refused(vanilla, tmp_path):
    record, files = load_model_bytes(vanilla, kind=KIND, format_version=FORMAT_VERSION)
    for number, settings in enumerate((None, {}, record["settings"] | {"steps": 10**9}, record["settings"] | {"embedding": 5})):
        folder = tmp_path / str(number)
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata={"settings": settings}, files=files)
        with pytest.raises(ModelFormatError):
            TraceScorer.load(folder, threads=1)


@pytest.mark.parametrize("trained", [Architecture.NODE_GNN, Architecture.JOB_GNN], indirect=True)
def test_message_passing_with_weights_of_another_size_is_refused(tmp_path, trained):
    short = {"message_passing.update.weight": np.zeros((4, 3), np.float32)}
    folder = _remade(trained[1], tmp_path / "m", lambda files: files.update({WEIGHTS: save(load(files[WEIGHTS]) | short)}))
    with pytest.raises(ModelFormatError, match="message passing"):
        TraceScorer.load(folder, threads=1)


def test_a_folder_without_a_model_names_the_command_that_trains_one(tmp_path):
    with pytest.raises(ModelFormatError, match="stormpetrel traces train"):
        TraceScorer.load(tmp_path / "none")


def test_a_model_of_jobs_is_refused(tmp_path):
    save_model(tmp_path / "m", kind="jobs", format_version=1, metadata={}, files={"a.json": json.dumps({})})
    with pytest.raises(ModelFormatError, match="kind 'jobs'"):
        TraceScorer.load(tmp_path / "m")


def test_without_onnxruntime_the_extra_is_named(vanilla, monkeypatch):
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[scoring\]"):
        TraceScorer.load(vanilla)


def test_onnx_runtime_is_shown_what_was_written_from_the_weights_and_no_file(vanilla, monkeypatch):
    shown = []

    class Watched(runtime.Session):
        def __init__(self, graph: bytes, *, threads: int | None = None) -> None:
            shown.append(graph)
            super().__init__(graph, threads=threads)

    monkeypatch.setattr(runtime, "Session", Watched)
    scorer = TraceScorer.load(vanilla, threads=1)
    _, files = load_model_bytes(vanilla, kind=KIND, format_version=FORMAT_VERSION)
    weights = load(files[WEIGHTS])
    assert shown == list(runtime.write_graphs(scorer.settings, weights).values())


def test_a_graph_with_any_byte_changed_is_refused_or_the_same_graph(vanilla, tmp_path):
    rng = np.random.default_rng(16)
    outcomes = set()
    for number in range(40):
        part = (ENCODER, DECODER)[number % 2]

        def change(files: dict[str, bytes], part: str = part) -> None:
            content = bytearray(files[part])
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
            files[part] = bytes(content)

        try:
            TraceScorer.load(_remade(vanilla, tmp_path / str(number), change), threads=1)
            outcomes.add("the same")
        except ModelFormatError:
            outcomes.add("refused")
    assert "refused" in outcomes
