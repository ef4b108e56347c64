"""Backup and restore: the whole site in one file that says what it should contain.

A tar of settings, key, tables, models and the state as plain rows, with a digest of each member; either database can take it in.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from stormpetrel import __version__
from stormpetrel.config import SITE_FILE, Settings, parse_settings, settings_as_toml
from stormpetrel.errors import StoreError, StoreVersionError, UsageError
from stormpetrel.store.agreement import begin_generation
from stormpetrel.store.filesystem import writing
from stormpetrel.store.identity import IDENTITY_FILE
from stormpetrel.store.site import KEY_FILE, Site, open_site, owner_of, remove_half_made, state_folder
from stormpetrel.store.state import open_state

BACKUP_FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
_STATE: Final = "state.json"
_MAX_JSON: Final = 256 * 1024 * 1024


def backup(site: Site, target: Path) -> int:
    """Write the site, as it is at one moment, to a new file (mode 0600); how many bytes.

    Writers wait while it is made; readers do not notice.
    """
    if target.exists():
        raise UsageError(f"{target} exists.", hint="Name a new file: a backup never overwrites another.")
    partial = target.with_name(target.name + ".partial")
    with writing(target.parent, doing="write the backup"), site.state.undisturbed():
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                with tarfile.open(fileobj=file, mode="w") as archive:
                    digests = {name: _add_file(archive, name, path) for name, path in _members(site)}
                    digests[_STATE] = _add_bytes(archive, _STATE, json.dumps(site.state.dump()).encode())
                    manifest = {"format": BACKUP_FORMAT, "version": __version__, "digests": digests}
                    _add_bytes(archive, _MANIFEST, json.dumps(manifest).encode())
                file.flush()
                os.fsync(file.fileno())
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
    return target.stat().st_size


def restore(source: Path, folder: Path, *, state_url: str | None = None) -> Site:
    """Make a new site out of a backup; a folder that holds anything is not touched, a damaged backup is refused whole.

    `state_url` puts the state elsewhere than the backup's settings say: a PostgreSQL, or (empty) SQLite in the folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty.", hint="Restore into a new folder.")
    manifest, settings, owner = _verified_manifest(source)
    if state_url is not None:
        store = settings.store.model_copy(update={"state_url": state_url, "state_dir": ""})
        settings = settings.model_copy(update={"store": store})
    _refuse_used_state(settings, owner)
    was_there = folder.exists()
    try:
        with writing(folder, doing="restore the site"):
            state = _unpack(source, folder, manifest["digests"])
            if state_url is not None:
                (folder / SITE_FILE).write_text(settings_as_toml(settings), encoding="utf-8")
        site = open_site(folder, new_state=True)
        site.state.load(state)
        begin_generation(site)
    except BaseException:
        remove_half_made(folder, was_there=was_there)
        raise
    return site


def _unpack(source: Path, folder: Path, digests: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The files of a backup, in the folder; the state, as it is returned."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    (folder / "models").mkdir(exist_ok=True)
    with tarfile.open(source) as archive:
        for member in archive:
            if member.name in digests and member.name != _STATE:
                archive.extract(member, folder, filter="data")
        return dict(json.loads(_read_member(archive, _STATE)))


def _members(site: Site) -> Iterator[tuple[str, Path]]:
    """Settings, key, models, and of each table the log and the files that its latest version is made of."""
    folder = site.folder.resolve()
    for name in (SITE_FILE, KEY_FILE):
        yield name, site.folder / name
    for path in sorted((site.folder / "models").rglob("*")):
        if path.is_file():
            yield str(path.relative_to(site.folder)), path
    telemetry = (site.cpu_windows.table, site.trace_scores.table)
    counts = site.event_counts
    grid = (counts.table, counts.reasons.table, site.event_background.table, site.event_scores.table)
    if (site.tables / IDENTITY_FILE).is_file():
        yield f"tables/{IDENTITY_FILE}", site.tables / IDENTITY_FILE
    kept = (site.jobs.table, site.jobs.sightings, site.quarantine.table, site.predictions.table, site.forgotten.table)
    for table in (one for one in (*kept, *telemetry, *grid) if one.exists()):  # one of a read-only site may be missing
        for path in sorted((table.path / "_delta_log").iterdir()):
            if path.is_file():
                yield str(path.relative_to(folder)), path
        for path in table.files():
            yield str(path.relative_to(folder)), path


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> str:
    archive.add(path, name, recursive=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> str:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o600
    archive.addfile(member, io.BytesIO(data))
    return hashlib.sha256(data).hexdigest()


def _refuse_used_state(settings: Settings, key: bytes) -> None:
    """A backup that is restored beside the living site must not write into that site's state."""
    if not (settings.store.state_dir or settings.store.state_url):
        return
    where = state_folder(Path(), settings)
    state = open_state(where, url=settings.store.state_url, lock_folder=where, owner=owner_of(key))
    try:
        if not state.is_empty():
            raise UsageError(
                "The state store that the backup's settings name is in use.",
                hint="Add --state-url '' (SQLite in the new folder) or --state-url postgresql://… (another database).",
            )
    finally:
        state.close()


def _verified_manifest(source: Path) -> tuple[dict[str, Any], Settings, bytes]:
    """The manifest of a backup, every member of which is whole; read to the end before anything is written."""
    try:
        with tarfile.open(source) as archive:
            found = {
                member.name: hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
                for member in archive
                if tarfile.data_filter(member, "/nowhere") and member.isfile() and (file := archive.extractfile(member))
            }
            manifest = json.loads(_read_member(archive, _MANIFEST))
            manifest = {"format": int(manifest["format"]), "version": manifest["version"], "digests": dict(manifest["digests"])}
            _read_member(archive, _STATE)
            settings = parse_settings(_read_member(archive, SITE_FILE).decode())
            key = bytes.fromhex(_read_member(archive, KEY_FILE).decode().strip())
    except FileNotFoundError:
        raise UsageError(f"There is no file {source}.", hint="Check the path.") from None
    except (tarfile.TarError, KeyError, ValueError, TypeError, AttributeError, OSError, EOFError) as error:
        raise StoreError(
            f"{source} is no whole backup of a site: {error}.", hint="Use another backup; nothing was written."
        ) from error
    if manifest.get("format", 0) > BACKUP_FORMAT:
        raise StoreVersionError(
            f"{source} was made by a newer version ({manifest.get('version')}).", hint="Run: pip install --upgrade stormpetrel"
        )
    damaged = next((name for name, digest in manifest["digests"].items() if found.get(name) != digest), None)
    if damaged:
        raise StoreError(f"{source} is damaged at {damaged}; nothing was written.", hint="Use another backup.")
    return dict(manifest), settings, key


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read(_MAX_JSON)
