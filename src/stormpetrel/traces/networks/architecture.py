"""Architecture: which autoencoders there are, their sizes, and what everything that scores windows promises.

AutoencoderSettings -> layer sizes, FLOP per window. Nothing here needs torch: the runtime without it reads the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelError
from stormpetrel.records.traces import MODES
from stormpetrel.records.windows import WINDOW_STEPS, Windows

KIND: Final = "traces"
FORMAT_VERSION: Final = 1
WEIGHTS: Final = "weights.safetensors"
ENCODER: Final = "encoder.onnx"
DECODER: Final = "decoder.onnx"
SCORE: Final = "score.onnx"  # encoder, decoder and score in one graph; `fast` alone has it
INPUT_MODES: Final = 3  # user, system, iowait; `other` is what they leave of one
SHORTEST_STEPS: Final = 8
LEAK: Final = 0.1  # slope of the units of `fast` below zero
PATCH_STEPS: Final = 10  # steps that `fast` sees as one; all patches of a window share their first and last layer
ATTENTION_HIDDEN: Final = 16  # hidden units of the weight between two threads

_LARGEST: Final = {
    "steps": 4096,
    "kernel": 31,
    "hidden": 4096,
    "embedding": 512,
    "seed": 2**31 - 1,
    "max_epochs": 100_000,
    "patience": 100_000,
    "batch_windows": 1_000_000,
}
_LARGEST_CHANNELS: Final = 512
_MOST_BLOCKS: Final = 5


class Architecture(StrEnum):
    """Which threads an autoencoder puts side by side."""

    VANILLA = "vanilla"  # each thread alone
    NODE_GNN = "node_gnn"  # with the threads of its node
    JOB_GNN = "job_gnn"  # with the threads of its job on the node
    FAST = "fast"  # each thread alone, in patches of steps, without convolutions and softmax

    @property
    def passes_messages(self) -> bool:
        """Whether threads hear of each other."""
        return self in (Architecture.NODE_GNN, Architecture.JOB_GNN)


@dataclass(frozen=True, slots=True)
class AutoencoderSettings:
    """Everything that decides what an autoencoder of windows becomes; saved beside its weights.

    The defaults need 5.3 MFLOP per window of 100 steps, and .38 where the architecture is `fast`. `channels` has one entry per
    block; each block halves the time axis. `fast` has no blocks: the first of `channels` is the number of values per patch, and
    `kernel` is not used.
    """

    architecture: Architecture = Architecture.VANILLA
    steps: int = WINDOW_STEPS
    channels: tuple[int, ...] = (32, 64)
    kernel: int = 5
    hidden: int = 256  # of the MLP between the last block and the embedding
    embedding: int = 16
    seed: int = 0
    max_epochs: int = 150
    patience: int = 12  # epochs without a better validation error before training stops
    batch_windows: int = 256
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ModelError(f"The settings of an autoencoder have {problem}.")

    def _problems(self) -> list[str]:
        whole = {name: getattr(self, name) for name in _LARGEST}
        wrong = [
            f"{name} {value!r}; it is a whole number from {_smallest(name)} to {_LARGEST[name]:,}"
            for name, value in whole.items()
            if type(value) is not int or not _smallest(name) <= value <= _LARGEST[name]
        ]
        if not wrong and self.kernel % 2 == 0:
            wrong.append(f"kernel {self.kernel}; it must be odd")
        if type(self.architecture) is not Architecture:
            wrong.append(f"architecture {self.architecture!r}; known are {', '.join(Architecture)}")
        if not _are_channels(self.channels):
            wrong.append(f"channels {self.channels!r}; they are 1 to {_MOST_BLOCKS} whole numbers up to {_LARGEST_CHANNELS}")
        if type(self.learning_rate) is not float or not 0 < self.learning_rate <= 1:
            wrong.append(f"learning_rate {self.learning_rate!r}; it lies above 0 and is at most 1")
        return wrong

    @property
    def padded_steps(self) -> int:
        """The steps that the network sees: the next multiple of what its blocks divide by; the last step is repeated to fill."""
        unit = PATCH_STEPS if self.architecture is Architecture.FAST else 1 << len(self.channels)
        return -(-self.steps // unit) * unit

    @property
    def innermost_steps(self) -> int:
        """The steps that are left after the last block of the encoder; of `fast`, its patches."""
        if self.architecture is Architecture.FAST:
            return self.padded_steps // PATCH_STEPS
        return self.padded_steps >> len(self.channels)

    @property
    def flat(self) -> int:
        """How many numbers the last block of the encoder gives for a window."""
        return self.innermost_steps * self.channels[0 if self.architecture is Architecture.FAST else -1]

    def record(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return {**asdict(self), "architecture": self.architecture.value, "channels": list(self.channels)}

    @classmethod
    def of_record(cls, record: object) -> Self:
        """The settings that a record holds; ModelError says what is wrong with it."""
        names = {field.name for field in fields(cls)}
        if not isinstance(record, Mapping) or set(record) != names:
            raise ModelError("The record of an autoencoder's settings does not name each of them once.")
        known = {item.value: item for item in Architecture}
        architecture, channels = record["architecture"], record["channels"]
        values = {
            **record,
            "architecture": known.get(architecture, architecture) if isinstance(architecture, str) else architecture,
            "channels": tuple(channels) if isinstance(channels, list) else channels,
        }
        return cls(**values)


class Scorer(Protocol):
    """Whatever turns windows into embeddings and scores: the network itself, or the runtime without torch."""

    @property
    def settings(self) -> AutoencoderSettings:
        """What it is."""
        ...

    def embed(self, windows: Windows) -> npt.NDArray[np.float32]:
        """A place in the space of embeddings for each window: (windows, embedding)."""
        ...

    def reconstruct(self, windows: Windows) -> npt.NDArray[np.float32]:
        """Each window as it comes back from its embedding: (windows, steps, 4), sums to one."""
        ...

    def score(self, windows: Windows) -> npt.NDArray[np.float64]:
        """The reconstruction error: mean over steps and modes of the squared difference; higher is more abnormal."""
        ...


def flops_per_window(settings: AutoencoderSettings) -> int:
    """FLOP of encoder and decoder for one window, a multiplication with its addition counted as two; without message passing."""
    if settings.architecture is Architecture.FAST:
        patches = 2 * settings.innermost_steps * INPUT_MODES * PATCH_STEPS * settings.channels[0]
        return 2 * (patches + 2 * settings.flat * settings.hidden + 2 * settings.hidden * settings.embedding)
    kernel, flop, steps = settings.kernel, 0, settings.padded_steps
    for inside, outside in pairwise((INPUT_MODES, *settings.channels)):
        flop += _convolution(steps, inside, outside, kernel) + _projection(steps, inside, outside)
        steps //= 2
    flop += 2 * (2 * settings.flat * settings.hidden + 2 * settings.hidden * settings.embedding)  # the MLPs of both
    for inside, outside in pairwise(decoder_channels(settings)):
        flop += _convolution(2 * steps, inside, outside, kernel) + _projection(steps, inside, outside)
        steps *= 2
    return flop + _convolution(steps, settings.channels[0], len(MODES), kernel)


def graph_numbers(windows: Windows, architecture: Architecture) -> npt.NDArray[np.int64] | None:
    """A number per window; equal numbers are threads that hear of each other. None where every thread is alone."""
    match architecture:
        case Architecture.NODE_GNN:
            return windows.node_graphs()
        case Architecture.JOB_GNN:
            return windows.job_graphs()
        case _:
            return None


def check_shape(settings: AutoencoderSettings, windows: Windows) -> None:
    """ModelError where the windows are not what this autoencoder sees."""
    if windows.steps != settings.steps:
        raise ModelError(
            f"The windows have {windows.steps} steps, and the autoencoder sees {settings.steps}.",
            hint=f"Cut windows of {settings.steps} steps, or train one for {windows.steps}.",
        )
    if not np.isfinite(windows.rates).all():
        raise ModelError("Some windows have steps that are not numbers.", hint="Leave out windows with gaps: cut_windows does.")


def decoder_channels(settings: AutoencoderSettings) -> tuple[int, ...]:
    """Channels before and after each block of the decoder: the encoder's backwards; the last block keeps its number."""
    return (*reversed(settings.channels), settings.channels[0])


def _convolution(steps: int, inside: int, outside: int, kernel: int) -> int:
    return 2 * steps * inside * outside * kernel


def _projection(steps: int, inside: int, outside: int) -> int:
    """A residual goes through a 1 × 1 convolution where the number of channels changes, and costs nothing elsewhere."""
    return _convolution(steps, inside, outside, 1) if inside != outside else 0


def _smallest(name: str) -> int:
    return {"steps": SHORTEST_STEPS, "seed": 0}.get(name, 1)


def _are_channels(channels: object) -> bool:
    return (
        isinstance(channels, tuple)
        and 1 <= len(channels) <= _MOST_BLOCKS
        and all(type(number) is int and 1 <= number <= _LARGEST_CHANNELS for number in channels)
    )
