"""Structured logs: one JSON object per line where a program reads, a plain line where a person does.

Nothing that a user wrote, and nothing secret, is ever logged: counts, versions, times, and our own sentences.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO


class Log:
    """Writes events to a stream, standard error by default."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool | None = None) -> None:
        self._stream = stream or sys.stderr
        self._as_json = not self._stream.isatty() if as_json is None else as_json

    def info(self, event: str, **facts: Any) -> None:
        """Something happened."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Something is wrong, and the loop goes on."""
        self._write("warning", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            line = json.dumps({"time": now, "level": level, "event": event, **facts}, default=str)
        else:
            pairs = "  ".join(f"{name}={_shown(value)}" for name, value in facts.items())
            line = f"{now[11:19]}  {event}  {pairs}".rstrip()
        self._stream.write(line + "\n")
        self._stream.flush()


def _shown(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else one_line(str(value))


def one_line(text: str) -> str:
    """A text as it may stand in a log: line ends and terminal codes, which could forge lines of it, are written out."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text)
