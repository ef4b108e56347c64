"""Real file systems for tests: a small one, and a folder that is mounted read-only. They need root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def needs_mounts() -> None:
    """Skip the test where nothing can be mounted; in CI that is a failure."""
    if os.geteuid() != 0:
        assert os.environ.get("CI") != "true", "CI must be able to mount file systems"
        pytest.skip("needs root, to mount a file system")


@contextmanager
def small_disk(folder: Path, *, size: str = "8m") -> Iterator[Path]:
    """A file system of so many megabytes on a folder."""
    needs_mounts()
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def read_only(original: Path, at: Path) -> Iterator[Path]:
    """The same folder once more, at another path, mounted read-only."""
    needs_mounts()
    at.mkdir(parents=True)
    subprocess.run(["mount", "--bind", original, at], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", at], check=True)
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Write until only `leave` bytes are free; the file that takes the space."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        facts = os.statvfs(folder)
        file.write(b"\0" * max(0, facts.f_bavail * facts.f_frsize - leave))
        if leave == 0:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                pass
    return ballast


def write_to_stderr(text: bytes) -> None:
    """Write to file descriptor 2, as compiled libraries do."""
    os.write(2, text)
