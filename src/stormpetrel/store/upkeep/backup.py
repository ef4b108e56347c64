"""Backup and restore: the whole site in one file that says what it should contain.

A tar of settings, key, tables, models and the state as plain rows, with a digest of each member; either database can take it in.
Settings -> outside_settings -> what they name outside of the site (commands to run, servers to query, files to read, who is
believed): an administrator checks them after a restore, since whoever wrote the backup wrote them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import sqlalchemy as sa
from pydantic import BaseModel

from stormpetrel.config import SITE_FILE, Settings, parse_settings, settings_as_toml
from stormpetrel.errors import SettingsError, StoreError, StoreVersionError, UsageError
from stormpetrel.private_files import write_private, writing_private
from stormpetrel.store.actions import turn_off_by_file
from stormpetrel.store.filesystem import refuse_folder_of_another, writing
from stormpetrel.store.identity import IDENTITY_FILE, begin_generation
from stormpetrel.store.site import KEY_FILE, Site, open_site, owner_of, remove_incomplete, state_folder
from stormpetrel.store.state import STATE_FORMAT, open_state, refuse_network
from stormpetrel.store.state_tables import ALL_TABLES, meta
from stormpetrel.store.upkeep.backup_archive import BackupArchive, open_archive, write_archive

_STATE: Final = "state.json"
_TABLES: Final = "tables"

Rows = dict[str, list[dict[str, Any]]]
COMMAND: Final = "command"
SERVER: Final = "server"
FILE: Final = "file"
TRUST: Final = "trust"
_COMMANDS: Final = frozenset({"sacct", "squeue", "scontrol", "sinfo", "sacctmgr", "scancel", "condor_q"})
_FILES: Final = frozenset({"feed", "socket", "event_log", "state_dir", "template", "spool", "templates"})
_TRUSTED: Final = frozenset({"address", "admins", "cancel_by", "hosts", "login", "prefix", "proxies", "user_header"})


def backup(site: Site, target: Path) -> int:
    """Write the site, as it is at one moment, to a new file (mode 0600); how many bytes.

    Writers wait while it is made; readers do not notice.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target} exists.", hint="Name a new file: a backup never overwrites another.")
    with writing(target.parent, doing="write the backup"), site.state.undisturbed():
        try:
            with writing_private(target, overwrite=False) as file:
                write_archive(file, _files(site), {_STATE: json.dumps(site.state.dump()).encode()})
        except FileExistsError:
            raise UsageError(f"{target} exists by now.", hint="Name another file: nothing was overwritten.") from None
    return target.stat().st_size


