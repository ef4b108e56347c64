"""ONNX files: the encoder and the decoder of an autoencoder as graphs that run without torch.

network, or settings and weights -> bytes of an ONNX file; bytes -> check_graph. encoder: rates (windows, steps, 4) -> z (windows,
embedding). decoder: z -> rates (windows, steps, 4), sums to one. score, of `fast` alone: rates -> z and error (windows,). The
graphs are written by hand: they are few nodes, and so have the form that ONNX Runtime runs fastest. A convolution over time is
written as one over an image of height 1, because only those get its blocked layout: 1.4 times the windows per second, and the
same function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import MissingExtraError, ModelFormatError
from stormpetrel.records.traces import MODES
from stormpetrel.traces.networks.architecture import (
    DECODER,
    ENCODER,
    INPUT_MODES,
    LEAK,
    PATCH_STEPS,
    SCORE,
    Architecture,
    AutoencoderSettings,
)

if TYPE_CHECKING:
    from stormpetrel.traces.networks.layers import AutoencoderNetwork

RATES: Final = "rates"
EMBEDDING: Final = "z"
ERROR: Final = "error"
LARGEST_BYTES: Final = 256 * 1024 * 1024
OPERATIONS: Final = frozenset(  # all that the graphs below need
    {"Add", "Conv", "Flatten", "Gemm", "LeakyRelu", "MaxPool", "Mul", "Pad", "ReduceSumSquare", "Relu", "Reshape", "Resize"}
    | {"Slice", "Softmax", "Squeeze", "Sub", "Transpose", "Unsqueeze"}
)

_OPSET: Final = 17
_IR_VERSION: Final = 8  # read by every ONNX Runtime since 1.13
_WINDOWS: Final = "windows"  # the name of the axis that may have any length

Weights = Mapping[str, npt.NDArray[np.float32]]


def encoder_onnx(network: AutoencoderNetwork) -> bytes:
    """The encoder of a torch network as an ONNX file."""
    return write_encoder(network.settings, _weights(network))


def decoder_onnx(network: AutoencoderNetwork) -> bytes:
    """The decoder of a torch network as an ONNX file."""
    return write_decoder(network.settings, _weights(network))


def graphs_onnx(network: AutoencoderNetwork) -> dict[str, bytes]:
    """All graphs of a torch network, by the name of their file."""
    return write_graphs(network.settings, _weights(network))


def write_graphs(settings: AutoencoderSettings, weights: Weights) -> dict[str, bytes]:
    """All graphs of an autoencoder, by the name of their file: `fast` has one more, for its score."""
    graphs = {ENCODER: write_encoder(settings, weights), DECODER: write_decoder(settings, weights)}
    if settings.architecture is Architecture.FAST:
        graphs[SCORE] = write_score(settings, weights)
    return graphs


def write_encoder(settings: AutoencoderSettings, weights: Weights) -> bytes:
    """An encoder as an ONNX file: rates (windows, steps, 4) -> z (windows, embedding)."""
    graph = _Graph(weights, part="encoder")
    if settings.architecture is Architecture.FAST:
        z = _patch_encoder(graph, settings)
        return graph.file((RATES, _rates_shape(settings)), {z: (EMBEDDING, _embedding_shape(settings))})
    fill = settings.padded_steps - settings.steps
    x = graph.add("Slice", RATES, graph.whole(0), graph.whole(INPUT_MODES), graph.whole(2))  # (windows, steps, 3)
    x = graph.add("Transpose", x, perm=[0, 2, 1])  # (windows, 3, steps)
    if fill:
        x = graph.add("Pad", x, graph.whole(0, 0, 0, 0, 0, fill), mode="edge")
    x = graph.add("Unsqueeze", x, graph.whole(2))  # (windows, 3, 1, steps)
    for block in range(len(settings.channels)):
        before, name = x, f"blocks.{block}"
        x = graph.add("Relu", graph.convolution(before, f"{name}.convolution"))
        x = graph.add("Add", x, graph.residual(before, f"{name}.residual"))
        x = graph.add("MaxPool", x, kernel_shape=[1, 2], strides=[1, 2])  # (windows, channels, 1, steps / 2)
    x = graph.add("Flatten", x, axis=1)  # (windows, channels × innermost steps)
    x = graph.linear(graph.add("Relu", graph.linear(x, "hidden")), "embedding")
    return graph.file((RATES, _rates_shape(settings)), {x: (EMBEDDING, _embedding_shape(settings))})


def write_decoder(settings: AutoencoderSettings, weights: Weights) -> bytes:
    """A decoder as an ONNX file: z (windows, embedding) -> rates (windows, steps, 4)."""
    graph = _Graph(weights, part="decoder")
    if settings.architecture is Architecture.FAST:
        x = _patch_decoder(graph, settings, EMBEDDING)
        x = graph.add("Reshape", x, graph.whole(-1, settings.steps, len(MODES)))
        return graph.file((EMBEDDING, _embedding_shape(settings)), {x: (RATES, _rates_shape(settings))})
    x = graph.add("Relu", graph.linear(EMBEDDING, "hidden"))
    x = graph.add("Relu", graph.linear(x, "flat"))
    x = graph.add("Reshape", x, graph.whole(-1, settings.channels[-1], 1, settings.innermost_steps))
    for block in range(len(settings.channels)):
        before, name = x, f"blocks.{block}"
        x = graph.add("Relu", graph.convolution(graph.doubled(before), f"{name}.convolution"))
        x = graph.add("Add", x, graph.doubled(graph.residual(before, f"{name}.residual")))  # (windows, channels, 1, 2 × steps)
    x = graph.add("Squeeze", graph.convolution(x, "modes"), graph.whole(2))  # (windows, 4, padded steps)
    if settings.padded_steps != settings.steps:
        x = graph.add("Slice", x, graph.whole(0), graph.whole(settings.steps), graph.whole(2))
    x = graph.add("Softmax", graph.add("Transpose", x, perm=[0, 2, 1]), axis=2)  # (windows, steps, 4)
    return graph.file((EMBEDDING, _embedding_shape(settings)), {x: (RATES, _rates_shape(settings))})


def write_score(settings: AutoencoderSettings, weights: Weights) -> bytes:
    """All of `fast` as one ONNX file: rates (windows, steps, 4) -> z (windows, embedding) and error (windows,)."""
    graph = _Graph(weights, part="encoder")
    z = _patch_encoder(graph, settings)
    graph.use(weights, part="decoder")
    numbers = settings.steps * len(MODES)
    difference = graph.add(
        "Sub", graph.add("Reshape", RATES, graph.whole(-1, numbers)), _patch_decoder(graph, settings, z)
    )  # (windows, steps × 4)
    error = graph.add("ReduceSumSquare", difference, axes=[1], keepdims=0)
    error = graph.add("Mul", error, graph.number("share", 1 / numbers))
    ends = {z: (EMBEDDING, _embedding_shape(settings)), error: (ERROR, _error_shape())}
    return graph.file((RATES, _rates_shape(settings)), ends)


def _patch_encoder(graph: _Graph, settings: AutoencoderSettings) -> str:
    """The name of z. `other` goes in with weights of zero: that costs less than to copy the three modes out of the four."""
    values, inside = settings.channels[0], PATCH_STEPS * len(MODES)
    x, fill = RATES, settings.padded_steps - settings.steps
    if fill:
        x = graph.add("Pad", x, graph.whole(0, 0, 0, 0, fill, 0), mode="edge")
    x = graph.add("Reshape", x, graph.whole(-1, inside))  # (windows × patches, steps of a patch × 4)
    by_mode = graph.weights["patch.weight"].reshape(values, PATCH_STEPS, INPUT_MODES)
    graph.weights["patch.weight"] = np.pad(by_mode, ((0, 0), (0, 0), (0, 1))).reshape(values, inside)
    x = graph.add("LeakyRelu", graph.linear(x, "patch"), alpha=LEAK)
    x = graph.add("Reshape", x, graph.whole(-1, settings.flat))  # (windows, patches × values)
    x = graph.add("LeakyRelu", graph.linear(x, "hidden"), alpha=LEAK)
    return graph.linear(x, "embedding")


def _patch_decoder(graph: _Graph, settings: AutoencoderSettings, z: str) -> str:
    """The name of the rates that come back, flat: (windows, steps × 4). `other` is one less the modes, in its weights."""
    values, outside = settings.channels[0], PATCH_STEPS * len(MODES)
    x = graph.add("LeakyRelu", graph.linear(z, "hidden"), alpha=LEAK)
    x = graph.add("LeakyRelu", graph.linear(x, "flat"), alpha=LEAK)
    x = graph.add("Reshape", x, graph.whole(-1, values))  # (windows × patches, values)
    weight = graph.weights["modes.weight"].reshape(PATCH_STEPS, INPUT_MODES, values)
    bias = graph.weights["modes.bias"].reshape(PATCH_STEPS, INPUT_MODES)
    weight = np.concatenate([weight, -weight.sum(axis=1, keepdims=True)], axis=1)
    bias = np.concatenate([bias, 1 - bias.sum(axis=1, keepdims=True)], axis=1)
    graph.weights |= {"modes.weight": weight.reshape(outside, values), "modes.bias": bias.reshape(outside)}
    x = graph.add("Reshape", graph.linear(x, "modes"), graph.whole(-1, settings.padded_steps * len(MODES)))
    if settings.padded_steps == settings.steps:
        return x
    return graph.add("Slice", x, graph.whole(0), graph.whole(settings.steps * len(MODES)), graph.whole(1))


class _Graph:
    """A graph under construction: each operation added returns the name of its result."""

    def __init__(self, weights: Weights, *, part: str) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, npt.NDArray[Any]] = {}
        self.before = ""
        self.use(weights, part=part)

    def use(self, weights: Weights, *, part: str) -> None:
        """Take the weights of a part; their constants are named apart from those of a part before it."""
        self.before = f"{part}." if self.nodes else ""
        self.weights = {name.removeprefix(f"{part}."): value for name, value in weights.items() if name.startswith(f"{part}.")}

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def whole(self, *numbers: int) -> str:
        """A constant list of whole numbers."""
        return self._constant("whole_" + "_".join(map(str, numbers)), np.array(numbers, dtype=np.int64))

    def number(self, name: str, value: float) -> str:
        """A constant float."""
        return self._constant(name, np.array([value], dtype=np.float32))

    def linear(self, x: str, name: str) -> str:
        return self.add("Gemm", x, *self._parameters(name), transB=1)

    def convolution(self, x: str, name: str) -> str:
        kernel = self.weights[f"{name}.weight"].shape[2]
        return self.add("Conv", x, *self._parameters(name), kernel_shape=[1, kernel], pads=[0, kernel // 2] * 2)

    def residual(self, x: str, name: str) -> str:
        return self.convolution(x, name) if f"{name}.weight" in self.weights else x

    def doubled(self, x: str) -> str:
        """Each step twice."""
        scales = self._constant("each_step_twice", np.array([1, 1, 1, 2], dtype=np.float32))
        return self.add(
            "Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )

    def file(self, takes: tuple[str, Sequence[str | int]], gives: Mapping[str, tuple[str, Sequence[str | int]]]) -> bytes:
        """The graph from `takes` to the results of these names, each with its name outside and its shape, as a file."""
        from onnx import TensorProto, helper, numpy_helper

        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [gives[name][0] if name in gives else name for name in names]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        first, *ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (takes, *gives.values()))
        graph = helper.make_graph(self.nodes, "stormpetrel", [first], ends, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        return bytes(model.SerializeToString(deterministic=True))

    def _parameters(self, name: str) -> tuple[str, str]:
        weight = self.weights[f"{name}.weight"]
        if weight.ndim == 3:  # a convolution: (outside, inside, kernel) -> (outside, inside, 1, kernel)
            weight = weight[:, :, None]
        bias = self.weights[f"{name}.bias"]
        return self._constant(f"{self.before}{name}.weight", weight), self._constant(f"{self.before}{name}.bias", bias)

    def _constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.constants[name] = np.ascontiguousarray(value)
        return name


def check_graph(content: bytes, settings: AutoencoderSettings, *, written: bytes, part: str) -> None:
    """ModelFormatError where a file (ENCODER, DECODER or SCORE) is not the graph that the same weights make."""
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("Reading a model of traces", "scoring") from None
    if len(content) > LARGEST_BYTES:
        raise ModelFormatError(f"A graph of {len(content):,} bytes is larger than any of ours.")
    try:
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise ModelFormatError(f"A graph of the model cannot be read: {type(error).__name__}.") from None
    for problem in _problems(model, settings, part):
        raise ModelFormatError(f"A graph of the model {problem}.")
    if _in_order(model) != _in_order(onnx.load_model_from_string(written)):
        raise ModelFormatError("A graph of the model is something else than its weights make.")


def _problems(model: Any, settings: AutoencoderSettings, part: str) -> list[str]:
    import onnx

    graph, wrong = model.graph, []
    if foreign := {node.op_type for node in graph.node if node.domain or node.op_type not in OPERATIONS}:
        wrong.append(f"has operations that none of ours has: {', '.join(sorted(foreign))[:80]!r}")
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    if model.functions or graph.sparse_initializer or any(map(_holds_more, attributes)):
        wrong.append("holds another graph or more tensors")
    if any(tensor.data_location != onnx.TensorProto.DEFAULT or tensor.external_data for tensor in graph.initializer):
        wrong.append("keeps numbers in another file")
    rates, z, error = (RATES, _rates_shape(settings)), (EMBEDDING, _embedding_shape(settings)), (ERROR, _error_shape())
    takes, gives = {ENCODER: ([rates], [z]), DECODER: ([z], [rates]), SCORE: ([rates], [z, error])}[part]
    for what, expected, ends in (("takes", takes, graph.input), ("gives", gives, graph.output)):
        if [(end.name, _shape(end)) for end in ends] != expected:
            shapes = " and ".join(f"{name} of shape {' × '.join(map(str, shape))}" for name, shape in expected)
            wrong.append(f"{what} something else than {shapes}")
    return wrong


def _in_order(model: Any) -> bytes:
    return bytes(model.graph.SerializeToString(deterministic=True))


def _holds_more(attribute: Any) -> bool:
    """A tensor in an attribute could point to a file as well; none of our operations has one."""
    return any(attribute.HasField(name) for name in ("g", "t", "sparse_tensor")) or bool(attribute.graphs or attribute.tensors)


def _shape(end: Any) -> list[str | int]:
    import onnx

    tensor = end.type.tensor_type
    if tensor.elem_type != onnx.TensorProto.FLOAT:
        return []
    return [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]


def _rates_shape(settings: AutoencoderSettings) -> list[str | int]:
    return [_WINDOWS, settings.steps, len(MODES)]


def _embedding_shape(settings: AutoencoderSettings) -> list[str | int]:
    return [_WINDOWS, settings.embedding]


def _error_shape() -> list[str | int]:
    return [_WINDOWS]


def _weights(network: AutoencoderNetwork) -> dict[str, npt.NDArray[np.float32]]:
    """The weights by name, on the CPU."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
