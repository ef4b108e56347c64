"""What every ingest counts: records read, what became of them, and the time that they cover."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(slots=True, kw_only=True)
class IngestCounts:
    """The counts that the reports of jobs, traces and events share; `first` and `last` are null before anything was kept."""

    read: int = 0
    kept: int = 0
    known: int = 0
    changed: int = 0
    first: datetime | None = None
    last: datetime | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def stretch(self, first: datetime, last: datetime) -> None:
        """Make the span of the report hold these times."""
        self.first = min(self.first, first) if self.first else first
        self.last = max(self.last, last) if self.last else last

    def counted(self) -> dict[str, int]:
        """The counts as `--json` prints them."""
        return {"read": self.read, "kept": self.kept, "known": self.known, "changed": self.changed}

    def span(self) -> dict[str, Any]:
        """The span of time as `--json` prints it, in ISO 8601."""
        return {
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
        }
