"""CPU lists as the kernel writes them: "0,2-5" <-> {0, 2, 3, 4, 5}."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

MAX_CPU: Final = 1 << 16


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
