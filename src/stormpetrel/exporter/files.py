"""Small kernel files, read with care: path -> bytes, or None where there is nothing to be had.

What cannot be read is counted by its reason, never raised: a job ends, and its files go, while they are being read.

CPU lists as the kernel writes them: "0,2-5" <-> {0, 2, 3, 4, 5}.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

LIMIT_BYTES: Final = 1 << 16
PROBLEMS: Final = ("denied", "vanished", "too_large", "malformed", "other")
# No links are followed, and a FIFO in a foreign tree does not make us wait.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_REASONS: Final = {
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ENODEV: "vanished",
    errno.ESRCH: "vanished",
}
_NOT_OFFERED: Final = (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL)  # the speed of a link that is down
MAX_CPU: Final = 1 << 16


class Files:
    """Reads files below a root, and counts by reason what it could not read."""

    def __init__(self, root: str = "/") -> None:
        self.root = "" if root == "/" else root.rstrip("/")
        self.problems: dict[str, int] = dict.fromkeys(PROBLEMS, 0)

    def at(self, path: str) -> str:
        """An absolute path of the node, below the root."""
        return self.root + path

    def read(self, path: str, limit: int = LIMIT_BYTES) -> bytes | None:
        """The whole file; None where it is not there, may not be read, or is larger than the limit."""
        try:
            number = os.open(path, _FLAGS)
            try:
                parts: list[bytes] = []
                size = 0
                while size <= limit:
                    part = os.read(number, limit + 1 - size)
                    if not part:
                        return parts[0] if len(parts) == 1 else b"".join(parts)
                    parts.append(part)
                    size += len(part)
            finally:
                os.close(number)
        except OSError as error:
            self.note(error)
            return None
        self.problems["too_large"] += 1
        return None

    def read_number(self, path: str) -> int | None:
        """A file that holds one whole number; None where it holds something else, such as `max`."""
        text = self.read(path)
        if text is None or text.strip() == b"max":
            return None
        return self.number(text)

    def number(self, text: bytes) -> int | None:
        """A whole number out of a file; None, and counted, where it is none."""
        if len(text) > 32 or not text.strip().isdigit():
            self.problems["malformed"] += 1
            return None
        return int(text)

    def note(self, error: OSError) -> None:
        """Count an error; what a node simply does not offer is no problem."""
        if error.errno not in _NOT_OFFERED:
            self.problems[_REASONS.get(error.errno or 0, "other")] += 1


@lru_cache(maxsize=1024)  # the same lists at every sample
def parse_cpu_list(text: bytes) -> frozenset[int] | None:
    """The CPUs of a list; None where it is no list.

    >>> sorted(parse_cpu_list(b"0,2-5"))
    [0, 2, 3, 4, 5]
    """
    cpus: list[int] = []
    for part in text.strip().split(b","):
        first, dash, last = part.partition(b"-")
        if not part:
            continue
        if not first.isdigit() or (dash and not last.isdigit()) or len(part) > 12:
            return None
        start, end = int(first), int(last or first)
        if end < start or end >= MAX_CPU:
            return None
        cpus.extend(range(start, end + 1))
        if len(cpus) > MAX_CPU:
            return None
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """CPUs as a list with ranges, in order.

    >>> format_cpu_list({0, 2, 3, 4, 5})
    '0,2-5'
    """
    parts: list[str] = []
    start = end = -2
    for cpu in sorted(cpus):
        if cpu != end + 1:
            if end >= 0:
                parts.append(_range(start, end))
            start = cpu
        end = cpu
    if end >= 0:
        parts.append(_range(start, end))
    return ",".join(parts)


def _range(start: int, end: int) -> str:
    return str(start) if start == end else f"{start}-{end}"
