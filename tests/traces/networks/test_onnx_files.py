"""The ONNX files: the same function as the torch modules, and nothing but graphs of ours is taken for one."""

from __future__ import annotations

from tests.parts import need

need("torch")

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from stormpetrel.errors import MissingExtraError, ModelFormatError
from stormpetrel.traces.networks import onnx_files
from stormpetrel.traces.networks.architecture import DECODER, ENCODER, SCORE, Architecture, AutoencoderSettings
from stormpetrel.traces.networks.layers import make_network
from stormpetrel.traces.networks.onnx_files import check_graph, decoder_onnx, encoder_onnx, graphs_onnx
from tests.traces.small import one_torch_thread, tiny

SHAPES = {
    "default": AutoencoderSettings(),
    "three blocks, length not divisible": tiny(channels=(8, 8, 16), steps=37, kernel=5),
    "one block": tiny(channels=(6,), steps=9),
    "no neighbours": tiny(kernel=1),
    "patches": AutoencoderSettings(architecture=Architecture.FAST),
    "patches, length not divisible": tiny(Architecture.FAST, steps=37),
    "less than a patch": tiny(Architecture.FAST, steps=8),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_torch_thread():
        yield


def _run(graph: bytes, value: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: value})[0]


def _rates(windows: int, steps: int) -> np.ndarray:
    return np.random.default_rng(1).dirichlet([0.3] * 4, size=(windows, steps)).astype(np.float32)


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("windows", [1, 7])
def test_encoder_and_decoder_say_what_torch_says(settings, windows):
    network = make_network(settings).eval()
    rates = _rates(windows, settings.steps)
    with torch.inference_mode():
        z = network.encoder(torch.from_numpy(rates)).numpy()
        back = network.decoder(torch.from_numpy(z)).numpy()
    assert np.abs(_run(encoder_onnx(network), rates) - z).max() < 1e-5
    assert np.abs(_run(decoder_onnx(network), z) - back).max() < 1e-5


@pytest.mark.parametrize("settings", [item for item in SHAPES.values() if item.architecture is Architecture.FAST], ids=str)
def test_the_graph_that_scores_gives_embedding_and_error_of_torch(settings):
    network, rates = make_network(settings).eval(), _rates(7, settings.steps)
    with torch.inference_mode():
        z = network.encoder(torch.from_numpy(rates)).numpy()
        error = (network(torch.from_numpy(rates)).numpy() - rates).astype(np.float64)
    error = np.square(error).mean(axis=(1, 2))
    content = graphs_onnx(network)[SCORE]
    check_graph(content, settings, written=content, part=SCORE)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found_z, found_error = session.run(None, {"rates": rates})
    assert np.abs(found_z - z).max() < 1e-5 and np.allclose(found_error, error, rtol=1e-4)


def test_only_the_fast_network_has_a_graph_that_scores():
    assert {kind: SCORE in graphs_onnx(make_network(tiny(kind))) for kind in Architecture} == {
        kind: kind is Architecture.FAST for kind in Architecture
    }


@pytest.mark.parametrize("architecture", [Architecture.VANILLA, Architecture.FAST])
def test_other_is_not_an_input(architecture):
    network, rates = make_network(tiny(architecture)), _rates(3, 16)
    changed = rates.copy()
    changed[..., 3] = 7
    assert np.array_equal(_run(encoder_onnx(network), rates), _run(encoder_onnx(network), changed))


def test_convolutions_are_written_as_images_which_is_what_makes_them_fast():
    for write in (encoder_onnx, decoder_onnx):
        graph = onnx.load_model_from_string(write(make_network(tiny()))).graph
        shapes = {constant.name: constant.dims for constant in graph.initializer}
        assert {len(shapes[node.input[1]]) for node in graph.node if node.op_type == "Conv"} == {4}


def test_the_operations_that_are_let_in_are_those_that_we_write():
    written = set()
    for settings in SHAPES.values():
        for content in graphs_onnx(make_network(settings)).values():
            written |= {node.op_type for node in onnx.load_model_from_string(content).graph.node}
    assert written == onnx_files.OPERATIONS


def test_our_graphs_keep_the_rules_of_onnx():
    for write in (encoder_onnx, decoder_onnx):
        onnx.checker.check_model(onnx.load_model_from_string(write(make_network(tiny()))), full_check=True)


def test_the_same_network_gives_the_same_bytes():
    assert encoder_onnx(make_network(tiny())) == encoder_onnx(make_network(tiny()))
    assert encoder_onnx(make_network(tiny())) != encoder_onnx(make_network(tiny(seed=1)))


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_our_own_files_pass_the_check(settings):
    network = make_network(settings)
    check_graph(encoder_onnx(network), settings, written=encoder_onnx(network), part=ENCODER)
    check_graph(decoder_onnx(network), settings, written=decoder_onnx(network), part=DECODER)


def _foreign_operation(model):
    model.graph.node[0].op_type = "Loop"


def _foreign_domain(model):
    model.graph.node[0].domain = "com.example"


def _other_file(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def _graph_inside(model):
    model.graph.node[0].attribute.append(helper.make_attribute("body", helper.make_graph([], "inner", [], [])))


def _tensor_inside(model):
    model.graph.node[0].attribute.append(helper.make_attribute("value", helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])))


def _function(model):
    model.functions.add(name="f")


def _other_steps(model):
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 99


def _another_output(model):
    model.graph.output.add().CopyFrom(model.graph.output[0])


def _doubles(model):
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


HOSTILE = {
    _foreign_operation: "Loop",
    _foreign_domain: "operations",
    _other_file: "another file",
    _graph_inside: "another graph",
    _tensor_inside: "more tensors",
    _function: "another graph",
    _other_steps: "takes something else than rates of shape windows × 16 × 4",
    _another_output: "gives something else than z",
    _doubles: "gives something else",
}


@pytest.mark.parametrize(("change", "words"), HOSTILE.items(), ids=lambda item: getattr(item, "__name__", ""))
def test_a_graph_that_is_not_ours_is_refused(change, words):
    model = onnx.load_model_from_string(encoder_onnx(make_network(tiny())))
    change(model)
    with pytest.raises(ModelFormatError, match=words):
        check_graph(model.SerializeToString(), tiny(), written=b"", part=ENCODER)


def test_an_encoder_is_no_decoder():
    with pytest.raises(ModelFormatError, match="takes something else than z"):
        check_graph(encoder_onnx(make_network(tiny())), tiny(), written=b"", part=DECODER)


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b'{"kind": "traces"}'])
def test_what_is_no_graph_at_all_is_refused(content):
    with pytest.raises(ModelFormatError):
        check_graph(content, tiny(), written=b"", part=ENCODER)


def test_a_huge_file_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(onnx_files, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(onnx, "load_model_from_string", pytest.fail)
    with pytest.raises(ModelFormatError, match="larger than any of ours"):
        check_graph(b"0" * 1001, tiny(), written=b"", part=ENCODER)


def test_without_onnx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"stormpetrel\[scoring\]"):
        check_graph(b"", tiny(), written=b"", part=ENCODER)
