"""Small autoencoders and small campaigns: two nodes of eight threads, windows of 16 steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from stormpetrel.records.traces import BAD_IO, GOOD_IO, NO_JOB, Trace, TraceJob, mpi
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings

STEPS = 16
TINY: dict[str, Any] = {
    "steps": STEPS, "channels": (4, 8), "kernel": 3, "hidden": 16, "embedding": 4, "max_epochs": 4, "batch_windows": 32,
    "learning_rate": 0.01,
}  # fmt: skip


def tiny(architecture: Architecture = Architecture.VANILLA, **changes: Any) -> AutoencoderSettings:
    """Settings of an autoencoder that learns in a blink."""
    return AutoencoderSettings(architecture=architecture, **(TINY | changes))


def small_trace(seed: int = 0, *, steps: int = 160, name: str = "run", nodes: int = 2) -> Trace:
    """Nodes of eight threads: four run an MPI job, two Good IO, one Bad IO, one nothing."""
    rng = np.random.default_rng(seed)
    jobs = tuple(TraceJob(str(10 * node + k), kind) for node in range(nodes) for k, kind in enumerate((mpi(4), GOOD_IO, BAD_IO)))
    base = np.array([[0.9, 0.05, 0.01]] * 4 + [[0.5, 0.3, 0.05]] * 2 + [[0.05, 0.2, 0.7], [0.01, 0.01, 0.0]])  # (8, 3)
    waves = 0.08 * np.sin(np.arange(steps)[:, None, None] / 5 + 6 * rng.random((1, 8 * nodes, 1)))  # (steps, threads, 1)
    shares = np.clip(np.tile(base, (nodes, 1)) + waves + 0.01 * rng.standard_normal((steps, 8 * nodes, 3)), 0, 1)
    shares /= np.maximum(shares.sum(axis=2, keepdims=True), 1)
    rates = np.concatenate([shares, 1 - shares.sum(axis=2, keepdims=True)], axis=2).astype(np.float32)
    places = np.array([0, 0, 0, 0, 1, 1, 2, NO_JOB])
    job = np.concatenate([np.where(places < 0, NO_JOB, places + 3 * node) for node in range(nodes)])
    return Trace(
        name=name,
        step_s=1.0,
        time_s=1_000.0 + 1e6 * seed + 1.0 + np.arange(steps),
        nodes=tuple(f"n{node}" for node in range(nodes) for _ in range(8)),
        cpus=tuple(range(8)) * nodes,
        rates=rates,
        job=np.broadcast_to(job.astype(np.int32), (steps, 8 * nodes)).copy(),
        jobs=jobs,
    ).checked()


def small_windows(seed: int = 0, **changes: Any) -> Windows:
    """The windows of a small trace, 20 of each thread by default."""
    return cut_windows(small_trace(seed, **({"steps": 20 * STEPS} | changes)), steps=STEPS)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Compute on one thread, the tests run side by side; nothing to do where there is no torch."""
    if find_spec("torch") is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
