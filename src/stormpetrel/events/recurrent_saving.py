"""Folders of the recurrent networks: weights as safetensors, the rest as JSON.

weights, record <-> folder. Reading needs safetensors, not torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import MissingExtraError, ModelFormatError
from stormpetrel.events.surprise import MemoryScale, SurpriseScale
from stormpetrel.learn.saving import load_model_bytes, save_model

FORMAT_VERSION: Final = 1
WEIGHTS: Final = "weights.safetensors"
_MOST_MEMORIES: Final = 8
_MOST_KNOTS: Final = 4096
_LONGEST_HOURS: Final = 1000.0

Weights = dict[str, npt.NDArray[np.float32]]


def need_torch() -> None:
    """MissingExtraError where a recurrent network cannot be trained."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError("Training a recurrent network of events", "traces")


def save_weights(folder: Path, kind: str, weights: Mapping[str, npt.NDArray[np.float32]], record: Mapping[str, Any]) -> None:
    """Write a network to a folder that does not exist yet, whole or not at all."""
    from safetensors.numpy import save

    contents = save({name: np.ascontiguousarray(weight, dtype=np.float32) for name, weight in weights.items()})
    save_model(folder, kind=kind, format_version=FORMAT_VERSION, metadata=record, files={WEIGHTS: contents})


def load_weights(folder: Path, kind: str) -> tuple[dict[str, Any], Weights]:
    """The record and the weights of a network; ModelFormatError says what is wrong with it."""
    if find_spec("safetensors") is None:
        raise MissingExtraError("A recurrent network of events", "scoring")
    from safetensors import SafetensorError
    from safetensors.numpy import load

    record, files = load_model_bytes(folder, kind=kind, format_version=FORMAT_VERSION)
    try:
        weights = load(files[WEIGHTS])
        if any(weight.dtype != np.float32 for weight in weights.values()):
            raise ValueError("its weights are not of 32 bits")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, error) from None
    return record, weights


def damaged(folder: Path, error: Exception) -> ModelFormatError:
    """What to raise where a network cannot be made of what a folder holds."""
    return ModelFormatError(
        f"The model in {folder} is damaged: {str(error)[:200]}", hint="Train it again: stormpetrel events train"
    )


def scale_record(scale: SurpriseScale) -> list[dict[str, Any]]:
    """How surprises scatter in calm operation, as JSON can hold it."""
    return [
        {
            "hours": one.hours,
            "centre": one.centre.tolist(),
            "precision": one.precision.tolist(),
            "knots": one.knots.tolist(),
            "tail": one.tail,
        }
        for one in scale.memories
    ]


def scale_of_record(record: object, kinds: int, bucket_s: int) -> SurpriseScale:
    """The scale that a record holds; ValueError, KeyError or TypeError where it is none."""
    if not isinstance(record, list) or not 1 <= len(record) <= _MOST_MEMORIES:
        raise ValueError("it does not say how surprises scatter")
    memories = []
    for one in record:
        hours, tail = float(one["hours"]), float(one["tail"])
        centre, precision, knots = (np.array(one[name], dtype=np.float64) for name in ("centre", "precision", "knots"))
        right = (
            centre.shape == (kinds,) and precision.shape == (kinds, kinds) and knots.ndim == 1 and 1 <= knots.size <= _MOST_KNOTS
        )
        finite = all(np.isfinite(part).all() for part in (centre, precision, knots, hours, tail))
        if not right or not finite or not 0 < hours <= _LONGEST_HOURS or tail <= 0:
            raise ValueError("what it says of how surprises scatter does not fit its kinds")
        memories.append(MemoryScale(hours, centre, precision, knots, tail))
    return SurpriseScale(bucket_s, tuple(memories))
