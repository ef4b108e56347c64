"""Scoring on a device: saved autoencoders, one or an ensemble, that score windows on a GPU, or by torch on the CPU.

model folders -> DeviceEnsemble.load -> embed_and_score: (models, windows, embedding) and (models, windows). DeviceScorer is one
model with the interface of TraceScorer. Windows travel in portions through two pinned buffers: while one is computed, the next is
copied. Scores in 32 bits are those of TraceScorer to `FULL_TOLERANCE`, those in 16 bits to `HALF_TOLERANCE`, each relative and
beside `ABSOLUTE`; a window whose numbers do not fit into 16 bits is scored again in 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes
from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks.architecture import (
    FORMAT_VERSION,
    KIND,
    WEIGHTS,
    AutoencoderSettings,
    check_shape,
    graph_numbers,
)
from stormpetrel.traces.networks.batches import BatchPlan
from stormpetrel.traces.networks.layers import AutoencoderNetwork, network_of
from stormpetrel.traces.networks.stacked import Precision, StackedNetwork
from stormpetrel.traces.networks.training import device_named

if TYPE_CHECKING:
    from collections.abc import Mapping

FULL_TOLERANCE: Final = 1e-4
HALF_TOLERANCE: Final = 0.01
ABSOLUTE: Final = 1e-6
PORTION: Final = {"cuda": 8192, "cpu": 256}  # windows at once
_GRAPHS_AT_ONCE: Final = 65_536  # windows whose threads hear of each other at once

Array = npt.NDArray[np.float32]
Compute = Callable[[Tensor], tuple[Tensor, ...]]


class DeviceEnsemble:
    """Autoencoders of the same settings (but the seed) that score the same windows side by side."""

    def __init__(
        self,
        networks: Sequence[AutoencoderNetwork],
        *,
        device: torch.device,
        precision: Precision = Precision.FULL,
        portion: int = 0,
    ) -> None:
        """`portion` is how many windows go through at once; the device's usual number if left out."""
        self.settings = networks[0].settings
        self.models, self.device = len(networks), device
        self.portion = portion or PORTION[device.type]
        self.precision = precision
        self._weights: list[Mapping[str, Tensor]] = [network.state_dict() for network in networks]
        self._stack = StackedNetwork(self.settings, self._weights, device=device, precision=self.precision)
        self._messages = [
            network.message_passing.to(device).eval() for network in networks if network.message_passing is not None
        ]

    @classmethod
    def load(
        cls, folders: Sequence[Path], *, device: str = "auto", precision: Precision = Precision.FULL, portion: int = 0
    ) -> Self:
        """Read autoencoders that were saved; ModelError where they are of different settings."""
        networks = [_network(folder) for folder in folders]
        if not networks:
            raise ModelError("An ensemble of no models cannot score.", hint="Name at least one model folder.")
        for folder, network in zip(folders, networks, strict=True):
            if _shape(network.settings) != _shape(networks[0].settings):
                raise ModelError(f"The model in {folder} has another shape than that in {folders[0]}.", hint="Load them apart.")
        return cls(networks, device=device_named(device), precision=precision, portion=portion)

    def embed_and_score(self, windows: Windows) -> tuple[Array, Array]:
        """Embeddings (models, windows, embedding) and scores (models, windows) of all models."""
        z, scores = self._computed(windows, with_embedding=True)
        assert z is not None
        return z, scores

    def embed(self, windows: Windows) -> Array:
        """Embeddings of all models: (models, windows, embedding)."""
        return self.embed_and_score(windows)[0]

    def score(self, windows: Windows) -> Array:
        """The reconstruction errors of all models: (models, windows)."""
        return self._computed(windows, with_embedding=False)[1]

    def _computed(self, windows: Windows, *, with_embedding: bool) -> tuple[Array | None, Array]:
        check_shape(self.settings, windows.take(slice(0)))
        rates = np.ascontiguousarray(windows.rates, dtype=np.float32)  # (windows, steps, 4)
        numbers = graph_numbers(windows, self.settings.architecture) if self._messages else None
        with torch.inference_mode(), _exact_products():
            z, scores = self._of_stack(rates, numbers, self._stack, with_embedding)
            wrong = ~np.isfinite(scores).all(axis=0)
            if not wrong.any():
                return z, scores
            check_shape(self.settings, windows)  # only now is it worth looking at every number
            if self.precision is Precision.HALF:  # a number did not fit into 16 bits
                exact = StackedNetwork(self.settings, self._weights, device=self.device, precision=Precision.FULL)
                if numbers is not None:  # neighbours of such a window are wrong as well
                    return self._of_stack(rates, numbers, exact, with_embedding)
                exact_z, scores[:, wrong] = self._of_stack(rates[wrong], None, exact, with_embedding)
                if z is not None and exact_z is not None:
                    z[:, wrong] = exact_z
        return z, scores

    def _of_stack(
        self, rates: Array, numbers: npt.NDArray[np.int64] | None, stack: StackedNetwork, with_embedding: bool
    ) -> tuple[Array | None, Array]:
        if numbers is not None:
            return self._with_messages(rates, numbers, stack)

        def compute(portion: Tensor) -> tuple[Tensor, ...]:
            z = stack.encode(portion)
            error = stack.error(z, portion)
            return (error, z) if with_embedding else (error,)

        scores, *embeddings = self._streamed(rates, compute, ((), (self.settings.embedding,))[: 1 + with_embedding])
        return (embeddings[0] if embeddings else None), scores

    def reconstruct(self, windows: Windows) -> Array:
        """Each window as it comes back from each model, in 32 bits: (models, windows, steps, 4), sums to one."""
        exact = StackedNetwork(self.settings, self._weights, device=self.device, precision=Precision.FULL)
        z = self.embed(windows)
        answer = np.empty((self.models, *windows.rates.shape), dtype=np.float32)
        with torch.inference_mode(), _exact_products():
            for first in range(0, len(windows), self.portion):
                rows = slice(first, first + self.portion)
                answer[:, rows] = exact.decode(torch.from_numpy(z[:, rows]).to(self.device)).cpu().numpy()
        return answer

    def embed_and_score_rates(self, rates: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rates (windows, steps, 4) that are on the device already, all at once; for networks without messages.

        What does not fit into 16 bits is not scored again here: its score is infinite, or not a number.
        """
        if self._messages:
            raise ModelError("Windows of a network with message passing are scored with their neighbours: embed_and_score.")
        z = self._stack.encode(rates)
        return z, self._stack.error(z, rates)

    def _with_messages(self, rates: Array, numbers: npt.NDArray[np.int64], stack: StackedNetwork) -> tuple[Array, Array]:
        """Encoders over all windows, messages between them, decoders over all windows."""
        (first,) = self._streamed(rates, lambda portion: (stack.encode(portion),), ((self.settings.embedding,),))
        z = torch.from_numpy(first).to(self.device)
        plan = BatchPlan(len(rates), numbers, batch_windows=_GRAPHS_AT_ONCE, device=self.device)
        for batch in plan.in_order():
            assert batch.graphs is not None
            for model, messages in enumerate(self._messages):
                z[model, batch.rows] = messages(z[model, batch.rows], batch.graphs)
        done = 0

        def compute(portion: Tensor) -> tuple[Tensor, ...]:
            nonlocal done
            rows = slice(done, done + len(portion))
            done += len(portion)
            return (stack.error(z[:, rows], portion),)

        (scores,) = self._streamed(rates, compute, ((),))
        return z.cpu().numpy(), scores

    def _streamed(self, rates: Array, compute: Compute, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """What `compute` says of all windows, portion by portion in their order: (models, windows, *shape) for each shape."""
        answers = [torch.empty((self.models, len(rates), *shape)) for shape in shapes]
        run = _on_gpu if self.device.type == "cuda" else _on_cpu
        for rows, results in run(rates, compute, self.device, self.portion):
            for answer, result in zip(answers, results, strict=True):
                answer[:, rows].copy_(result)
        return [answer.numpy() for answer in answers]


class DeviceScorer:
    """One autoencoder on a device, as TraceScorer is one on CPUs."""

    def __init__(self, ensemble: DeviceEnsemble) -> None:
        self._ensemble = ensemble

    @classmethod
    def load(cls, folder: Path, *, device: str = "auto", precision: Precision = Precision.FULL) -> Self:
        """Read an autoencoder from its folder."""
        return cls(DeviceEnsemble.load([folder], device=device, precision=precision))

    @property
    def settings(self) -> AutoencoderSettings:
        """What it is."""
        return self._ensemble.settings

    def embed(self, windows: Windows) -> Array:
        """A place in the space of embeddings for each window, after message passing: (windows, embedding)."""
        return self._ensemble.embed(windows)[0]

    def reconstruct(self, windows: Windows) -> Array:
        """Each window as it comes back from its embedding: (windows, steps, 4), sums to one."""
        answer: Array = self._ensemble.reconstruct(windows)[0]
        return answer

    def score(self, windows: Windows) -> npt.NDArray[np.float64]:
        """The reconstruction error: mean over steps and the four modes of the squared difference; higher is more abnormal."""
        return self._ensemble.score(windows)[0].astype(np.float64)

    def embed_and_score(self, windows: Windows) -> tuple[Array, npt.NDArray[np.float64]]:
        """Both at once, for what the embedding alone costs twice."""
        z, scores = self._ensemble.embed_and_score(windows)
        return z[0], scores[0].astype(np.float64)


class DeviceSlidingScores:
    """The last window of each thread, kept on the device: a step of all threads goes in, a score of each model comes out."""

    def __init__(self, ensemble: DeviceEnsemble, threads: int) -> None:
        self._ensemble, self.threads = ensemble, threads
        steps = ensemble.settings.steps
        self._ring = torch.zeros((threads, steps, 4), device=ensemble.device)  # (threads, steps, 4)
        self._seen = torch.zeros(threads, dtype=torch.int32, device=ensemble.device)  # steps since the last gap
        self._next = 0

    def push(self, rates: Array) -> Tensor:
        """Take a step of every thread (threads, 4), NaN where it was not seen; return errors (models, threads) on the device.

        They are NaN where a thread has not been seen for a whole window; they may still be being computed.
        """
        if rates.shape != (self.threads, 4):
            raise ModelError(f"A step of {self.threads} threads has the shape {self.threads} × 4, not {rates.shape}.")
        with torch.inference_mode(), _exact_products():
            step = _tensor(np.ascontiguousarray(rates, dtype=np.float32)).to(self._ring.device, non_blocking=True)
            is_seen = step.isfinite().all(dim=1)
            self._seen = torch.where(is_seen, self._seen + 1, 0)
            self._ring[:, self._next] = torch.where(is_seen[:, None], step, 0.0)
            self._next = (self._next + 1) % self._ring.shape[1]
            return self._scores()

    def _scores(self) -> Tensor:
        scores = torch.empty((self._ensemble.models, self.threads), device=self._ring.device)
        for first in range(0, self.threads, self._ensemble.portion):
            rows = slice(first, first + self._ensemble.portion)
            ring = self._ring[rows]
            ordered = torch.cat([ring[:, self._next :], ring[:, : self._next]], dim=1)  # (portion, steps, 4), oldest first
            scores[:, rows] = self._ensemble.embed_and_score_rates(ordered)[1]
        return torch.where(self._seen >= self._ring.shape[1], scores, torch.nan)


@dataclass(slots=True)
class _Slot:
    """A portion on its way: pinned memory, its copy on the device, and what comes back."""

    pinned: Tensor
    on_device: Tensor
    copied: Any  # events of CUDA
    done: Any
    rows: slice | None = None
    results: tuple[Tensor, ...] = ()


def _on_gpu(rates: Array, compute: Compute, device: torch.device, portion: int) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Copy and compute at the same time, two portions under way; results in the order of the windows."""
    shape = (min(portion, max(1, len(rates))), *rates.shape[1:])
    copying, computing = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    slots = [
        _Slot(torch.empty(shape, pin_memory=True), torch.empty(shape, device=device), torch.cuda.Event(), torch.cuda.Event())
        for _ in range(2)
    ]
    copying.wait_stream(computing)
    for number, first in enumerate(range(0, len(rates), portion)):
        slot = slots[number % 2]
        if slot.rows is not None:
            yield _finished(slot)
        rows = slice(first, min(first + portion, len(rates)))
        size = rows.stop - rows.start
        slot.pinned[:size].copy_(_tensor(rates[rows]))
        with torch.cuda.stream(copying):
            slot.on_device[:size].copy_(slot.pinned[:size], non_blocking=True)
            slot.copied.record(copying)
        computing.wait_event(slot.copied)
        on_device = compute(slot.on_device[:size])
        if not slot.results or slot.results[0].shape[1] != size:
            slot.results = tuple(torch.empty(result.shape, pin_memory=True) for result in on_device)
        for result, pinned in zip(on_device, slot.results, strict=True):
            pinned.copy_(result, non_blocking=True)
        slot.done.record(computing)
        slot.rows = rows
    last = -(-len(rates) // portion)
    for number in range(max(0, last - 2), last):
        yield _finished(slots[number % 2])


def _finished(slot: _Slot) -> tuple[slice, tuple[Tensor, ...]]:
    assert slot.rows is not None
    slot.done.synchronize()
    return slot.rows, slot.results


def _on_cpu(rates: Array, compute: Compute, device: torch.device, portion: int) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    for first in range(0, len(rates), portion):
        rows = slice(first, min(first + portion, len(rates)))
        yield rows, compute(_tensor(rates[rows]).to(device))


def _tensor(part: Array) -> Tensor:
    """A part of an array as torch sees it; torch takes no array that must not be written to, as a table's columns are."""
    return torch.from_numpy(part if part.flags.writeable else part.copy())


@contextmanager
def _exact_products() -> Iterator[None]:
    """While it lasts, products of 32-bit numbers on a GPU are not rounded to fewer bits; 16-bit ones are summed in 32."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, matmul.allow_fp16_reduced_precision_reduction)
    matmul.allow_tf32 = cudnn.allow_tf32 = matmul.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, matmul.allow_fp16_reduced_precision_reduction = before


def _network(folder: Path) -> AutoencoderNetwork:
    if find_spec("safetensors") is None:
        raise MissingExtraError("Scoring CPU traces", "scoring")
    from safetensors import SafetensorError
    from safetensors.torch import load

    record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
    try:
        settings = AutoencoderSettings.of_record(record["settings"])
        network = network_of(settings, load(files[WEIGHTS]))
        if not all(tensor.isfinite().all() for tensor in network.state_dict().values()):
            raise ValueError("some weights are not numbers")
    except (ModelError, SafetensorError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(
            f"The model in {folder} is damaged: {str(error)[:200]}", hint="Train it again: stormpetrel traces train"
        ) from None
    return network.eval()


def _shape(settings: AutoencoderSettings) -> tuple[object, ...]:
    return (
        settings.architecture, settings.steps, settings.channels, settings.kernel, settings.hidden, settings.embedding
    )  # fmt: skip
