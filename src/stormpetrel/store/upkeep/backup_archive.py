"""A backup as a file: a tar of plain files under names of ours, the last of them a manifest with the digest of each.

names and files -> write_archive -> tar; tar -> open_archive -> BackupArchive, every member of which is whole. A backup may come
from anybody: only plain files are taken, under names that stay inside the site, each as the manifest tells it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from stormpetrel import __version__
from stormpetrel.errors import StoreError, StoreVersionError, UsageError
from stormpetrel.private_files import PRIVATE, create_private

BACKUP_FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
_MOST_BYTES: Final = 256 * 1024 * 1024  # of a member that is read into memory
_LONGEST_NAME: Final = 1000
_LONGEST_PART: Final = 255
_FOLDERS: Final = ("models", "tables")
_ANOTHER: Final = "Use another backup; nothing was written."


def write_archive(file: IO[bytes], files: Iterable[tuple[str, Path]], contents: dict[str, bytes]) -> None:
    """Write files, what is given as bytes, and the manifest."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        digests = {name: _add_file(archive, name, path) for name, path in files}
        digests |= {name: _add(archive, name, io.BytesIO(content), len(content)) for name, content in contents.items()}
        manifest = json.dumps({"format": BACKUP_FORMAT, "version": __version__, "digests": digests}).encode()
        _add(archive, MANIFEST, io.BytesIO(manifest), len(manifest))


class BackupArchive:
    """An open backup whose members have all been read once and are what the manifest says."""

    def __init__(self, archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], digests: dict[str, str]) -> None:
        self._archive, self._members, self._digests = archive, members, digests

    def read(self, name: str) -> bytes:
        """A member as bytes; KeyError where there is none."""
        content = _read(self._archive, self._members[name])
        self._refuse_changed(name, hashlib.sha256(content).hexdigest())
        return content

    def unpack(self, folder: Path, *, without: frozenset[str]) -> None:
        """Write the members into a new folder, each for us alone."""
        for name in self._digests.keys() - without:
            target = folder / name
            for above in reversed(Path(name).parents):  # mkdir(parents=True) would let the umask decide
                (folder / above).mkdir(exist_ok=True, mode=0o700)
            create_private(target)
            with self._file(name) as source, target.open("r+b") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            self._refuse_changed(name, source.digest.hexdigest())

    def _file(self, name: str) -> _Digesting:
        return _Digesting(_extracted(self._archive, self._members[name]))

    def _refuse_changed(self, name: str, digest: str) -> None:
        """The file may be written to while we read it."""
        if digest != self._digests[name]:
            raise StoreError(
                f"The backup changed at {name} while it was read.", hint="Try again with a copy that nobody writes to."
            )


@contextmanager
def open_archive(source: Path, *, needed: Iterable[str]) -> Iterator[BackupArchive]:
    """A backup, read to its end and found whole before anything is made of it; one sentence says why one is refused."""
    try:
        with source.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size)
            manifest = _manifest(archive, members)
            _refuse_newer(source, manifest)
            _refuse_others(members, manifest["digests"], needed)
            whole = BackupArchive(archive, members, manifest["digests"])
            _refuse_damaged(source, whole)
            yield whole
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"There is no file {source}.", hint="Check the path.") from None
    except tarfile.ReadError as error:
        raise StoreError(
            f"{source} is no whole backup of a site: {_plain(error)}.",
            hint="Use another backup, or unpack this one first if it is compressed; nothing was written.",
        ) from None
    except (tarfile.TarError, KeyError, ValueError, TypeError, AttributeError, EOFError, RecursionError, OverflowError) as error:
        raise StoreError(f"{source} is no whole backup of a site: {_plain(error)}.", hint=_ANOTHER) from None


def _plain(error: BaseException) -> str:
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return "".join(letter for letter in text if letter.isprintable())[:200] or type(error).__name__


def _members(archive: tarfile.TarFile, size: int) -> dict[str, tarfile.TarInfo]:
    """The members by name; ValueError for the first that no backup of ours has."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in archive:
        name = member.name[:80]
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            raise ValueError(f"{name!r} in it is no plain file but {_kind(member)}")
        if not _is_ours(member.name):
            raise ValueError(f"{name!r} in it is no name of a file of a site")
        if member.name in members:
            raise ValueError(f"{name!r} is in it twice")
        if member.size < 0 or member.offset_data + member.size > size:
            raise ValueError(f"{name!r} in it claims to be larger than the backup")
        members[member.name] = member
    return members


_KINDS: Final = {
    tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe", tarfile.DIRTYPE: "a folder",
}  # fmt: skip


def _kind(member: tarfile.TarInfo) -> str:
    return "a file with holes" if member.issparse() else _KINDS.get(member.type, "something else")


def _is_ours(name: str) -> bool:
    """Whether a name stays inside the site, in the one way of writing it: `tables/jobs/x`, not `./tables//jobs/../x`."""
    parts = name.split("/")
    plain = name.isprintable() and len(name) <= _LONGEST_NAME and "\\" not in name
    inside = all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_PART for part in parts)
    return plain and inside and (len(parts) == 1 or parts[0] in _FOLDERS) and name not in _FOLDERS


def _manifest(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo]) -> dict[str, Any]:
    if MANIFEST not in members:
        raise ValueError("it has no manifest with digests")
    manifest = json.loads(_read(archive, members[MANIFEST]))
    digests = {str(name): str(digest) for name, digest in dict(manifest["digests"]).items()}
    return {"format": int(manifest["format"]), "version": str(manifest["version"])[:40], "digests": digests}


def _refuse_newer(source: Path, manifest: dict[str, Any]) -> None:
    if manifest["format"] > BACKUP_FORMAT:
        raise StoreVersionError(
            f"{source} was made by a newer version ({manifest['version']}).", hint="Run: pip install --upgrade stormpetrel"
        )


def _refuse_others(members: dict[str, tarfile.TarInfo], digests: dict[str, str], needed: Iterable[str]) -> None:
    """Every member has its digest, every digest its member, and what makes a site is there."""
    for name in [*needed, *digests]:
        if name not in members:
            raise ValueError(f"{name[:80]!r} is missing from it")
    unlisted = next((name for name in members if name not in digests and name != MANIFEST), None)
    if unlisted is not None:
        raise ValueError(f"there is no digest of {unlisted[:80]!r} in its manifest")


def _refuse_damaged(source: Path, whole: BackupArchive) -> None:
    for name, digest in whole._digests.items():
        with whole._file(name) as file:
            while file.read(1 << 20):
                pass
        if file.digest.hexdigest() != digest:
            raise StoreError(f"{source} is damaged at {name}; nothing was written.", hint="Use another backup.")


class _Digesting(io.RawIOBase):
    """A file that is read once, and the digest of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece

    def close(self) -> None:
        self._file.close()
        super().close()


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name[:80]!r} in it is no plain file")
    return file


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > _MOST_BYTES:
        raise ValueError(f"{member.name[:80]!r} in it is larger than any of ours")
    return _extracted(archive, member).read()


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if not path.is_symlink():
            raise
        raise StoreError(
            f"{path} is a link: a backup takes plain files only.", hint="Put the file itself in its place."
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        return _add(archive, name, file, os.fstat(descriptor).st_size)


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> str:
    """Add a member for us alone; the digest of just the bytes that were stored."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, PRIVATE
    reading = _Digesting(content)
    archive.addfile(member, reading)
    return reading.digest.hexdigest()
