"""Where work can run, as it is written on the command line and in site.toml: local, auto, ray, ray://host:port."""

from __future__ import annotations

import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stormpetrel.errors import UsageError

LOCAL: Final = "local"
AUTO: Final = "auto"
RAY: Final = "ray"
RAY_CLIENT: Final = "ray://"
ADDRESS: Final = "RAY_ADDRESS"
_HOST_AND_PORT: Final = re.compile(r"ray://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):([1-9][0-9]{0,4})")


def chosen_place(place: str) -> str:
    """`local`, `ray` or `ray://host:port`: what `auto` comes to here; UsageError for anything else."""
    if place == AUTO:
        return RAY if _has_ray() else LOCAL
    if not is_place(place):
        raise UsageError(
            f"Unknown engine {place!r}.",
            hint="Known: local, auto, ray, and ray://HOST:PORT with the port of Ray's client server.",
        )
    return place


def is_place(place: str) -> bool:
    """Whether work could run there, as far as its name tells."""
    return place in (LOCAL, AUTO, RAY) or is_client_address(place)


def is_client_address(place: str) -> bool:
    """Whether this is ray://host:port, and nothing more."""
    match = _HOST_AND_PORT.fullmatch(place)
    return match is not None and int(match[3]) < 65_536


def _has_ray() -> bool:
    """Whether the package is installed, and a cluster is named by RAY_ADDRESS or runs on this machine."""
    if find_spec("ray") is None:
        return False
    # Ray writes the address of what was started last on this machine here, and looks for it here.
    noted = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    return bool(os.environ.get(ADDRESS)) or noted.is_file()
