"""Generators by name, and the one in a folder.

name -> new_generator -> generator; folder -> load_generator -> generator.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.learn.saving import METADATA, RETIRED_KINDS, retired_model
from stormpetrel.synth.contract import WorkloadGenerator

DEFAULT: Final = "sessions"
# name -> (module of this room, class). The kind of a saved model is "synth-" + name.
GENERATORS: Final = {
    "sessions": ("sessions.generator", "SessionGenerator"),
    "ctgan": ("rows.neural", "Ctgan"),
    "tvae": ("rows.neural", "Tvae"),
    "copulagan": ("rows.neural", "CopulaGan"),
    "gaussian-copula": ("rows.gaussian_copula", "GaussianCopula"),
    "rows": ("rows.row_generator", "RowBootstrap"),
    "private": ("private.generator", "PrivateGenerator"),
    "sdv-ctgan": ("rows.sdv_adapter", "SdvCtgan"),
    "sdv-tvae": ("rows.sdv_adapter", "SdvTvae"),
    "sdv-copulagan": ("rows.sdv_adapter", "SdvCopulaGan"),
    "sdv-gaussian-copula": ("rows.sdv_adapter", "SdvGaussianCopula"),
}
RETIRED: Final = frozenset({"copulagan-sessions"})  # of earlier versions; where one is in use, the default takes its place


def new_generator(name: str = DEFAULT, **settings: Any) -> WorkloadGenerator:
    """An untrained generator; `settings` are those of its class (`seed`, `epochs`, …)."""
    generator: WorkloadGenerator = _class(name)(**settings)
    return generator


@dataclass(frozen=True, slots=True)
class GeneratorMaker:
    """Makes untrained generators of one name and settings, by seed; can be sent to another process."""

    name: str = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, seed: int) -> WorkloadGenerator:
        """The generator of a seed."""
        return new_generator(self.name, seed=seed, **self.settings)


def load_generator(folder: Path) -> WorkloadGenerator:
    """The generator saved in a folder, whichever it is."""
    try:
        kind = json.loads((folder / METADATA).read_text(encoding="utf-8")).get("kind", "")
    except FileNotFoundError:
        raise ModelFormatError(f"{folder} holds no generator.", hint="Make one: stormpetrel synth fit FILE -o MODEL") from None
    except NotADirectoryError:
        raise ModelFormatError(
            f"{folder} is a file and no model.", hint="A model is a folder: stormpetrel synth fit FILE -o MODEL"
        ) from None
    except (OSError, ValueError, AttributeError, RecursionError):
        raise ModelFormatError(f"{folder / METADATA} cannot be read.", hint="Fit it again: stormpetrel synth fit") from None
    if str(kind) in RETIRED_KINDS:
        raise retired_model(folder, str(kind))
    name = str(kind).removeprefix("synth-")
    if name not in GENERATORS:
        raise ModelFormatError(f"{folder} holds a model of kind {str(kind)[:60]!r}, which is no generator.")
    loaded: WorkloadGenerator = _class(name).load(folder)
    return loaded


def _class(name: str) -> Any:
    if name not in GENERATORS:
        close = difflib.get_close_matches(name, GENERATORS, n=1)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        raise UsageError(f"Unknown generator '{name}'.", hint=f"{hint}Known: {', '.join(GENERATORS)}.")
    module, class_name = GENERATORS[name]
    return getattr(import_module(f"stormpetrel.synth.{module}"), class_name)
