"""How models of older formats are read: for each kind, a step from each format to the next.

Contents of format N -> UPGRADES[kind][N] -> contents of format N + 1, in memory: the folder stays as it was saved. A family that
changes what it saves raises its FORMAT_VERSION and adds a step here. Where the old contents cannot tell what the new ones need,
it adds none: the model then counts as outdated, and is trained again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Contents:
    """What a model folder holds: its record, and its files by name."""

    record: dict[str, Any]
    files: dict[str, bytes]


Upgrade = Callable[[Contents], Contents]

UPGRADES: Final[Mapping[str, Mapping[int, Upgrade]]] = {}  # every kind is in its first format
