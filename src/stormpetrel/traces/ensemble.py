"""Ensembles: the same autoencoder trained from several seeds, to see how much of a figure is chance.

Windows (train, validation) -> train_ensemble -> one model folder per seed. Stopped anywhere, it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.windows import Windows
from stormpetrel.traces.architecture import AutoencoderSettings
from stormpetrel.traces.autoencoder import TraceAutoencoder, is_trained_on

MODELS: Final = 10  # of the published table
_CHECKPOINT: Final = ".checkpoint"


def train_ensemble(
    settings: AutoencoderSettings,
    train: Windows,
    validation: Windows,
    *,
    folder: Path,
    models: int = MODELS,
    device: str = "auto",
    progress: Callable[[float, str], None] | None = None,
) -> list[Path]:
    """Train `models` autoencoders with the seeds from that of the settings on, each in `folder`/ARCHITECTURE-SEED.

    Those that are there already are not trained again; one of other settings or other windows is refused.
    """
    if models < 1:
        raise UsageError(f"An ensemble of {models} models cannot be trained.", hint="Ask for at least one.")
    paths = []
    for number in range(models):
        seeded = replace(settings, seed=settings.seed + number)
        path = folder / f"{settings.architecture}-{seeded.seed}"
        if path.exists():
            _check(path, seeded, train, validation)
        else:
            shown = _part_of(progress, number, models, f"{settings.architecture} {number + 1} of {models}")
            checkpoint = path.with_name(path.name + _CHECKPOINT)
            TraceAutoencoder(seeded).fit(train, validation, device=device, progress=shown, checkpoint=checkpoint).save(path)
        path.with_name(path.name + _CHECKPOINT).unlink(missing_ok=True)
        paths.append(path)
    if progress:
        progress(1.0, f"{settings.architecture}: {models} models")
    return paths


def _check(path: Path, settings: AutoencoderSettings, train: Windows, validation: Windows) -> None:
    model = TraceAutoencoder.load(path)
    if model.settings != settings or not is_trained_on(model, train, validation):
        raise ModelError(
            f"{path} holds a model of other settings or other windows.", hint="Name another folder, or delete this model."
        )


def _part_of(
    progress: Callable[[float, str], None] | None, number: int, models: int, words: str
) -> Callable[[float, str], None] | None:
    """The progress of one model as a part of the whole."""
    if progress is None:
        return None
    return lambda fraction, what: progress((number + fraction) / models, f"{words}, {what}")
