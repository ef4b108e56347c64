"""Which models of events there are, and which one a site gets unless it asks for another.

name -> make -> model; folder -> load -> model. Networks are imported when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.events.combined import Combined
from stormpetrel.events.contract import SavedModel
from stormpetrel.events.counts.forecast import CountForecaster
from stormpetrel.events.counts.saving import COMBINED_KIND, FORECAST_KIND
from stormpetrel.events.recurrent.lstm import SupervisedLstm
from stormpetrel.learn.saving import METADATA, RETIRED_KINDS, retired_model


def _supervised() -> SavedModel:
    return SupervisedLstm()


DEFAULT: Final = "combined"
FORECAST: Final = "unsupervised"  # states what was expected, for a model that does not
MODELS: Final[Mapping[str, Callable[[], SavedModel]]] = {
    "supervised": _supervised,
    "unsupervised": CountForecaster,
    "combined": Combined,
}
RETIRED: Final = frozenset({"recurrent_forecast"})  # of earlier versions; where one is in use, the default takes its place


def make(name: str, *, seed: int = 0, sequence: int | None = None) -> SavedModel:
    """A model that has learnt nothing yet; `seed` is for networks, `sequence` (in buckets) for the one of the published study."""
    if name not in MODELS:
        raise UsageError(f"Unknown model of events {name[:80]!r}.", hint=f"Known: {', '.join(MODELS)}.")
    model: Any = MODELS[name]()
    if hasattr(model, "settings"):
        changes = {"seed": seed, "sequence": sequence} if sequence and name == "supervised" else {"seed": seed}
        model.settings = replace(model.settings, **changes)
    result: SavedModel = model
    return result


def load(folder: Path) -> SavedModel:
    """Read a saved model of whatever sort; ModelFormatError says what is wrong with it."""
    kind = _kind_of(folder)
    if str(kind) in RETIRED_KINDS:
        raise retired_model(folder, str(kind))
    if kind == COMBINED_KIND:
        return Combined.load(folder)
    if kind == "events-supervised":
        return SupervisedLstm.load(folder)
    if kind not in (FORECAST_KIND, None):
        raise ModelFormatError(
            f"{folder} holds a model of kind {str(kind)[:80]!r}, which is none of events.",
            hint="Train one: stormpetrel events train",
        )
    return CountForecaster.load(folder)


def _kind_of(folder: Path) -> object:
    """The kind that the record of a folder names; None where it cannot be read: loading then says why."""
    try:
        record = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return record.get("kind") if isinstance(record, dict) else None
