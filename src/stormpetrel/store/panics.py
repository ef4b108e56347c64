"""Panics of compiled libraries: their text is kept off standard error where an error of ours says the same in one sentence.

A thread of Delta Lake that meets a full disk prints a page of Rust to file descriptor 2 before its error reaches us. While a
commit runs, that descriptor leads into memory; afterwards everything in it is passed on, but for the panic of a commit that
failed.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_PANIC: Final = re.compile(rb"^thread '.*panicked at ", re.MULTILINE)
# Lines of our own loggers, which other threads may have written meanwhile: JSON, or a time at the beginning.
_OURS: Final = re.compile(rb'\{"time"|\d{4}-\d\d-\d\dT|\d\d:\d\d:\d\d  ')
_STDERR: Final = 2
_SETTLE_S: Final = 0.05  # a thread that panics may be behind the error that it caused


@contextmanager
def without_panic_text() -> Iterator[None]:
    """Keep what a library prints about its panics off standard error, if the block fails; `--debug` shows it with the error."""
    captured = _CAPTURE.begin()
    try:
        yield
    except BaseException as error:
        if captured:
            time.sleep(_SETTLE_S)
            panic = _CAPTURE.end(failed=True)
            if panic:
                error.add_note(panic)
        raise
    if captured:
        _CAPTURE.end(failed=False)


class _Capture:
    """Standard error, led into memory as long as anybody is inside; all threads share it, as they share the descriptor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._failed = False
        self._real = self._memory = -1

    def begin(self) -> bool:
        """Go inside; False where there is no standard error to lead away."""
        with self._lock:
            if self._inside == 0:
                _flush()
                try:
                    self._real, self._memory = os.dup(_STDERR), os.memfd_create("stderr", os.MFD_CLOEXEC)
                    os.dup2(self._memory, _STDERR)
                except OSError:
                    return False
                self._failed = False
            self._inside += 1
            return True

    def end(self, *, failed: bool) -> str:
        """Go outside; the last one passes on what was printed, and gets the text of panics if anybody failed."""
        with self._lock:
            self._inside -= 1
            self._failed = self._failed or failed
            if self._inside:
                return ""
            _flush()
            os.dup2(self._real, _STDERR)
            text = os.pread(self._memory, os.fstat(self._memory).st_size, 0)
            os.close(self._real)
            os.close(self._memory)
        passed_on, panic = split_panic(text) if self._failed else (text, b"")
        if passed_on:
            with suppress(OSError):
                os.write(_STDERR, passed_on)
        return panic.decode("utf-8", "replace").strip()


_CAPTURE: Final = _Capture()


def _flush() -> None:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()


def split_panic(text: bytes) -> tuple[bytes, bytes]:
    """What was printed besides panics, and the text of the panics: from the first on, all but lines of our own loggers."""
    match = _PANIC.search(text)
    if not match:
        return text, b""
    lines = text[match.start() :].splitlines(keepends=True)
    ours = b"".join(line for line in lines if _OURS.match(line))
    theirs = b"".join(line for line in lines if not _OURS.match(line))
    before = text[: match.start()].rstrip(b"\n")
    return (before + b"\n" if before else b"") + ours, theirs
