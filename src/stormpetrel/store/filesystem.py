"""File systems: what a folder lies on, and foreign errors about it in our own words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stormpetrel.errors import StoreError, StoreNotWritableError

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


def filesystem_type(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system that holds `path` (`ext4`, `nfs4`, …); empty where the system does not tell.

    `mountinfo` is the text of /proc/self/mountinfo, read if not given.
    """
    if mountinfo is None:
        try:
            mountinfo = _MOUNTS.read_text()
        except OSError:
            return ""
    wanted = str(path.resolve())
    best, found = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mount = fields[4].replace("\\040", " ").rstrip("/")
        if (wanted == mount or wanted.startswith(mount + "/")) and len(mount) >= best:
            best, found = len(mount), after.split(" ")[0]
    return found


def is_network(filesystem: str) -> bool:
    """Whether a file system type is one on which SQLite must not live."""
    return filesystem in NETWORK_TYPES


@contextmanager
def writing(where: Path, *, doing: str) -> Iterator[None]:
    """Translate what goes wrong while something is written: full disk, read-only folder, no permission."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise translated(error, where, doing) from error
    except Exception as error:  # deltalake raises its own kinds, with the system's words inside
        problem = errno_in(str(error))
        if problem is None:
            raise
        raise translated(OSError(problem, os.strerror(problem)), where, doing) from error


def translated(error: OSError, where: Path, doing: str) -> StoreNotWritableError:
    """The one sentence for a write that the system refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full" if error.errno == errno.ENOSPC else "the quota is used up"
        hint = "Free some space and run the same command again: nothing was lost, the store is as it was."
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        what = "the folder is read-only" if error.errno == errno.EROFS else "there is no permission to write"
        hint = "Choose another folder or make this one writable for the user that runs Stormpetrel."
    else:
        what = error.strerror or str(error)
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
}


def errno_in(message: str) -> int | None:
    """The system's error number behind a message that quotes its words; None where it is about something else."""
    lowered = message.lower()
    return next((number for words, number in _WORDS.items() if words in lowered), None)
