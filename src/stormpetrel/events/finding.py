"""Findings about the event counts, and the sentences that state them.

One finding -> finding_text and its parts. Evidence is kept as values; the text is made here only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo

from stormpetrel.records.events import PLACES


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
    rows = [{**asdict(finding), "since": finding.since.isoformat() if finding.since else None} for finding in findings]
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


_ON: Final = {"site": "at site", "submit_host": "on", "group": "of group", "node": "on node"}
_LONGEST_NAME: Final = 80
_HARDLY_ANY: Final = 0.05  # expected: a ratio to it would say nothing


def shown_name(name: str) -> str:
    """A name out of a log, short and printable."""
    kept = "".join(letter if letter.isprintable() else "?" for letter in name[:_LONGEST_NAME])
    return kept + ("…" if len(name) > _LONGEST_NAME else "")


def since_text(since: datetime, now: datetime, zone: str) -> str:
    """A moment by the clock on the wall: the time of today, the weekday of this week, the date of anything older.

    >>> from datetime import UTC
    >>> since_text(datetime(2026, 1, 5, 14, tzinfo=UTC), datetime(2026, 1, 5, 17, tzinfo=UTC), "UTC")
    'since 14:00'
    """
    local, today = since.astimezone(ZoneInfo(zone)), now.astimezone(ZoneInfo(zone))
    if local.date() == today.date():
        return f"since {local:%H:%M}"
    if today - local < timedelta(days=6):
        return f"since {local:%A %H:%M}"
    return f"since {local:%Y-%m-%d %H:%M}"


def amount_text(count: float, expected: float) -> str:
    """How much against what was expected: `41× expected`, `12 % of expected`, `none, 1,234 expected`."""
    if count > expected:
        if expected < _HARDLY_ANY:
            return f"{count:,.0f}, none expected"
        ratio = count / expected
        return f"{ratio:,.0f}× expected" if ratio >= 10 else f"{ratio:.1f}× expected"
    if count <= 0:
        return f"none, {expected:,.0f} expected" if expected >= 1 else "none"
    return f"{count / expected:.0%} of expected".replace("%", " %")


def place_text(place: str, value: str, share: float, *, missing: bool = False) -> str:
    """Where it lies: `93 % on schedd-2`, or `93 % of what is missing on schedd-2`."""
    if place not in PLACES:
        return ""
    what = " of what is missing" if missing else ""
    return f"{min(1.0, share):.0%}".replace("%", " %") + f"{what} {_ON[place]} {shown_name(value)}"
