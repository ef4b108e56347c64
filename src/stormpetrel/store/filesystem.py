"""File systems: what a folder lies on, errors about it, and the lock that admits one writer at a time.

Whose a folder is, and who else can change it.

A site.toml names commands that are run and servers that are sent tokens: whoever can write it decides what we do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stormpetrel.errors import DiskFullError, SettingsError, StoreBusyError, StoreNotWritableError, StormpetrelError
from stormpetrel.private_files import PRIVATE
from stormpetrel.records.units import format_size

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
_GROUP, _OTHERS = 0o020, 0o002
_ROOT: Final = 0


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
    longest, mount = -1, None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, of_system = before.split(" "), after.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (wanted == point or wanted.startswith(point + "/")) and len(point) >= longest:
            device = of_system[1] if len(of_system) > 1 else ""
            longest, mount = len(point), Mount(point or "/", of_system[0], device.replace("\\040", " "))
    return mount


def filesystem_type(path: Path, mountinfo: str | None = None) -> str:
    """The type of the file system that holds `path` (`ext4`, `nfs4`, …); empty where the system does not tell."""
    mount = mount_of(path, mountinfo)
    return mount.kind if mount else ""


def format_disk(path: Path) -> str:
    """The disk that holds `path`, for a sentence: its device, where it is mounted, and how much of it is free."""
    where = next(folder for folder in (path, *path.resolve().parents) if folder.exists())
    mount, usage = mount_of(where), shutil.disk_usage(where)
    name = f"{mount.device} at {mount.point}" if mount else f"of {where}"
    return f"{name} ({format_size(usage.free)} of {format_size(usage.total)} free)"


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
            f"the disk {format_disk(where)} is full"
            if number == errno.ENOSPC
            else f"the quota on {format_disk(where)} is used up"
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


_ERRNO_PHRASES = {
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
    return next((number for phrase, number in _ERRNO_PHRASES.items() if phrase in lowered), None)


_WAIT_S = 600.0
_POLL_S = 0.02


@contextmanager
def file_lock(path: Path, *, wait_s: float = _WAIT_S, role: str = "") -> Iterator[None]:
    """Hold an exclusive lock on a file; wait for its holder, and give up with its process id."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        _acquire(descriptor, path, wait_s, role)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _acquire(descriptor: int, path: Path, wait_s: float, role: str) -> None:
    give_up = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
                if role:
                    raise StoreBusyError(
                        f"Another {role} (pid {holder}) runs on the site {path.parent}.", hint="One is enough; nothing was done."
                    ) from None
                raise StoreBusyError(
                    f"Another process (pid {holder}) has been writing to {path.parent} for over {wait_s:.0f} s.",
                    hint="Wait for it to end, or stop it, and run the same command again.",
                ) from None
            time.sleep(_POLL_S)


def who_else_can_write(folder: Path, name: str) -> str:
    """Who besides us and root can change a file of a folder, in words; empty where nobody can.

    Looks at the file, its folder and every folder above. Bits for a group or for others count only where they can get there. In
    a folder with the sticky bit (`/tmp`) others can make files, but cannot move ours.
    """
    place = folder.resolve()
    if (place / name).is_symlink():  # its own owner could point it elsewhere; then what it points to counts
        whose = (place / name).lstat().st_uid
        target = (place / name).resolve()
        foreign = whose not in (os.geteuid(), _ROOT)
        return f"{place / name} belongs to {user_name(whose)}" if foreign else who_else_can_write(target.parent, target.name)
    group, others = True, True  # whether they can reach what we look at
    for at in [*reversed(place.parents), place, place / name]:
        status = at.stat()
        if status.st_uid not in (os.geteuid(), _ROOT):
            return f"{at} belongs to {user_name(status.st_uid)}"
        held = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX) and at != place
        if others and status.st_mode & _OTHERS and not held:
            return f"everybody can write to {at}"
        if group and status.st_mode & _GROUP and not held:
            return f"a group can write to {at}"
        group, others = group and bool(status.st_mode & 0o011), others and bool(status.st_mode & 0o001)
    return ""


def owner_other_than_us(folder: Path, name: str) -> str:
    """The user, other than us and root, that a folder or a file in it belongs to; empty where there is none."""
    others = (status.st_uid for _, status in _readable(folder, name) if status.st_uid not in (os.geteuid(), _ROOT))
    return next(map(user_name, others), "")


def refuse_writable_by_everybody(folder: Path, name: str) -> None:
    """SettingsError where a site's folder or settings can be written by just anybody."""
    for path, status in _readable(folder, name):
        if status.st_mode & _OTHERS and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            raise SettingsError(
                f"Everybody can write to {path}, and so decide which commands this site runs.", hint=f"Run: chmod o-w {path}"
            )


def _readable(folder: Path, name: str) -> Iterator[tuple[Path, os.stat_result]]:
    """A folder and a file in it with their status, without those that cannot be read."""
    for path in (folder, folder / name):
        with suppress(OSError):
            yield path, path.stat()


def refuse_folder_of_another(folder: Path) -> None:
    """SettingsError where an empty folder that is to become a site belongs to somebody else, who could open it again."""
    if folder.exists() and folder.stat().st_uid != os.geteuid():
        owner = user_name(folder.stat().st_uid)
        raise SettingsError(
            f"{folder} belongs to {owner}: a site holds a key and names, and must be its user's own.",
            hint=f"Name a folder that does not exist yet, or run this as {owner}.",
        )


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"
