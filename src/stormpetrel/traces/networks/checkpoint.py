"""Checkpoints: everything that a training needs to go on as if it had never been stopped.

TrainingState <-> one safetensors file, replaced whole or not at all; what is no tensor stands in its header as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from stormpetrel.errors import ModelError
from stormpetrel.private_files import write_private

FORMAT_VERSION: Final = 1
_LARGEST_BYTES: Final = 2 * 1024**3

Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class TrainingState:
    """A training between two epochs."""

    weights: Tensors
    best: Tensors  # weights of the epoch with the lowest validation error
    adam_mean: Tensors
    adam_square: Tensors
    adam_steps: int
    generator: bytes
    train: list[float] = field(default_factory=list)  # error per epoch
    validation: list[float] = field(default_factory=list)


def write_checkpoint(path: Path, state: TrainingState, task: str) -> None:
    """Put the state of a training in place of the one before; `task` tells apart what is trained on what."""
    from safetensors.torch import save

    parts = {"weights": state.weights, "best": state.best, "mean": state.adam_mean, "square": state.adam_square}
    named = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    contents = {key: tensor.detach().cpu().contiguous() for key, tensor in named.items()}
    header = {
        "format_version": FORMAT_VERSION,
        "task": task,
        "adam_steps": state.adam_steps,
        "generator": state.generator.hex(),
        "train": state.train,
        "validation": state.validation,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, save(contents, metadata={"state": json.dumps(header)}))


def read_checkpoint(path: Path, task: str) -> TrainingState | None:
    """The state of a training that was stopped, or None if there is none; ModelError if it is another's or damaged."""
    if not path.exists():
        return None
    try:
        header, tensors = _parts(path)
        if header["format_version"] != FORMAT_VERSION or header["task"] != task:
            raise ModelError(
                f"The checkpoint {path} is of a training with other settings or other windows.",
                hint="Delete it to begin anew, or name another.",
            )
        return TrainingState(
            weights=tensors["weights"],
            best=tensors["best"],
            adam_mean=tensors["mean"],
            adam_square=tensors["square"],
            adam_steps=int(header["adam_steps"]),
            generator=bytes.fromhex(header["generator"]),
            train=[float(loss) for loss in header["train"]],
            validation=[float(loss) for loss in header["validation"]],
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"The checkpoint {path} cannot be read: {type(error).__name__}.", hint="Delete it to begin anew."
        ) from None


def _parts(path: Path) -> tuple[dict[str, Any], dict[str, Tensors]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
        raise ValueError("no checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["state"])
            tensors: dict[str, Tensors] = {}
            for key in file.keys():  # noqa: SIM118  (it is no dict)
                part, _, name = key.partition("/")
                tensors.setdefault(part, {})[name] = file.get_tensor(key)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    if not isinstance(header, dict):
        raise TypeError("the header is no record")
    return header, tensors
