"""Folders of the statistical forecaster and of the combined alarm: numbers only, in the JSON of the record.

CountForecaster, Combined <-> folder. Whatever a record holds is checked before it is used: shapes, finite numbers, ranges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from stormpetrel.errors import ModelFormatError
from stormpetrel.events.combined import Combined, Correction
from stormpetrel.events.counts.forecast import CountForecaster, CountRegression, width_ahead, width_with_others
from stormpetrel.events.counts.memory import Rhythm, slots_per_week
from stormpetrel.events.surprise import CUT, MemoryScale, SurpriseScale
from stormpetrel.learn.saving import load_model, save_model
from stormpetrel.records.arrays import Floats

FORECAST_KIND: Final = "events-count-forecast"
COMBINED_KIND: Final = "events-combined"
FORMAT_VERSION: Final = 1
_MOST_KINDS: Final = 500
_AGAIN: Final = "Train it again: stormpetrel events train"


def save_forecaster(model: CountForecaster, folder: Path) -> None:
    """Write a forecaster to a folder that is not there yet."""
    save_model(folder, kind=FORECAST_KIND, format_version=FORMAT_VERSION, metadata=_forecast_record(model), files={})


def load_forecaster(folder: Path) -> CountForecaster:
    """Read a forecaster; ModelFormatError says what is wrong with the folder."""
    record, _ = load_model(folder, kind=FORECAST_KIND, format_version=FORMAT_VERSION)
    return _forecaster(_Reading(record, folder))


def save_combined(model: Combined, folder: Path) -> None:
    """Write a combined alarm to a folder that is not there yet."""
    correction = model.correction_
    metadata = {
        "forecast": _forecast_record(model.base_),
        "outages": model.outages_,
        "trust": model.trust_,
        "correction": None
        if correction is None
        else {"offset": correction.offset, "slope": correction.slope, "weights": correction.weights.tolist()},
    }
    save_model(folder, kind=COMBINED_KIND, format_version=FORMAT_VERSION, metadata=metadata, files={})


def load_combined(folder: Path) -> Combined:
    """Read a combined alarm; ModelFormatError says what is wrong with the folder."""
    record, _ = load_model(folder, kind=COMBINED_KIND, format_version=FORMAT_VERSION)
    reading = _Reading(record, folder)
    base = _forecaster(reading.part("forecast"))
    correction = None
    if record.get("correction") is not None:
        part = reading.part("correction")
        weights = part.numbers("weights", (1 + 4 * len(base.kinds_),))
        correction = Correction(part.number("offset"), part.number("slope", least=1e-6), weights)
    trust, outages = reading.number("trust", least=0.0, most=1.0), reading.whole("outages", 0, 10**9)
    if correction is None and (trust or outages):
        raise reading.wrong("correction")
    return Combined(base_=base, correction_=correction, trust_=trust, outages_=outages)


def _forecast_record(model: CountForecaster) -> dict[str, Any]:
    if model.rhythm_ is None or model.scale_ is None:
        raise ModelFormatError("A model that has learnt nothing cannot be saved.", hint="Call fit first.")
    return {
        "kinds": list(model.kinds_),
        "bucket_s": model.bucket_s_,
        "ridge": model.ridge,
        "profile": model.rhythm_.profile.tolist(),
        "base": model.rhythm_.base.tolist(),
        "floor": model.rhythm_.floor,
        "ahead": [_regression_record(part) for part in model.ahead_],
        "beside": [_regression_record(part) for part in model.with_others_],
        "memories": [
            {
                "hours": part.hours,
                "centre": part.centre.tolist(),
                "precision": part.precision.tolist(),
                "knots": part.knots.tolist(),
                "tail": part.tail,
            }
            for part in model.scale_.memories
        ],
    }


def _regression_record(regression: CountRegression) -> dict[str, Any]:
    return {"weights": regression.weights.tolist(), "spread": list(regression.spread)}


def _forecaster(reading: _Reading) -> CountForecaster:
    kinds = reading.names("kinds")
    bucket_s = reading.whole("bucket_s", 60, 86_400)
    n = len(kinds)
    rhythm = Rhythm(
        profile=reading.numbers("profile", (slots_per_week(bucket_s), n), least=0.0),
        base=reading.numbers("base", (n,), least=0.0),
        floor=reading.number("floor", least=1e-12, most=1.0),
    )
    ahead = tuple(_regression(part, width_ahead()) for part in reading.parts("ahead", n))
    with_others = tuple(_regression(part, width_with_others(n)) for part in reading.parts("beside", n))
    memories = tuple(_memory(part, n) for part in reading.parts("memories", None))
    return CountForecaster(
        ridge=reading.number("ridge", least=0.0),
        kinds_=kinds,
        bucket_s_=bucket_s,
        rhythm_=rhythm,
        ahead_=ahead,
        with_others_=with_others,
        scale_=SurpriseScale(bucket_s, memories),
    )


def _regression(reading: _Reading, width: int) -> CountRegression:
    at_centre, slope, centre = reading.numbers("spread", (3,)).tolist()
    return CountRegression(reading.numbers("weights", (width,)), (at_centre, slope, centre))


def _memory(reading: _Reading, kinds: int) -> MemoryScale:
    knots = reading.numbers("knots", None, least=0.0)
    if knots.ndim != 1 or not knots.size or (np.diff(knots) < 0).any():
        raise reading.wrong("knots")
    return MemoryScale(
        hours=reading.number("hours", least=1e-3, most=10_000.0 / CUT),
        centre=reading.numbers("centre", (kinds,)),
        precision=reading.numbers("precision", (kinds, kinds)),
        knots=knots,
        tail=reading.number("tail", least=1e-9),
    )


class _Reading:
    """A record whose parts are checked as they are read."""

    def __init__(self, record: Mapping[str, Any], folder: Path) -> None:
        self.record = record
        self.folder = folder

    def wrong(self, name: str) -> ModelFormatError:
        return ModelFormatError(f"The record of {self.folder} has no proper '{name}'.", hint=_AGAIN)

    def part(self, name: str) -> _Reading:
        part = self.record.get(name)
        if not isinstance(part, dict):
            raise self.wrong(name)
        return _Reading(part, self.folder)

    def parts(self, name: str, number: int | None) -> list[_Reading]:
        parts = self.record.get(name)
        if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
            raise self.wrong(name)
        if number is not None and len(parts) != number:
            raise self.wrong(name)
        return [_Reading(part, self.folder) for part in parts]

    def names(self, name: str) -> tuple[str, ...]:
        names = self.record.get(name)
        if not isinstance(names, list) or not 0 < len(names) <= _MOST_KINDS or not all(isinstance(text, str) for text in names):
            raise self.wrong(name)
        if len(set(names)) != len(names):
            raise self.wrong(name)
        return tuple(names)

    def number(self, name: str, *, least: float = -math.inf, most: float = math.inf) -> float:
        value = self.record.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or not least <= value <= most
        ):
            raise self.wrong(name)
        return float(value)

    def whole(self, name: str, least: int, most: int) -> int:
        value = self.number(name, least=least, most=most)
        if value != int(value):
            raise self.wrong(name)
        return int(value)

    def numbers(self, name: str, shape: tuple[int, ...] | None, *, least: float = -math.inf) -> Floats:
        try:
            values = np.array(self.record.get(name), dtype=np.float64)
        except (TypeError, ValueError):
            raise self.wrong(name) from None
        if (shape is not None and values.shape != shape) or not np.isfinite(values).all() or (values < least).any():
            raise self.wrong(name)
        return values
