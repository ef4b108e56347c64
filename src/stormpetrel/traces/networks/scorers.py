"""Which runtime scores with a saved autoencoder: ONNX Runtime on CPU cores, or torch on a GPU.

folder + device -> load_scorer -> TraceScorer or DeviceScorer, which have the same interface. `auto` is a GPU where there is one
and a torch that can use it; torch is imported only where a GPU can be seen, since that alone takes seconds.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.traces.networks.runtime import TraceScorer

if TYPE_CHECKING:
    from stormpetrel.traces.networks.device_scorer import DeviceScorer

AUTO: Final = "auto"
CPU: Final = "cpu"
_GPU_FILES: Final = ("nvidia[0-9]*", "dxg", "kfd")  # of NVIDIA's driver, of Windows' subsystem, of AMD's driver
_DEV: Final = Path("/dev")


def load_scorer(folder: Path, *, threads: int | None = None, device: str = CPU) -> TraceScorer | DeviceScorer:
    """Read an autoencoder for a device: `cpu`, `auto`, or one that torch knows (`cuda`, `cuda:1`)."""
    if device == CPU or (device == AUTO and not may_use_gpu()):
        return TraceScorer.load(folder, threads=threads)
    if find_spec("torch") is None:
        raise MissingExtraError("Scoring CPU traces on a GPU", "traces")
    from stormpetrel.traces.networks.device_scorer import DeviceScorer
    from stormpetrel.traces.networks.training import device_named

    where = device_named(device)
    if where.type not in (CPU, "cuda"):
        raise UsageError(f"Unknown device {device[:40]!r}.", hint="Known: auto, cpu, cuda.")
    return TraceScorer.load(folder, threads=threads) if where.type == CPU else DeviceScorer.load(folder, device=device)


def may_use_gpu() -> bool:
    """Whether this machine has a GPU and torch; whether they fit each other only torch can say."""
    return find_spec("torch") is not None and any(next(_DEV.glob(name), None) is not None for name in _GPU_FILES)
