"""Digests of a table's files, kept at commit: what each data file and each entry of the log was when it was written.

commit -> FileDigests.record -> a line per file in tables/NAME/_delta_log/_digests.jsonl; read -> path -> FileDigest. Files of
Delta Lake never change once they are written: one that differs from its digest was damaged. The lines lie next to the log that
names the files: backups hold them, and readers of Delta Lake pass over a name that is not theirs. A process that dies between
its commit and its lines leaves files without a digest; the next commit adds them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

NAME: Final = "_digests.jsonl"
_LOG: Final = "_delta_log"
_TAIL_BYTES: Final = 8192  # more than a line has


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What a file of a table was when it was committed; `rows` is None for entries of the log."""

    path: str  # from the table's folder, such as month=2026-10/part-….parquet
    sha256: str
    bytes: int
    rows: int | None
    version: int  # of the table


class FileDigests:
    """The digests of one table."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._file = table / _LOG / NAME

    def read(self) -> dict[str, FileDigest]:
        """Every digest by the path of its file; a line that is damaged or torn off counts as none."""
        try:
            lines = self._file.read_bytes().splitlines()
        except OSError:
            return {}
        return {digest.path: digest for line in lines if (digest := _parsed(line))}

    def record(self, *, after: int) -> None:
        """Add the files of all versions after the last that is known (`after` where none is).

        A digest that cannot be written is missing, not an error: the rows are committed.
        """
        with suppress(OSError, ValueError):
            known = self._last_version()
            first = 1 + (after if known is None else min(known, after))
            self._append(digest for version in self._versions(first) for digest in self._of_version(version))

    def adopt(self, files: Collection[str]) -> None:
        """Give files that have no digest one, as they are now: those from before digests were kept, and checkpoints."""
        known = self.read()
        missing = sorted(path for path in files if path not in known)
        version = self._last_version() or 0
        with suppress(OSError):
            self._append(self._digest(path, None, version) for path in missing)

    def adopt_checkpoints(self) -> None:
        """Give checkpoints that were not made by a commit their digests."""
        self.adopt([f"{_LOG}/{path.name}" for path in (self._table / _LOG).glob("*.checkpoint.parquet")])

    def prune(self) -> None:
        """Drop the digests of files that have been deleted."""
        digests = self.read()
        kept = [digest for digest in digests.values() if (self._table / digest.path).exists()]
        if len(kept) == len(digests):
            return
        kept.sort(key=lambda digest: digest.version)
        with suppress(OSError):
            descriptor, name = tempfile.mkstemp(dir=self._file.parent, prefix="._digests-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_lines(kept))
                Path(name).replace(self._file)
            except OSError:
                Path(name).unlink(missing_ok=True)

    def _versions(self, first: int) -> Iterator[int]:
        version = first
        while self._entry(version).exists():
            yield version
            version += 1

    def _entry(self, version: int) -> Path:
        return self._table / _LOG / f"{version:020d}.json"

    def _of_version(self, version: int) -> Iterator[FileDigest]:
        """The data files that a version has added, its checkpoint, and last its entry: whoever finds that finds the others."""
        entry = self._entry(version)
        for action in entry.read_text(encoding="utf-8").splitlines():
            added = json.loads(action).get("add")
            if added:
                rows = json.loads(added.get("stats") or "{}").get("numRecords")
                with suppress(FileNotFoundError):  # a later version has removed it, and it is gone
                    yield self._digest(unquote(added["path"]), rows, version)
        for path in (entry.with_name(f"{version:020d}.checkpoint.parquet"), entry):
            if path.exists():
                yield self._digest(f"{_LOG}/{path.name}", None, version)

    def _digest(self, path: str, rows: int | None, version: int) -> FileDigest:
        digest, size = digest_of_file(self._table / path)
        return FileDigest(path, digest, size, rows, version)

    def _last_version(self) -> int | None:
        """The version of the last whole line."""
        try:
            with self._file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return None
        entries = (_parsed(line) for line in reversed(lines))
        return next((digest.version for digest in entries if digest), None)

    def _append(self, digests: Iterable[FileDigest]) -> None:
        text = _lines(digests)
        if not text:
            return
        descriptor = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + text)
        finally:
            os.close(descriptor)


def digest_of_file(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _lines(digests: Iterable[FileDigest]) -> bytes:
    return b"".join(json.dumps(asdict(digest), separators=(",", ":")).encode() + b"\n" for digest in digests)


def _parsed(line: bytes) -> FileDigest | None:
    try:
        values: dict[str, Any] = json.loads(line)
        return FileDigest(**values)
    except (ValueError, TypeError):
        return None
