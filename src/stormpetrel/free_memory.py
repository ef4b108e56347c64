"""Memory that the C library keeps for later, given back to the system.

return_free_memory -> whether the C library has a way to.
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
