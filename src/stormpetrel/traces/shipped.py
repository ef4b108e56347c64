"""The shipped encoder: what a site scores with until it has trained a model of its own.

package folder -> load_shipped -> ShippedEncoder. Trained on simulated campaigns alone (CARD.md in the folder says on which, and
how good it is); `python -m benchmarks.traces_shipped` makes it. It needs no torch, and it promises no share of false flags.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelFormatError
from stormpetrel.traces.diagnosis import Trouble
from stormpetrel.traces.networks.architecture import Scorer
from stormpetrel.traces.separability import PcaMap

SHIPPED: Final = Path(__file__).parent / "shipped_encoder"
ABOUT: Final = "about.json"
CARD: Final = "CARD.md"
FORMAT_VERSION: Final = 1
NAME: Final = "traces-shipped"  # as the table of scores names it; never in a site's registry
NOT_TRAINED_HERE: Final = "the shipped encoder, not trained on this site"
_AGAIN: Final = "Install stormpetrel again."


@dataclass(frozen=True, slots=True, eq=False)
class ShippedEncoder:
    """What scores, where windows and Bad IO lie in its space, and the length of the steps that it sees."""

    scorer: Scorer
    map: PcaMap
    bad_io: Trouble
    version: int
    step_s: float
    window_s: float


def load_shipped(*, threads: int | None = None, folder: Path = SHIPPED, device: str = "cpu") -> ShippedEncoder:
    """Read and check the shipped encoder; MissingExtraError where ONNX Runtime is not there."""
    from stormpetrel.traces.networks.fitting_windows import FittingScorer
    from stormpetrel.traces.networks.scorers import load_scorer

    scorer, about = load_scorer(folder, threads=threads, device=device), shipped_about(folder)
    try:
        step_s, window_s, version = float(about["step_s"]), float(about["window_s"]), int(about["version"])
        chart, bad_io = PcaMap.from_dict(about["map"]), Trouble.of_record(about["bad_io"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(folder) from None
    return ShippedEncoder(FittingScorer(scorer, step_s), chart, bad_io, version, step_s, window_s)


def shipped_about(folder: Path = SHIPPED) -> dict[str, Any]:
    """What the card is made of: how it was trained, its figures, its map."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _damaged(folder) from None
    if not isinstance(about, dict) or about.get("format_version") != FORMAT_VERSION:
        raise _damaged(folder)
    return about


def shipped_version(folder: Path = SHIPPED) -> int:
    """The version of the shipped encoder, without loading it."""
    try:
        return int(shipped_about(folder)["version"])
    except (KeyError, TypeError, ValueError):
        raise _damaged(folder) from None


def _damaged(folder: Path) -> ModelFormatError:
    return ModelFormatError(f"The shipped encoder in {folder} is damaged.", hint=_AGAIN)
