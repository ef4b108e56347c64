"""A site: a folder with settings, tables and state.

mysite/ (mode 0700): site.toml · tables/ · state.db · models/ · site.key
"""

from __future__ import annotations

import hmac
import json
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path

from stormpetrel.config import SITE_FILE, Settings, load_settings, settings_as_toml
from stormpetrel.errors import DiskFullError, SettingsError, StoreError
from stormpetrel.private_files import create_private, tighten
from stormpetrel.records.times import FEED_FILE, FeedClock, clock_of
from stormpetrel.store.actions import ActionStore
from stormpetrel.store.audit import AuditTrail
from stormpetrel.store.case_answers import CaseAnswerStore
from stormpetrel.store.cluster_cache import ClusterCache
from stormpetrel.store.digests import DigestStore
from stormpetrel.store.events.counts import EventBackgroundStore, EventCountStore
from stormpetrel.store.events.outages import OutageStore
from stormpetrel.store.filesystem import format_disk, refuse_folder_of_another, writing
from stormpetrel.store.identity import agree, holds_tables
from stormpetrel.store.incidents.history import IncidentHistory
from stormpetrel.store.incidents.incidents import IncidentStore
from stormpetrel.store.incidents.messages import MessageStore
from stormpetrel.store.jobs import JobStore
from stormpetrel.store.mails import MailStore
from stormpetrel.store.migrations import SiteFiles
from stormpetrel.store.opinions import OpinionStore
from stormpetrel.store.predictions import PredictionStore
from stormpetrel.store.privacy import Privacy
from stormpetrel.store.quarantine import Quarantine, UnreadFields
from stormpetrel.store.read_only import ReadOnlyState, open_copied_state, read_only_reason
from stormpetrel.store.registry.models import ModelRegistry
from stormpetrel.store.shadow_scores import ShadowScoreStore
from stormpetrel.store.source_health import ReadPositions
from stormpetrel.store.state import STATE_FILE, StateStore, open_state, refuse_network
from stormpetrel.store.tables import Table
from stormpetrel.store.tokens import TokenStore
from stormpetrel.store.traces import (
    CpuWindowStore,
    EventScoreStore,
    JobStartScoreStore,
    JobStartStore,
    NodeMetricStore,
    NodeScoreStore,
    SlidingScoreStore,
    TraceCoverageStore,
    TraceRegionStore,
    TraceScoreStore,
)
from stormpetrel.store.upkeep.forgotten import ForgottenStore
from stormpetrel.store.views import ViewStore

KEY_FILE = "site.key"
_PARSERS = 3  # raise it when a source reads more out of the same text: known files are then read in full once more


