"""The registry's entry of a model, kept next to the model as well: `entry.json` in the folder of each version.

ModelVersion <-> models/NAME/00007/entry.json. The SQL registry is what counts. These copies are written after it, and read when
it is lost: thresholds, maps and the reasons why a model is in use lie in no other place.

name, version, description and the digest of the files -> sealed -> HMAC with a key of the site, kept with the entry. A digest
tells damage, but whoever can change a file can change its digest, too; the seal needs the site's key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelFormatError
from stormpetrel.store.filesystem import writing

ENTRY_FILE: Final = "entry.json"
FORMAT: Final = 1
_RECORD: Final = "model.json"  # what every family writes next to its files
_LARGEST_BYTES: Final = 64 * 1024 * 1024
# What the record of a model tells of its making, where an earlier version left no entry.
_RECORDED: Final = ("threshold", "n_train", "failed_share", "kinds", "bucket_s")
FILES: Final = "files_digest"  # keys of the JSON that is kept about a version; callers do not see them
SEAL: Final = "seal"
KEYED: Final = "models_keyed"  # a fact of the state store: every entry has been sealed, one without a seal is refused


@dataclass(frozen=True, slots=True)
class Entry:
    """What the registry knew of one version of a model; `noted` is False where it had to be guessed from the model itself."""

    name: str
    version: int
    created: str
    about: Mapping[str, Any]
    noted: bool = True


def write_entry(folder: Path, entry: Entry) -> None:
    """Put an entry next to its model, whole or not at all; a folder that is gone gets none."""
    if not folder.is_dir():
        return
    record = {
        "format": FORMAT,
        "name": entry.name,
        "version": entry.version,
        "created": entry.created,
        "about": dict(entry.about),
    }
    fresh = folder / f".{ENTRY_FILE}-{secrets.token_hex(8)}"
    with writing(folder, doing="note a model"):
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
                file.write(json.dumps(record))
            fresh.replace(folder / ENTRY_FILE)
        finally:
            fresh.unlink(missing_ok=True)


def entries_in_folders(models: Path) -> Iterator[Entry]:
    """The entries of all model folders, by name and version; a folder that holds no model has none."""
    for folder in sorted(models.glob("*/[0-9]*")):
        name, number = folder.parent.name, folder.name
        if not number.isdecimal() or not folder.is_dir() or folder.is_symlink():
            continue
        entry = _noted(folder, name, int(number)) or _guessed(folder, name, int(number))
        if entry is not None:
            yield entry


def _noted(folder: Path, name: str, version: int) -> Entry | None:
    record = _read(folder / ENTRY_FILE)
    if record.get("format") != FORMAT or (record.get("name"), record.get("version")) != (name, version):
        return None
    created, about = record.get("created"), record.get("about")
    if not isinstance(created, str) or not isinstance(about, dict) or _moment(created) is None:
        return None
    return Entry(name, version, created, about)


def _guessed(folder: Path, name: str, version: int) -> Entry | None:
    """Of a model that an earlier version saved: what its own record tells."""
    record = _read(folder / _RECORD)
    if not isinstance(record.get("kind"), str):
        return None
    made_s = (folder / _RECORD).stat().st_mtime
    about: dict[str, Any] = {key: record[key] for key in _RECORDED if key in record}
    recorded = record.get("about")
    if isinstance(recorded, dict):
        about |= {key: recorded[key] for key in ("table_version", "trained_until", "code_version") if key in recorded}
    return Entry(name, version, datetime.fromtimestamp(made_s, UTC).isoformat(timespec="seconds"), about, noted=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return {}
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


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
