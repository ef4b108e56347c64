"""What is told about the reading of a file of incidents, and the name that its entries go by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LONGEST_UID: Final = 150  # letters of an id, or of the name of a file
_MOST_NOTED: Final = 20


@dataclass(slots=True)
class IncidentNotes:
    """What is told about the reading of a file: the first bad entries with their line, and how many more there are."""

    notes: list[str] = field(default_factory=list)
    bad: int = 0

    def refuse(self, line: int, why: str) -> None:
        """Tell that an entry was left out."""
        self.bad += 1
        if self.bad <= _MOST_NOTED:
            self.notes.append(f"line {line}: left out. {why}")

    def close(self) -> None:
        """Tell how many were left out beyond those that were told one by one."""
        if self.bad > _MOST_NOTED:
            self.notes.append(f"{self.bad - _MOST_NOTED:,} more entries were left out.")


def source_name(file_name: str) -> str:
    """The source of what a file tells: a file of the same name takes its place."""
    return f"file:{''.join(letter if letter.isprintable() else '_' for letter in file_name)[:LONGEST_UID]}"
