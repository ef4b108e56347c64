"""What the cluster has and allows, as the site last read it: one small JSON file, so that nobody waits for a hung scheduler.

Site -> ClusterCache.current -> CachedCluster; names of users are never in it. Who reads it: ingest/cluster.py.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from stormpetrel.errors import SourceError, StormpetrelError
from stormpetrel.records.cluster import Association, Cluster

if TYPE_CHECKING:
    from stormpetrel.config import SlurmSection

FILE: Final = "cluster.json"
FORMAT: Final = 1
_MOST_BYTES: Final = 16 * 1024**2
_MOST_USERS: Final = 1000

ReadCluster = Callable[[], "Cluster | None"]
ReadAssociations = Callable[[str, "str | None"], "tuple[Association, ...]"]  # user, name of the cluster


@dataclass(frozen=True, slots=True)
class CachedCluster:
    """The cluster as it was at `read_at` (UTC); `problem` says why it could not be read since, None where it is fresh enough."""

    cluster: Cluster
    read_at: datetime
    problem: str | None = None

    def age_s(self, now: datetime | None = None) -> float:
        """Seconds since it was read."""
        return max(0.0, ((now or datetime.now(UTC)) - self.read_at).total_seconds())


class ClusterCache:
    """What is known of one site's cluster, in memory and on disk; used by several threads.

    A scheduler that did not answer is left alone for as long as an answer would have been kept.
    """

    def __init__(self, folder: Path, slurm: SlurmSection) -> None:
        self._path, self._slurm = folder / FILE, slurm
        self._known: CachedCluster | None = None
        self._stamp: tuple[int, int] | None = None
        self._tried: tuple[datetime, str] | None = None
        self._users: dict[str, tuple[datetime, tuple[Association, ...]]] = {}
        self._lock = threading.Lock()

    def known(self) -> CachedCluster | None:
        """The last that was read, by whomever; no server is queried."""
        with self._lock:
            return self._read_file()

    def current(self, read: ReadCluster) -> CachedCluster | None:
        """What is known, read again if it is too old; None where there is no Slurm, or where it never answered."""
        if not self._slurm.cluster_minutes:
            return None
        with self._lock:
            known, now = self._read_file(), datetime.now(UTC)
            keep = timedelta(minutes=self._slurm.cluster_minutes)
            if known is not None and timedelta(0) <= now - known.read_at < keep:
                return known
            if self._tried is None or now - self._tried[0] >= keep:
                self._refresh(now, read)
            if self._tried is None or self._known is None:
                return self._known
            return CachedCluster(self._known.cluster, self._known.read_at, self._tried[1])

    @property
    def problem(self) -> str | None:
        """Why the scheduler could not be queried the last time; None where it could."""
        return self._tried[1] if self._tried else None

    def associations(self, user: str | None, read: ReadAssociations) -> tuple[Association, ...]:
        """What a user may do, requested now and kept in memory for a while; nothing where nobody can say."""
        known = self.known()
        if user is None or known is None or self.problem:
            return ()
        now = datetime.now(UTC)
        with self._lock:
            kept = self._users.get(user)
            if kept is not None and now - kept[0] < timedelta(minutes=self._slurm.cluster_minutes):
                return kept[1]
        associations = read(user, known.cluster.name)
        with self._lock:
            if len(self._users) >= _MOST_USERS:
                self._users.clear()
            self._users[user] = (now, associations)
        return associations

    def _refresh(self, now: datetime, read: ReadCluster) -> None:
        try:
            cluster = read()
        except StormpetrelError as error:
            self._tried = (now, error.what if isinstance(error, SourceError) else str(error))
            return
        self._tried = None
        if cluster is not None:
            self._known = CachedCluster(cluster, now)
            with suppress(OSError):  # a site that can only be read is read all the same
                _write(self._path, self._known)
                self._stamp = _stamp(self._path)

    def _read_file(self) -> CachedCluster | None:
        """What lies on the disk, where another process may have put something newer."""
        with suppress(OSError):
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                cached = _read(self._path)
                if cached is not None and (self._known is None or cached.read_at > self._known.read_at):
                    self._known, self._tried = cached, None
        return self._known


def _stamp(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_ino, facts.st_mtime_ns


def _read(path: Path) -> CachedCluster | None:
    """What a file says; None where it is damaged, of another format, or from the future: it is then made anew."""
    if path.stat().st_size > _MOST_BYTES:
        return None
    try:
        document: Any = json.loads(path.read_bytes())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            return None
        read_at = datetime.fromisoformat(str(document["read_at"]))
        cluster = TypeAdapter(Cluster).validate_python(document["cluster"])
    except (ValueError, KeyError, RecursionError, ValidationError):
        return None
    return CachedCluster(cluster, read_at) if read_at.tzinfo and read_at <= datetime.now(UTC) + timedelta(minutes=5) else None


def _write(path: Path, known: CachedCluster) -> None:
    """Put the file in its place at once; only its owner may read it."""
    document = {
        "format": FORMAT,
        "read_at": known.read_at.isoformat(),
        "cluster": TypeAdapter(Cluster).dump_python(known.cluster, mode="json"),
    }
    descriptor, name = tempfile.mkstemp(prefix=".cluster-", dir=path.parent)  # mode 0600, and a name that nobody knows
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
