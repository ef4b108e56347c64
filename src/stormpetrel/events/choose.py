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
from stormpetrel.events.count_forecast import CountForecaster
from stormpetrel.events.count_saving import COMBINED_KIND, FORECAST_KIND
from stormpetrel.learn.saving import METADATA


def _supervised() -> SavedModel:
    from stormpetrel.events.lstm import SupervisedLstm

    return SupervisedLstm()


def _recurrent_forecast() -> SavedModel:
    from stormpetrel.events.lstm_forecast import RecurrentForecaster

    return RecurrentForecaster()


DEFAULT: Final = "combined"
FORECAST: Final = "unsupervised"  # what says what was expected, beside a model that does not
MODELS: Final[Mapping[str, Callable[[], SavedModel]]] = {
    "supervised": _supervised,
    "unsupervised": CountForecaster,
    "combined": Combined,
    "recurrent_forecast": _recurrent_forecast,
}


def make(name: str, *, seed: int = 0, sequence: int | None = None) -> SavedModel:
    """A model that has learnt nothing yet; `seed` is for networks, `sequence` (in buckets) for the one of the published study."""
    if name not in MODELS:
        raise UsageError(f"Unknown model of events {name[:80]!r}.", hint=f"Known: {', '.join(MODELS)}.")
    model: Any = MODELS[name]()
    if hasattr(model, "settings"):
        changes = {"seed": seed, "sequence": sequence} if sequence and name == "supervised" else {"seed": seed}
        model.settings = replace(model.settings, **changes)
    made: SavedModel = model
    return made


def load(folder: Path) -> SavedModel:
    """Read a saved model of whatever sort; ModelFormatError says what is wrong with it."""
    kind = _kind_of(folder)
    if kind == COMBINED_KIND:
        return Combined.load(folder)
    if kind in ("events-supervised", "events-recurrent-forecast"):
        from stormpetrel.events.lstm import KIND, SupervisedLstm
        from stormpetrel.events.lstm_forecast import RecurrentForecaster

        return SupervisedLstm.load(folder) if kind == KIND else RecurrentForecaster.load(folder)
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
