"""Memory that the allocator holds and nobody uses -> back to the system.

A watch reads tables and frees them again, poll after poll, for months. Objects do not pile up (docs/watch.md), but glibc keeps
what lies between the pieces still in use: some 300 MB after a few hours, which looks like a leak.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def return_free_memory() -> bool:
    """Give unused memory back; False where the C library has no way to."""
    trim = _malloc_trim()
    if trim is None:
        return False
    trim(0)
    return True


@cache
def _malloc_trim() -> Any:
    """The function of glibc; None with another C library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