class Site:
    """An open site: the door to everything that is kept about one cluster."""

    def __init__(self, folder: Path, settings: Settings, state: StateStore, key: bytes) -> None:
        self.folder = folder
        self.read_only = state.reason if isinstance(state, ReadOnlyState) else ""  # why it cannot be written; empty: it can
        self.settings = settings
        self.state = state
        self._key = key
        self.jobs = JobStore(folder / "tables", state.writer_lock, ReadPositions(state))
        self.predictions = PredictionStore(folder / "tables", state.writer_lock)
        self.shadow_scores = ShadowScoreStore(folder / "tables", state.writer_lock)
        self.trace_scores = TraceScoreStore(folder / "tables", state.writer_lock)
        self.cpu_windows = CpuWindowStore(folder / "tables", state.writer_lock)
        self.job_starts = JobStartStore(folder / "tables", state.writer_lock)
        self.job_start_scores = JobStartScoreStore(folder / "tables", state.writer_lock)
        self.trace_regions = TraceRegionStore(folder / "tables", state.writer_lock)
        self.sliding_scores = SlidingScoreStore(folder / "tables", state.writer_lock)
        self.trace_coverage = TraceCoverageStore(folder / "tables", state.writer_lock)
        self.node_metrics = NodeMetricStore(folder / "tables", state.writer_lock)
        self.node_scores = NodeScoreStore(folder / "tables", state.writer_lock)
        self.event_counts = EventCountStore(folder / "tables", state.writer_lock)
        self.event_background = EventBackgroundStore(folder / "tables", state.writer_lock)
        self.event_scores = EventScoreStore(folder / "tables", state.writer_lock)
        self.forgotten = ForgottenStore(folder / "tables", state.writer_lock)
        self.incident_history = IncidentHistory(folder / "tables", state.writer_lock)
        self.incidents = IncidentStore(state, self.incident_history)
        self.messages = MessageStore(state)
        self.actions = ActionStore(state, folder)
        self.outages = OutageStore(state)
        self.models = ModelRegistry(folder / "models", state, hmac.digest(key, b"models", "sha256"))
        self.tokens = TokenStore(state)
        self.opinions = OpinionStore(state)
        self.case_answers = CaseAnswerStore(state)
        self.views = ViewStore(state)
        self.mails = MailStore(state)
        self.digests = DigestStore(state)
        self.unread_fields = UnreadFields(state)
        self.audit = AuditTrail(state)
        self.cluster = ClusterCache(folder, settings.slurm)
        self.quarantine = Quarantine(folder / "tables", keep_raw=not settings.store.pseudonymise_users)

    @property
    def tables(self) -> Path:
        """Where the tables lie."""
        return self.folder / "tables"

    @property
    def snapshots(self) -> Path:
        """Where what was worked out of the tables lies, to be worked out anew where it is missing; not there before the first."""
        return self.folder / "snapshots"

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Every Delta Lake table of the site."""
        of_jobs = (self.jobs.table, self.jobs.sightings, self.quarantine.table, self.predictions.table, self.forgotten.table)
        of_events = (self.event_counts.table, self.event_counts.reasons.table)
        scores = (self.event_background.table, self.event_scores.table, self.shadow_scores.table)
        of_starts = (self.job_starts.table, self.job_start_scores.table)
        of_traces = (
            self.cpu_windows.table, self.trace_scores.table, self.sliding_scores.table, *of_starts, self.trace_regions.table,
        )  # fmt: skip
        of_nodes = (self.node_metrics.table, self.node_scores.table, self.trace_coverage.table)
        return *of_jobs, *of_traces, *of_nodes, *of_events, *scores, self.incident_history.table

    def require_writable(self) -> None:
        """ReadOnlySiteError where the site cannot be written; for work that writes only at its end."""
        if isinstance(self.state, ReadOnlyState):
            raise self.state.refusal()

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
            return _feed_clock(self.folder / self.settings.site.feed).now()
        return datetime.now(UTC)

    def pace(self) -> float:
        """How many seconds of the site pass in one second: 1, unless it is a simulated one."""
        return max(1.0, _feed_clock(self.folder / self.settings.site.feed).speed) if self.settings.site.feed else 1.0

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
    refuse_folder_of_another(folder)
    if not settings.store.state_url:
        refuse_network(state_folder(folder, settings))
    was_there = folder.exists()
    try:
        with writing(folder, doing="create a site"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            (folder / "models").mkdir()
            _write_key(folder / KEY_FILE)
            create_private(folder / SITE_FILE, settings_as_toml(settings))
        site = open_site(folder)
    except BaseException:
        remove_incomplete(folder, was_there=was_there)
        raise
    return site


def remove_incomplete(folder: Path, *, was_there: bool) -> None:
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


def open_site(folder: Path, *, new_state: bool = False) -> Site:
    """Open a site: settings checked, tables there, state and tables of the same site, nothing else done.

    `new_state` makes a state for tables that have none (StateLostError otherwise): for whoever fills it at once.
    A site that cannot be written (a read-only mount, somebody else's folder, a disk so full that not even its state can be
    opened) is opened to be read: `Site.read_only` says why, and whoever wants to write gets a ReadOnlySiteError.
    """
    settings = load_settings(folder)
    key = _read_key(folder)
    state = _open_state(folder, settings, key, create=new_state or not holds_tables(folder / "tables"))
    try:
        site = Site(folder, settings, state, key)
        _create_tables(site)
        if not new_state:
            agree(site)
            if not site.read_only:
                site.models.sign_unsigned_once()
    except BaseException:
        state.close()
        raise
    return site


def _feed_clock(folder: Path) -> FeedClock:
    """The clock of the simulated feed in a folder, as it is set now."""
    try:
        clock = clock_of(json.loads((folder / FEED_FILE).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        clock = None
    if clock is None:
        raise SettingsError(f"{folder} is no recorded feed of this version.", hint="Check site.feed in site.toml.")
    return clock


def _create_tables(site: Site) -> None:
    if not site.jobs.table.exists() and not site.state.is_empty():
        raise StoreError(f"The table {site.jobs.table.path} is missing.", hint="Restore the site from a backup.")
    if site.read_only:
        for table in site.all_tables:
            table.may_be_missing = True  # a later release has added it
        return
    site.jobs.create()
    site.quarantine.create()
    site.predictions.create()
    site.shadow_scores.create()
    site.cpu_windows.create()
    site.trace_scores.create()
    site.job_starts.create()
    site.job_start_scores.create()
    site.trace_regions.create()
    site.node_metrics.create()
    site.node_scores.create()
    site.sliding_scores.create()
    site.trace_coverage.create()
    site.event_counts.create()
    site.event_background.create()
    site.event_scores.create()
    site.incident_history.create()
    site.forgotten.create()


def _open_state(folder: Path, settings: Settings, key: bytes, *, create: bool) -> StateStore:
    """The state, to be written where that is possible, to be read otherwise."""
    url, where = settings.store.state_url, state_folder(folder, settings)

    def opened() -> StateStore:
        lock_folder = folder if url else where
        return open_state(
            where, url=url, lock_folder=lock_folder, owner=owner_of(key), files=SiteFiles(folder, key), create=create
        )

    def read_only(reason: str, *, is_full: bool = False) -> StateStore:
        if url or not (create or (where / STATE_FILE).exists()):  # a state that is missing is told as everywhere
            return ReadOnlyState(opened, site=folder, reason=reason, is_full=is_full)
        return open_copied_state(
            where,
            site=folder,
            reason=reason,
            is_full=is_full,
            open_state=lambda copy: open_state(
                copy, lock_folder=copy, owner=owner_of(key), files=SiteFiles(copy, key), create=create
            ),
        )

    reason = read_only_reason(folder, None if url else where)
    if reason:
        return read_only(reason)
    try:
        return opened()
    except DiskFullError:
        return read_only(f"the disk {format_disk(where)} is full", is_full=True)


def owner_of(key: bytes) -> str:
    """What stands for a site in its state store."""
    return hmac.digest(key, b"owner", "sha256").hex()[:32]


def state_folder(folder: Path, settings: Settings) -> Path:
    """Where the SQLite file of a site lies; a relative state_dir counts from the site, whoever calls from wherever."""
    return folder / Path(settings.store.state_dir).expanduser() if settings.store.state_dir else folder


def _write_key(path: Path) -> None:
    create_private(path, secrets.token_hex(32))


def _read_key(folder: Path) -> bytes:
    path = folder / KEY_FILE
    tighten(path)
    try:
        return bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise StoreError(
            f"The site's key {path} is missing or cannot be read.", hint="Restore it from a backup, or check its permissions."
        ) from error
