"""The autoencoder of CPU windows: how far what a thread did is from what normal jobs do.

Windows -> fit -> TraceAutoencoder -> embed, reconstruct, score. Saved as safetensors, ONNX and JSON; TraceScorer serves the
same folder without torch.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel import __version__
from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks.architecture import (
    FORMAT_VERSION,
    KIND,
    WEIGHTS,
    AutoencoderSettings,
    check_shape,
    flops_per_window,
    graph_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from stormpetrel.engine import Progress
    from stormpetrel.traces.networks.batches import Batch
    from stormpetrel.traces.networks.layers import AutoencoderNetwork
    from stormpetrel.traces.networks.training import TrainingHistory

__all__ = ["TraceAutoencoder", "flops_per_window"]

_AT_ONCE: Final = 1024  # windows per batch of scoring


class TraceAutoencoder:
    """An autoencoder of windows; what it was not taught it gives back badly."""

    network_: AutoencoderNetwork
    history_: TrainingHistory
    data_: dict[str, Any]  # which windows it was trained on, and on what device
    versions_: dict[str, Any]  # of what it was trained with

    def __init__(self, settings: AutoencoderSettings | None = None) -> None:
        self.settings = settings or AutoencoderSettings()

    def fit(
        self,
        train: Windows,
        validation: Windows,
        *,
        device: str = "auto",
        progress: Progress | None = None,
        checkpoint: Path | None = None,
        warm_from: TraceAutoencoder | None = None,
    ) -> Self:
        """Learn from the normal windows of `train`, and stop by those of `validation`.

        With a checkpoint, a training that was stopped goes on where it was; the result is the same as without the stop.
        `warm_from` is a fitted autoencoder of the same shape whose weights are the beginning: yesterday's, for fewer epochs.
        """
        _need_torch()
        from stormpetrel.traces.networks.training import check_windows, device_named, train_network

        where = device_named(device)
        train, validation = train.of_normal(), validation.of_normal()
        check_windows(self.settings, train, validation)
        start = None if warm_from is None else self._start_of(warm_from)
        self.network_, self.history_ = train_network(
            self.settings, train, validation, device=where, progress=progress, checkpoint=checkpoint, start=start
        )
        self.data_ = {"train": _about(train), "validation": _about(validation), "device": where.type}
        self.versions_ = _versions()
        return self

    def _start_of(self, earlier: TraceAutoencoder) -> AutoencoderNetwork:
        shapes = [
            (each.architecture, each.steps, each.channels, each.kernel, each.hidden, each.embedding)
            for each in (self.settings, earlier.settings)
        ]
        if shapes[0] != shapes[1]:
            raise ModelError("The autoencoder to begin with has another shape.", hint="Begin anew: leave warm_from out.")
        return earlier._fitted()

    def embed(self, windows: Windows) -> npt.NDArray[np.float32]:
        """A place in the space of embeddings for each window, after message passing: (windows, embedding)."""
        network = self._fitted()
        return self._computed(windows, (self.settings.embedding,), lambda rates, batch: network.embed(rates, batch.graphs))

    def reconstruct(self, windows: Windows) -> npt.NDArray[np.float32]:
        """Each window as it comes back from its embedding: (windows, steps, 4), sums to one."""
        network = self._fitted()
        return self._computed(windows, (self.settings.steps, 4), lambda rates, batch: network(rates, batch.graphs))

    def score(self, windows: Windows) -> npt.NDArray[np.float64]:
        """The reconstruction error: mean over steps and the four modes of the squared difference; higher is more abnormal."""
        network = self._fitted()

        def error(rates: Tensor, batch: Batch) -> Tensor:
            difference: Tensor = network(rates, batch.graphs) - rates  # (batch, steps, 4)
            return difference.square().mean(dim=(1, 2))

        return self._computed(windows, (), error).astype(np.float64)

    def save(self, folder: Path, others: Mapping[str, bytes] | None = None) -> None:
        """Write the autoencoder to a folder that does not exist yet, with other files (`others`) that belong to it."""
        from safetensors.torch import save

        network = self._fitted()
        weights = {name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}
        metadata = {
            "settings": self.settings.record(),
            "history": {"train": list(self.history_.train), "validation": list(self.history_.validation)},
            "data": self.data_,
            "flop_per_window": flops_per_window(self.settings),
            "versions": self.versions_,
        }
        files = {WEIGHTS: save(weights), **_onnx_files(network), **(others or {})}
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=metadata, files=files)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Read an autoencoder; ModelFormatError says what is wrong with it."""
        _need_torch()
        from safetensors import SafetensorError
        from safetensors.torch import load

        from stormpetrel.traces.networks.layers import network_of
        from stormpetrel.traces.networks.training import TrainingHistory, device_named

        record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
        try:
            model = cls(AutoencoderSettings.of_record(record["settings"]))
            model.history_ = TrainingHistory.of_record(record["history"])
            model.data_, model.versions_ = _table(record["data"]), _table(record["versions"])
            model.network_ = network_of(model.settings, load(files[WEIGHTS])).to(device_named(device)).eval()
        except (ModelError, SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(
                f"The model in {folder} is damaged: {str(error)[:200]}", hint="Train it again: stormpetrel traces train"
            ) from None
        return model

    def _fitted(self) -> AutoencoderNetwork:
        if not hasattr(self, "network_"):
            raise ModelError("This autoencoder has not been trained yet.", hint="Train it first: fit(train, validation).")
        return self.network_

    def _computed(
        self, windows: Windows, shape: tuple[int, ...], compute: Callable[[Tensor, Batch], Tensor]
    ) -> npt.NDArray[np.float32]:
        """What `compute` says of each window, in the order of the windows: (windows, *shape)."""
        import torch

        from stormpetrel.traces.networks.batches import BatchPlan

        check_shape(self.settings, windows)
        device = next(self.network_.parameters()).device
        numbers = graph_numbers(windows, self.settings.architecture)
        plan = BatchPlan(len(windows), numbers, batch_windows=_AT_ONCE, device=device)
        answer = np.empty((len(windows), *shape), dtype=np.float32)
        with torch.inference_mode():
            for batch in plan.in_order():
                rows = batch.rows.cpu().numpy()
                rates = torch.tensor(windows.rates[rows], dtype=torch.float32, device=device)  # (batch, steps, 4)
                answer[rows] = compute(rates, batch).cpu().numpy()
        return answer


def is_trained_on(model: TraceAutoencoder, train: Windows, validation: Windows) -> bool:
    """Whether a model learnt from the normal ones of just these windows."""
    from stormpetrel.traces.networks.training import fingerprint

    fingerprints = {"train": fingerprint(train.of_normal()), "validation": fingerprint(validation.of_normal())}
    return {part: _table(model.data_.get(part, {})).get("digest") for part in fingerprints} == fingerprints


def _need_torch() -> None:
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError("An autoencoder of CPU traces", "traces")


def _onnx_files(network: AutoencoderNetwork) -> dict[str, bytes]:
    """The graphs for the runtime without torch; none where onnx is not installed, and then torch must score."""
    if find_spec("onnx") is None:
        return {}
    from stormpetrel.traces.networks.onnx_files import graphs_onnx

    return graphs_onnx(network)


def _about(windows: Windows) -> dict[str, Any]:
    """Which windows these were, so that a training can be repeated."""
    from stormpetrel.traces.networks.training import fingerprint

    return {
        "traces": list(windows.traces),
        "windows": len(windows),
        "step_s": windows.step_s,
        "first_s": float(windows.start_s.min()),
        "last_s": float(windows.start_s.max() + windows.window_s),
        "digest": fingerprint(windows),
    }


def _versions() -> dict[str, str]:
    import torch

    return {"stormpetrel": __version__, "torch": str(torch.__version__), "numpy": np.__version__, "python": python_version()}


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("a part of its record is no table")
    return value
