"""A site: a folder with settings, tables and state.

mysite/ (mode 0700): site.toml · tables/ · state.db · models/ · site.key
"""

from __future__ import annotations

import hmac
import os
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

from stormpetrel.config import SITE_FILE, Settings, load_settings, settings_as_toml
from stormpetrel.errors import SettingsError, StoreError
from stormpetrel.simulate.feed import Feed
from stormpetrel.store.audit import AuditTrail
from stormpetrel.store.cpu_windows import CpuWindowStore
from stormpetrel.store.event_background import EventBackgroundStore
from stormpetrel.store.event_counts import EventCountStore
from stormpetrel.store.event_scores import EventScoreStore
from stormpetrel.store.filesystem import writing
from stormpetrel.store.jobs import JobStore
from stormpetrel.store.models import ModelRegistry
from stormpetrel.store.opinions import OpinionStore
from stormpetrel.store.outages import OutageStore
from stormpetrel.store.predictions import PredictionStore
from stormpetrel.store.privacy import Privacy
from stormpetrel.store.quarantine import Quarantine
from stormpetrel.store.read_marks import ReadMarks
from stormpetrel.store.state import StateStore, open_state, refuse_network
from stormpetrel.store.tokens import TokenStore
from stormpetrel.store.trace_scores import TraceScoreStore
from stormpetrel.store.views import ViewStore

KEY_FILE = "site.key"
_PARSERS = 1  # raise it when a source reads more out of the same text: known files are then read in full once more


class Site:
    """An open site: the door to everything that is kept about one cluster."""

    def __init__(self, folder: Path, settings: Settings, state: StateStore, key: bytes) -> None:
        self.folder = folder
        self.settings = settings
        self.state = state
        self._key = key
        self.jobs = JobStore(folder / "tables", state.writer_lock, ReadMarks(state))
        self.predictions = PredictionStore(folder / "tables", state.writer_lock)
        self.trace_scores = TraceScoreStore(folder / "tables", state.writer_lock)
        self.cpu_windows = CpuWindowStore(folder / "tables", state.writer_lock)
        self.event_counts = EventCountStore(folder / "tables", state.writer_lock)
        self.event_background = EventBackgroundStore(folder / "tables", state.writer_lock)
        self.event_scores = EventScoreStore(folder / "tables", state.writer_lock)
        self.outages = OutageStore(state)
        self.models = ModelRegistry(folder / "models", state)
        self.tokens = TokenStore(state)
        self.opinions = OpinionStore(state)
        self.views = ViewStore(state)
        self.audit = AuditTrail(state)
        self.quarantine = Quarantine(folder / "tables", keep_raw=not settings.store.pseudonymise_users)

    @property
    def privacy(self) -> Privacy:
        """What is done to user names; asks the state store who is forgotten."""
        return Privacy(self._key, self.settings.store.pseudonymise_users, self.state.forgotten_digests())

    def user_in_tables(self, user: str) -> str:
        """What stands for a user in the site's tables: the name, or its pseudonym where the site keeps no names."""
        return self.privacy.pseudonym(user) if self.settings.store.pseudonymise_users else user

    def hash_seed(self, meaning: str) -> int:
        """The seed of fingerprints: the site's key, and everything besides its text that decides what a record says."""
        whole = f"{_PARSERS}:{self.settings.store.pseudonymise_users}:{meaning}"
        return int.from_bytes(hmac.digest(self._key, whole.encode(), "sha256")[:8], "little")

    def now(self) -> datetime:
        """The current time; that of the feed where the site is a simulated one."""
        if self.settings.site.feed:
            return Feed(self.folder / self.settings.site.feed).now()
        return datetime.now(UTC)

    def pace(self) -> float:
        """How many seconds of the site pass in one second: 1, unless it is a simulated one."""
        return max(1.0, Feed(self.folder / self.settings.site.feed).speed) if self.settings.site.feed else 1.0

    def close(self) -> None:
        """Give back what the site holds open."""
        self.state.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create_site(folder: Path, settings: Settings | None = None) -> Site:
    """Make a folder a site; a folder that holds something else is not touched."""
    settings = settings or Settings()
    if (folder / SITE_FILE).exists():
        raise SettingsError(f"{folder} is a site already.", hint=f"Use it as it is: stormpetrel --site {folder} …")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder} exists and is not an empty folder.", hint="Name a new folder for the site.")
    _refuse_odd_name(folder)
    if not settings.store.state_url:
        refuse_network(state_folder(folder, settings))
    was_there = folder.exists()
    try:
        with writing(folder, doing="create a site"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            (folder / "models").mkdir()
            _write_key(folder / KEY_FILE)
            (folder / SITE_FILE).write_text(settings_as_toml(settings), encoding="utf-8")
        site = open_site(folder)
    except BaseException:
        remove_half_made(folder, was_there=was_there)
        raise
    return site


def remove_half_made(folder: Path, *, was_there: bool) -> None:
    """Undo what was begun in a folder that was new, or empty."""
    if was_there:
        for path in folder.iterdir():  # it was empty before
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_odd_name(folder: Path) -> None:
    odd = next((letter for letter in str(folder.resolve()) if letter in "%[]" or not letter.isprintable()), None)
    if odd is not None:
        raise SettingsError(
            f"A site's path cannot have {odd!r} in it: {folder}.", hint="Delta Lake does not bear it; choose another folder."
        )


def open_site(folder: Path) -> Site:
    """Open a site: settings checked, tables there, nothing else done."""
    settings = load_settings(folder)
    key = _read_key(folder)
    where = state_folder(folder, settings)
    url = settings.store.state_url
    state = open_state(where, url=url, lock_folder=folder if url else where, owner=owner_of(key))
    site = Site(folder, settings, state, key)
    if not site.jobs.table.exists() and not state.is_empty():
        raise StoreError(f"The table {site.jobs.table.path} is missing.", hint="Restore the site from a backup.")
    site.jobs.create()
    site.quarantine.create()
    site.predictions.create()
    site.cpu_windows.create()
    site.trace_scores.create()
    site.event_counts.create()
    site.event_background.create()
    site.event_scores.create()
    return site


def owner_of(key: bytes) -> str:
    """What stands for a site in its state store."""
    return hmac.digest(key, b"owner", "sha256").hex()[:32]


def state_folder(folder: Path, settings: Settings) -> Path:
    """Where the SQLite file of a site lies; a relative state_dir counts from the site, whoever calls from wherever."""
    return folder / Path(settings.store.state_dir).expanduser() if settings.store.state_dir else folder


def _write_key(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))


def _read_key(folder: Path) -> bytes:
    path = folder / KEY_FILE
    try:
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise StoreError(
            f"The site's key {path} is missing or cannot be read.", hint="Restore it from a backup, or check its permissions."
        ) from error
