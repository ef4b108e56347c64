"""What the doctor says: findings with a level, and their sum in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the doctor examined."""

    level: Level
    check: str
    what: str
    hint: str = ""


def worst(findings: Sequence[Finding]) -> Level:
    """The gravest level among the findings."""
    levels = {finding.level for finding in findings}
    return "problem" if "problem" in levels else "warning" if "warning" in levels else "ok"


def summary(findings: Sequence[Finding]) -> str:
    """How many problems and warnings there are, as a sentence.

    >>> summary([Finding("warning", "ports", "…")])
    'No problems, 1 warning.'
    """
    problems, warnings = (sum(finding.level == level for finding in findings) for level in ("problem", "warning"))
    counted = _counted(problems, "problem") if problems else "No problems"
    return f"{counted}, {_counted(warnings, 'warning')}." if warnings else f"{counted}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
