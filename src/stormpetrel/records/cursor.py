"""How far a live source has been read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

CursorOf = Callable[[str], "int | None"]  # the position of a source of this name; None: it was never read


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a live source; committed together with the rows that it stands for."""

    name: str
    position: int
