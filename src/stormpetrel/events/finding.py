"""Findings: one thing that is wrong, in figures and in words. They are what an alarm says and what the store keeps (as JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class FindingKind(StrEnum):
    """What sort of trouble."""

    MORE = "more"  # more of a kind than expected
    FEWER = "fewer"
    NEW_KIND = "new kind"  # a kind that the model has never seen
    BLACK_HOLE = "black hole"  # a node that starts many jobs and fails them all within seconds
    SILENT_HOST = "silent host"  # a submit host that has stopped telling anything
    SILENCE = "silence"  # no event of any kind: the grid stands still, or its events are not collected


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason: "JobDisconnected 41× expected since 14:00, 93 % on schedd-2"."""

    kind: FindingKind
    words: str  # the whole sentence
    event_kind: str = ""
    count: float = 0.0
    expected: float = 0.0
    since: datetime | None = None  # UTC
    place: str = ""  # one of PLACES, or ""
    value: str = ""  # which site, host, group or node
    share: float = 0.0  # of the count (or of what is missing) that lies there
    surprise: float = 0.0


def findings_as_json(findings: Sequence[Finding]) -> str:
    """Findings as the store keeps them."""
    rows = [{**asdict(one), "since": one.since.isoformat() if one.since else None} for one in findings]
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)


def findings_of_json(text: str) -> list[Finding]:
    """Findings that the store has kept; the words are shown as text, never as markup."""
    rows: list[dict[str, Any]] = json.loads(text or "[]")
    return [
        Finding(
            **{
                **row,
                "kind": FindingKind(row["kind"]),
                "since": datetime.fromisoformat(row["since"]) if row.get("since") else None,
            }
        )
        for row in rows
    ]
