"""Files of ours that others must neither read nor redirect.

content -> a new file with a random name next to its place (exclusive, mode 0600 before the first byte) -> fsync -> rename.

Whoever can write to the same folder (`/tmp`, a shared project folder) can plant files and links there. So no name that could be
guessed is ever written to, no link is followed, and what lies at the place already is replaced, not written into.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

PRIVATE: Final = 0o600
_OTHERS: Final = 0o077
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_DEVICES: Final = frozenset(
    {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}
)  # not /dev/shm: there everybody can plant files


def create_private(path: Path, content: bytes | str = b"", *, mode: int = PRIVATE) -> None:
    """Make a file that is not there yet, in a folder of our own; FileExistsError where anything, also a link, has its name."""
    with os.fdopen(_created(path, mode), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_private(path: Path, content: bytes | str, *, mode: int = PRIVATE, overwrite: bool = True) -> None:
    """Put a file in its place, whole or not at all; what was there before, also a link, is replaced."""
    with writing_private(path, mode=mode, overwrite=overwrite) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing_private(path: Path, *, mode: int = PRIVATE, overwrite: bool = True) -> Iterator[IO[bytes]]:
    """A file to write to, which is put in its place when the block ends well, and goes away where it does not.

    Without `overwrite` a file that has the name by then is kept, and FileExistsError raised. A device (`/dev/stdout`) is written
    to as it is.
    """
    if path.parent in _DEVICES:
        with path.open("wb") as device:
            yield device
        return
    # Part of the name, so that people know what a killed process left behind; 40 letters are 160 bytes at most, of 255.
    fresh = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.partial")
    try:
        with open(fresh, "wb", opener=lambda name, _flags: _created(Path(name), mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _put(fresh, path, overwrite=overwrite)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def tighten(path: Path, mode: int = PRIVATE) -> None:
    """Take a file of ours away from everybody else; one that is not ours, or not there, stays as it is."""
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & _OTHERS & ~mode:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)


def _created(path: Path, mode: int) -> int:
    descriptor = os.open(path, _CREATE, mode & PRIVATE)
    try:
        os.fchmod(descriptor, mode)  # whatever the umask is
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _put(fresh: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        fresh.replace(path)
    else:
        _put_where_nothing_is(fresh, path)
    with suppress(OSError):  # the name is to outlive a power cut as well; some file systems cannot say so
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _put_where_nothing_is(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        fresh.rename(path)
