"""Sizes for people: bytes -> text in the unit that fits, so that 30 MB never reads as 0.0 GB.

Memory is written as schedulers read it: `8 GB` is what `--mem=8G` asks for, 8 × 1024³ bytes. Disks and files are written as they
are sold, in powers of 1,000.
"""

from __future__ import annotations

from typing import Final

KB: Final = 1024
MB: Final = 1024**2
GB: Final = 1024**3
TB: Final = 1024**4
_UP: Final = 0.9995  # of the next unit: 1023.9 MB are said to be 1 GB


def memory_words(size_bytes: float) -> str:
    """A size of memory: `300 kB`, `512 MB`, `7.5 GB`, `16 GB`, `2 TB`."""
    for unit_bytes, unit in ((TB, "TB"), (GB, "GB")):
        if size_bytes >= _UP * unit_bytes:
            return f"{_short(size_bytes / unit_bytes)} {unit}"
    if size_bytes >= _UP * MB or size_bytes <= 0:
        return f"{size_bytes / MB:.0f} MB"
    return f"{max(1, round(size_bytes / KB))} kB"


def size_words(size_bytes: float) -> str:
    """A size of files or of a disk: `120 bytes`, `1.5 kB`, `88.1 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" or size_bytes >= 100 else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.3g} TB"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.1f}".removesuffix(".0")
