"""Seals of registry entries: whether a model is the one that this site entered.

name, version, what is reported it and the digest of its files -> HMAC with a key of the site -> kept next to the entry. A digest
tells damage; whoever can change a file can change its digest, too. The seal needs the site's key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelFormatError
from stormpetrel.store.registry.entries import ENTRY_FILE

FILES: Final = "files_digest"  # keys of the JSON that is kept about a version; callers do not see them
SEAL: Final = "seal"
KEYED: Final = "models_keyed"  # a fact of the state store: every entry has been sealed, one without a seal is refused


def folder_digest(folder: Path) -> str:
    """A digest of all files of a model, names and contents, without the copy of its entry; of none where there is no folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.parent == folder and path.name.lstrip(".").startswith(ENTRY_FILE):  # written anew whenever the entry changes
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ModelFormatError(f"{path} is no plain file, as those of a model are.", hint="Put a model there that you trust.")
        if path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(json.dumps([path.relative_to(folder).as_posix(), content]).encode() + b"\n")
    return digest.hexdigest()


def sealed(key: bytes, name: str, version: int, created: str, about: Mapping[str, Any], files: str) -> str:
    """What is kept about a version, as JSON, with the digest of its files and the seal over all of it."""
    rest = json.loads(json.dumps({**about, FILES: files}))  # as it is read again: keys that were numbers are text then
    rest.pop(SEAL, None)
    return json.dumps(rest | {SEAL: _seal(key, name, version, created, rest)})


def is_sealed(key: bytes, name: str, version: int, created: str, kept: Mapping[str, Any]) -> bool:
    """Whether the seal in what is kept about a version is ours, and nothing was changed since."""
    rest = {field: value for field, value in kept.items() if field != SEAL}
    return hmac.compare_digest(str(kept.get(SEAL, "")), _seal(key, name, version, created, rest))


def _seal(key: bytes, name: str, version: int, created: str, rest: Mapping[str, Any]) -> str:
    whole = json.dumps([name, version, created, rest], sort_keys=True)
    return hmac.digest(key, whole.encode(), "sha256").hex()
