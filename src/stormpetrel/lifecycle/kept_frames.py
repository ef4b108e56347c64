"""Frames that were worked out of a site's tables, kept in its folder `snapshots`: whoever needs them again reads them.

path + identity + frames -> write_frames; path + identity -> read_frames -> the frames, None where they are of something else.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.private_files import write_private
from stormpetrel.store.site import Site

_DIGEST: Final = 32  # bytes in front: SHA-256 of the rest
_IDENTITY: Final = "identity"


def write_frames(site: Site, name: str, identity: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> None:
    """Keep frames under a name; a site that cannot be written does without."""
    if site.read_only:
        return
    parts = {}
    for part, frame in frames.items():
        content = io.BytesIO()
        frame.write_ipc(content)
        parts[part] = np.frombuffer(content.getvalue(), np.uint8)
    write_arrays(site, name, identity, parts)


def write_arrays(site: Site, name: str, identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Keep arrays under a name; a site that cannot be written does without."""
    if site.read_only:
        return
    own = np.frombuffer(json.dumps(identity, sort_keys=True).encode(), np.uint8)
    whole = io.BytesIO()
    np.savez(whole, allow_pickle=False, **{_IDENTITY: own, **arrays})
    with suppress(OSError):
        site.snapshots.mkdir(mode=0o700, exist_ok=True)
        write_private(site.snapshots / name, hashlib.sha256(whole.getvalue()).digest() + whole.getvalue())


def read_frames(site: Site, name: str, identity: Mapping[str, Any]) -> dict[str, pl.DataFrame] | None:
    """The frames that were kept under a name; None where there are none, or damaged ones, or of another identity."""
    arrays = read_arrays(site, name, identity)
    return None if arrays is None else {part: pl.read_ipc(io.BytesIO(array.tobytes())) for part, array in arrays.items()}


def read_arrays(site: Site, name: str, identity: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    """The arrays that were kept under a name; None where there are none, or damaged ones, or of another identity."""
    try:
        content = (site.snapshots / name).read_bytes()
    except OSError:
        return None
    if hashlib.sha256(memoryview(content)[_DIGEST:]).digest() != content[:_DIGEST]:
        return None
    file = io.BytesIO(content)  # without a copy: an archive may have something in front of it
    file.seek(_DIGEST)
    with np.load(file, allow_pickle=False) as stored:
        if stored[_IDENTITY].tobytes() != json.dumps(identity, sort_keys=True).encode():
            return None
        return {part: stored[part] for part in stored.files if part != _IDENTITY}


def code_digest(modules: Iterable[ModuleType]) -> str:
    """A digest of the source of some modules: what they worked out is of no use to another version of them."""
    code = hashlib.sha256()
    for module in modules:
        code.update(Path(str(module.__file__)).read_bytes())
    return code.hexdigest()


def profiles_digest(profiles: JobProfiles) -> str:
    """A digest of what decides the profile of a request; empty where no request has one."""
    if not profiles.k_:
        return ""
    mixture = hashlib.sha256(json.dumps([profiles.columns_used_, profiles.normaliser_.to_dict()], default=list).encode())
    for array in (profiles.weights_, profiles.means_, profiles.covariances_):
        mixture.update(np.ascontiguousarray(array).tobytes())
    return mixture.hexdigest()