def restore(source: Path, folder: Path, *, state_url: str = "", state_dir: str = "") -> Site:
    """Make a new site out of a backup; a folder that holds anything is not touched, a damaged backup is refused whole.

    The state goes into the new folder, wherever the backup's settings had it, and nothing else that they name is opened, run or
    connected to. `state_url` or `state_dir` put it into another PostgreSQL or folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not empty.", hint="Restore into a new folder.")
    refuse_folder_of_another(folder)
    was_there = folder.exists()
    with open_archive(source, needed=(SITE_FILE, KEY_FILE, _STATE)) as archive:
        settings, state, key = _read_site(archive)
        elsewhere = {"state_url": state_url, "state_dir": state_dir}
        moved = settings.model_copy(update={"store": settings.store.model_copy(update=elsewhere)})
        if not state_url:
            refuse_network(state_folder(folder, moved))
        _refuse_used_state(folder, moved, key)
        try:
            with writing(folder, doing="restore the site"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                folder.chmod(0o700)
                (folder / "models").mkdir(mode=0o700)
                archive.unpack(folder, without=frozenset({_STATE}))
                if settings.actions.policies or settings.actions.cancel_by != "nobody":
                    turn_off_by_file(folder)  # a copy of a site must not act beside it
                if moved != settings:
                    write_private(folder / SITE_FILE, settings_as_toml(moved))
            return _filled(folder, state)
        except BaseException:
            remove_incomplete(folder, was_there=was_there)
            raise


def _filled(folder: Path, state: Rows) -> Site:
    """The site in a folder with the rows of a backup as its state."""
    site = open_site(folder, new_state=True)
    try:
        site.state.load(state)
        begin_generation(site)
        site.models.sign_unsigned_once()
        for table in site.all_tables:
            table.refuse_paths_outside()
    except BaseException as error:
        site.close()
        if isinstance(error, sa.exc.SQLAlchemyError):
            raise StoreError("The state in this backup does not fit the state store.", hint="Use another backup.") from error
        raise
    return site


def _read_site(archive: BackupArchive) -> tuple[Settings, Rows, bytes]:
    """Settings, state and key of a backup; ValueError or KeyError where they make no sense."""
    try:
        settings = parse_settings(archive.read(SITE_FILE).decode())
    except SettingsError as error:
        raise ValueError(error.what) from None
    return settings, _rows(json.loads(archive.read(_STATE))), bytes.fromhex(archive.read(KEY_FILE).decode().strip())


def _rows(dump: Any) -> Rows:
    """The rows of the tables of a state, each with columns of its table and no others."""
    rows: Rows = {}
    for table in ALL_TABLES:
        rows[table.name] = list(dump.get(table.name, []))
        known = set(table.columns.keys())
        needed = {column.name for column in table.primary_key} - {"id"}
        if not all(isinstance(row, dict) and needed <= set(row) <= known for row in rows[table.name]):
            raise ValueError(f"its state has a row in {table.name!r} that does not belong there")
    newest = max((int(row["value"]) for row in rows[meta.name] if row["key"] == "format"), default=0)
    if newest > STATE_FORMAT:
        raise StoreVersionError(
            f"The state in this backup was written by a newer version (format {newest}, this Stormpetrel knows {STATE_FORMAT}).",
            hint="Run: pip install --upgrade stormpetrel",
        )
    return rows


def _files(site: Site) -> Iterator[tuple[str, Path]]:
    """Settings, key, models, and of each table the log and the files that its latest version is made of.

    The folders of tables and models may be links to a larger disk; in the backup they are folders.
    """
    for name in (SITE_FILE, KEY_FILE):
        yield name, site.folder / name
    for path in sorted((site.folder / "models").rglob("*")):
        if not path.is_dir():
            yield path.relative_to(site.folder).as_posix(), path
    if (site.tables / IDENTITY_FILE).is_file():
        yield f"{_TABLES}/{IDENTITY_FILE}", site.tables / IDENTITY_FILE
    for table in (existing for existing in site.all_tables if existing.exists()):  # one of a read-only site may be missing
        log = sorted(path for path in (table.path / "_delta_log").iterdir() if not path.is_dir())
        for path in (*log, *table.files()):
            yield f"{_TABLES}/{table.spec.name}/{path.relative_to(table.path).as_posix()}", path


def _refuse_used_state(folder: Path, settings: Settings, key: bytes) -> None:
    """A backup that is restored next to the living site must not write into that site's state."""
    if not (settings.store.state_dir or settings.store.state_url):
        return
    where = state_folder(folder, settings)
    state = open_state(where, url=settings.store.state_url, lock_folder=where, owner=owner_of(key))
    try:
        if not state.is_empty():
            raise UsageError(
                "The state store that you name is in use.",
                hint="Leave --state-url and --state-dir out (the state goes into the new folder), or name another.",
            )
    finally:
        state.close()


@dataclass(frozen=True, slots=True)
class OutsideSetting:
    """A setting that names something outside of the site."""

    kind: str  # command, server, file or trust
    name: str  # such as slurm.sacct
    value: str


def kind_of(key: str) -> str:
    """What a setting of this name reaches; empty where it reaches nothing."""
    if key in _COMMANDS or key.endswith("_command"):
        return COMMAND
    if key in ("url", "host", "place", "recipients", "mail_address") or key.endswith("_url"):
        return SERVER
    if key in _FILES or key.endswith("_file"):
        return FILE
    return TRUST if key in _TRUSTED else ""


def outside_settings(settings: Settings) -> list[OutsideSetting]:
    """The settings that reach outside and are not as they come; passwords in addresses are left out."""
    sections: list[tuple[str, BaseModel]] = [(name, getattr(settings, name)) for name in type(settings).model_fields]
    sections += [(f"notify.routes.{route.name}", route) for route in settings.notify.routes]
    outside = []
    for section_name, section in sections:
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if kind_of(key) and value and value != field.default:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                outside.append(OutsideSetting(kind_of(key), f"{section_name}.{key}", _without_password(shown)))
    return sorted(outside, key=lambda entry: [COMMAND, SERVER, FILE, TRUST].index(entry.kind))


def _without_password(text: str) -> str:
    try:
        parts = urlsplit(text)
        if not parts.password:
            return text
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:…@{host}"))
    except ValueError:
        return text.partition("://")[0] + "://…"
