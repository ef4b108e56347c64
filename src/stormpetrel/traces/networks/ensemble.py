"""Ensembles: the same autoencoder trained from several seeds, to see how much of a figure is chance.

Windows (train, validation) -> train_ensemble -> one model folder per seed. Stopped anywhere, it goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.records.windows import Windows
from stormpetrel.traces.networks.architecture import AutoencoderSettings
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder, is_trained_on

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
    progress: Progress = no_progress,
    engine: Engine = ONE_PROCESS,
) -> list[Path]:
    """Train `models` autoencoders with the seeds from that of the settings on, each in `folder`/ARCHITECTURE-SEED.

    Those that are there already are not trained again; one of other settings or other windows is refused.
    """
    if models < 1:
        raise UsageError(f"An ensemble of {models} models cannot be trained.", hint="Ask for at least one.")
    work = _OneModel(settings, train, validation, folder, device)
    first, kind = settings.seed, settings.architecture
    seeds = range(first, first + models)
    return list(engine.map(work, seeds, name=lambda seed: f"{kind} {seed - first + 1} of {models}", progress=progress))


@dataclass(frozen=True, slots=True)
class _OneModel:
    """Trains the model of one seed, goes on with one that was stopped, or finds the one that is there; its folder."""

    settings: AutoencoderSettings
    train: Windows
    validation: Windows
    folder: Path
    device: str

    def __call__(self, seed: int, progress: Progress) -> Path:
        settings = replace(self.settings, seed=seed)
        path = self.folder / f"{settings.architecture}-{seed}"
        checkpoint = path.with_name(path.name + _CHECKPOINT)
        if path.exists():
            _check(path, settings, self.train, self.validation)
        else:
            model = TraceAutoencoder(settings)
            model.fit(self.train, self.validation, device=self.device, progress=progress, checkpoint=checkpoint).save(path)
        checkpoint.unlink(missing_ok=True)
        return path


def _check(path: Path, settings: AutoencoderSettings, train: Windows, validation: Windows) -> None:
    model = TraceAutoencoder.load(path)
    if model.settings != settings or not is_trained_on(model, train, validation):
        raise ModelError(
            f"{path} holds a model of other settings or other windows.", hint="Name another folder, or delete this model."
        )
