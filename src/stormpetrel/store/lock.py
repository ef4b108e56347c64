"""One writer at a time: a lock on the site that dies with its process.

A file lock where the state is SQLite; an advisory lock of the server where it is PostgreSQL.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stormpetrel.errors import StoreBusyError
from stormpetrel.private_files import PRIVATE

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
