"""A site that can be read and not be written: why that is, and its state as a private copy.

folder + settings -> read_only_reason -> "" or a reason; -> open_copied_state -> ReadOnlyState. SQLite cannot open a database
with a write-ahead log where it may not write. So the database and its log are copied to a folder of our own, where the copy is
opened and brought up to date; it is made anew when the original has changed. Nothing is ever written to the site.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import sqlalchemy as sa

from stormpetrel.errors import ReadOnlySiteError, StoreError, StoreNotWritableError
from stormpetrel.store.filesystem import mount_of, writing
from stormpetrel.store.identity import IDENTITY_FILE
from stormpetrel.store.state import STATE_FILE, StateStore, close_connections

_FILES: Final = (STATE_FILE, f"{STATE_FILE}-wal", f"{STATE_FILE}-journal")  # the database first: see `_copied`
_REST_S: Final = 1.0  # at least this long between two copies
_TRIES: Final = 20
_BLOCK: Final = 1024 * 1024
_PAUSE_S: Final = 0.05


def read_only_reason(folder: Path, state_folder: Path | None) -> str:
    """Why a site cannot be written, for a sentence that begins "The site is read-only: "; empty where it can.

    `state_folder` is where its SQLite database lies; None where the state is in PostgreSQL.
    """
    needed = [_nearest(folder / name) for name in ("tables", "models")]
    if state_folder is not None:
        needed += [_nearest(state_folder), *(path for path in (state_folder / STATE_FILE,) if path.exists())]
    return next((_reason(path) for path in needed if not os.access(path, os.W_OK, effective_ids=True)), "")


class ReadOnlyState(StateStore):
    """The state of a site that cannot be written.

    `open_copy` opens what is read (a fresh copy each time, or the server), `drop_copies` deletes it; `original` is the folder
    whose database is copied.
    """

    def __init__(
        self,
        open_copy: Callable[[], StateStore],
        *,
        site: Path,
        reason: str,
        is_full: bool = False,
        original: Path | None = None,
        drop_copies: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_copy = open_copy
        self._drop_copies = drop_copies
        self._site = site
        self.reason = reason
        self._is_full = is_full  # it could be written if there were space
        self._original = original
        self._renewing = threading.Lock()
        self._seen, self._seen_at = _facts_of(original), time.monotonic()
        copy = open_copy()
        super().__init__(copy._engine, copy._lock_file)

    def refusal(self) -> ReadOnlySiteError:
        """The error for a write to a read-only site."""
        if self._is_full:
            return ReadOnlySiteError(
                f"The site {self._site} cannot be written: {self.reason}.", hint="Free some space and run the same command again."
            )
        return ReadOnlySiteError(
            f"The site {self._site} is read-only: {self.reason}.",
            hint="It can be read. Where it can be written, run the same command there.",
        )

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A look at the state; whoever writes is refused."""
        self._follow()
        try:
            with super().transaction() as connection:
                connection.exec_driver_sql("PRAGMA query_only=ON" if self.is_sqlite else "SET TRANSACTION READ ONLY")
                yield connection
        except StoreNotWritableError as error:
            raise self.refusal() from error
        except StoreError as error:
            if "read-only transaction" not in error.what:  # the words of PostgreSQL
                raise
            raise self.refusal() from error

    @contextmanager
    def writer_lock(self) -> Iterator[None]:
        """Nobody commits here."""
        raise self.refusal()
        yield

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Nothing to wait for: whoever writes elsewhere does not see a lock of ours."""
        yield

    @contextmanager
    def sole(self, role: str) -> Iterator[Callable[[], None]]:
        """No watch runs here."""
        raise self.refusal()
        yield lambda: None

    def empty_log(self) -> None:
        """There is none of ours."""

    def close(self) -> None:
        """Close the connections, and delete the copy; no other is made."""
        with self._renewing:
            self._original = None
            super().close()
            self._drop_copies()

    def _follow(self) -> None:
        """Copy the database again where it has changed since; what is being read goes on in the old copy."""
        if self._original is None or time.monotonic() - self._seen_at < _REST_S or not self._renewing.acquire(blocking=False):
            return
        try:
            facts = _facts_of(self._original)
            if self._original is not None and facts != self._seen:
                copy, before = self._open_copy(), self._engine
                self._engine = copy._engine
                close_connections(before)
                self._seen = facts
            self._seen_at = time.monotonic()
        finally:
            self._renewing.release()


def open_copied_state(
    original: Path, *, site: Path, reason: str, is_full: bool, open_state: Callable[[Path], StateStore]
) -> ReadOnlyState:
    """The state in a folder that cannot be written, read through copies; `open_state` opens the one in a folder."""
    copies = _Copies(original, site / "tables", open_state)
    try:
        return ReadOnlyState(copies.open, site=site, reason=reason, is_full=is_full, original=original, drop_copies=copies.drop)
    except BaseException:
        copies.drop()
        raise


class _Copies:
    """Copies of a database, one after the other in a folder that is removed with the process; the last one is kept."""

    def __init__(self, original: Path, tables: Path, open_state: Callable[[Path], StateStore]) -> None:
        self._original = original
        self._tables = tables
        self._open_state = open_state
        self._folder = tempfile.TemporaryDirectory(prefix="stormpetrel-state-", ignore_cleanup_errors=True)
        self._before: Path | None = None

    def open(self) -> StateStore:
        """Make a copy, and open it."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        with writing(folder, doing=f"copy the state of {self._original}"):
            _copied(self._original, folder)
            _copy_identity(self._tables, folder / "tables")
        state = self._open_state(folder)
        if self._before is not None:
            shutil.rmtree(self._before, ignore_errors=True)  # who still reads it has it open
        self._before = folder
        return state

    def drop(self) -> None:
        """Delete them all."""
        self._folder.cleanup()


def _copied(original: Path, folder: Path) -> None:
    """Copy a database that somebody may be writing to; tried again until nothing has changed meanwhile.

    The database before its log: pages that a checkpoint has written into the one are still in the other.
    """
    for last in range(_TRIES, 0, -1):
        before = _facts_of(original)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError), _readable(original / name) as file, (folder / name).open("wb") as copy:
                shutil.copyfileobj(file, copy, _BLOCK)
        if _facts_of(original) == before:
            return
        if last > 1:
            time.sleep(_PAUSE_S)
    raise StoreError(f"The state store in {original} changes faster than it can be copied.", hint="Run the same command again.")


def _copy_identity(original: Path, tables: Path) -> None:
    """Who the site is: a state of an earlier release is brought up to date next to it, in the copy."""
    tables.mkdir()
    with suppress(FileNotFoundError):
        shutil.copyfile(original / IDENTITY_FILE, tables / IDENTITY_FILE)


@contextmanager
def _readable(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except PermissionError:
        raise StoreError(
            f"{path} cannot be read by {getpass.getuser()}.", hint="Run the command as the user that the site belongs to."
        ) from None
    with file:
        yield file


def _facts_of(original: Path | None) -> tuple[tuple[int, int, int] | None, ...]:
    """What changes when the files do: inode, size and time of each."""
    if original is None:
        return ()
    return tuple(_facts(original / name) for name in _FILES)


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _nearest(path: Path) -> Path:
    """The path, or where it would be created."""
    return next(folder for folder in (path, *path.resolve().parents) if folder.exists())


def _reason(path: Path) -> str:
    """Why a path cannot be written."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        mount = mount_of(path)
        return f"{mount.point} is mounted read-only" if mount else f"{path} is mounted read-only"
    return f"{path} belongs to {_user(path.stat().st_uid)}, and {getpass.getuser()} may not write there"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
