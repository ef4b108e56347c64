"""File systems: what a folder lies on, and foreign errors about it in our own words."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stormpetrel.errors import DiskFullError, StoreNotWritableError, StormpetrelError
from stormpetrel.records.sizes import size_words

# SQLite's locks are not reliable on these (sqlite.org/faq, "How To Corrupt", section 2.1).
NETWORK_TYPES = frozenset(
    [
        "nfs",
        "nfs3",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "panfs",
        "ceph",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "orangefs",
        "pvfs2",
        "glusterfs",
        "wekafs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.gpfs",
        "fuse.beegfs",
        "fuse.juicefs",
    ]
)
_MOUNTS = Path("/proc/self/mountinfo")
_FULL_BELOW = 64 * 1024  # bytes: SQLite needs 32 KiB for its shared memory, and says only "disk I/O error" without them


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where it is mounted, its type (`ext4`, `nfs4`, …), and the device behind it."""

    point: str
    kind: str
    device: str


def mount_of(path: Path, mountinfo: str | None = None) -> Mount | None:
    """The file system that holds `path`; None where the system does not tell.

    `mountinfo` is the text of /proc/self/mountinfo, read if not given.
    """
    if mountinfo is None:
        try:
            mountinfo = _MOUNTS.read_text()
        except OSError:
            return None
    wanted = str(path.resolve())
    longest, found = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, of_system = before.split(" "), after.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (wanted == point or wanted.startswith(point + "/")) and len(point) >= longest:
            device = of_system[1] if len(of_system) > 1 else ""
            longest, found = len(point), Mount(point or "/", of_system[0], device.replace("\\040", " "))
    return found


def filesystem_type(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system that holds `path` (`ext4`, `nfs4`, …); empty where the system does not tell."""
    mount = mount_of(path, mountinfo)
    return mount.kind if mount else ""


def disk_words(path: Path) -> str:
    """The disk that holds `path`, for a sentence: its device, where it is mounted, and how much of it is free."""
    where = next(folder for folder in (path, *path.resolve().parents) if folder.exists())
    mount, usage = mount_of(where), shutil.disk_usage(where)
    name = f"{mount.device} at {mount.point}" if mount else f"of {where}"
    return f"{name} ({size_words(usage.free)} of {size_words(usage.total)} free)"


def is_full(path: Path) -> bool:
    """Whether next to nothing can be written where `path` lies."""
    try:
        facts = os.statvfs(next(folder for folder in (path, *path.resolve().parents) if folder.exists()))
    except OSError:
        return False
    no_inodes = facts.f_files > 0 and facts.f_favail == 0
    return facts.f_bavail * facts.f_frsize < _FULL_BELOW or no_inodes


def is_network(filesystem: str) -> bool:
    """Whether a file system type is one on which SQLite must not live."""
    return filesystem in NETWORK_TYPES


@contextmanager
def writing(where: Path, *, doing: str) -> Iterator[None]:
    """Translate what goes wrong while something is written: full disk, read-only folder, no permission."""
    try:
        yield
    except StormpetrelError:
        raise
    except OSError as error:
        raise translated(error, where, doing) from error
    except BaseException as error:  # deltalake raises its own kinds, with the system's words inside; panics are no Exceptions
        problem = errno_in(str(error))
        if problem is None and type(error).__name__ == "PanicException" and is_full(where):
            problem = errno.ENOSPC
        if problem is None:
            raise
        raise translated(OSError(problem, os.strerror(problem)), where, doing) from error


def translated(error: OSError, where: Path, doing: str) -> StoreNotWritableError:
    """The one sentence for a write that the system refused."""
    number = errno_in(str(error)) if error.errno is None else error.errno  # deltalake's have only words
    if number == errno.EIO and is_full(where):
        number = errno.ENOSPC
    if number in (errno.ENOSPC, errno.EDQUOT):
        what = (
            f"the disk {disk_words(where)} is full" if number == errno.ENOSPC else f"the quota on {disk_words(where)} is used up"
        )
        hint = "Free some space and run the same command again: nothing was lost, the store is as it was."
        return DiskFullError(f"Cannot {doing} in {where}: {what}.", hint=hint)
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        what = "the folder is read-only" if number == errno.EROFS else "there is no permission to write"
        hint = "Choose another folder or make this one writable for the user that runs Stormpetrel."
    else:
        what = error.strerror or str(error).splitlines()[0]
        hint = "The store is as it was."
    return StoreNotWritableError(f"Cannot {doing} in {where}: {what}.", hint=hint)


_WORDS = {
    "no space left on device": errno.ENOSPC,
    "disk quota exceeded": errno.EDQUOT,
    "quota exceeded": errno.EDQUOT,
    "read-only file system": errno.EROFS,
    "permission denied": errno.EACCES,
    "database or disk is full": errno.ENOSPC,
    "attempt to write a readonly database": errno.EROFS,
    "unable to open database file": errno.EACCES,
    "disk i/o error": errno.EIO,
}


def errno_in(message: str) -> int | None:
    """The system's error number behind a message that quotes its words; None where it is about something else."""
    lowered = message.lower()
    return next((number for words, number in _WORDS.items() if words in lowered), None)
