"""Findings in words: "JobDisconnected 41× expected since 14:00, 93 % on schedd-2"."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.records.events import PLACES

_ON: Final = {"site": "at site", "submit_host": "on", "group": "of group", "node": "on node"}
_LONGEST_NAME: Final = 80
_HARDLY_ANY: Final = 0.05  # expected: a ratio to it would say nothing


def shown_name(name: str) -> str:
    """A name out of a log, short and printable."""
    kept = "".join(letter if letter.isprintable() else "?" for letter in name[:_LONGEST_NAME])
    return kept + ("…" if len(name) > _LONGEST_NAME else "")


def since_words(since: datetime, now: datetime, zone: str) -> str:
    """A moment by the clock on the wall: the time of today, the weekday of this week, the date of anything older.

    >>> from datetime import UTC
    >>> since_words(datetime(2026, 1, 5, 14, tzinfo=UTC), datetime(2026, 1, 5, 17, tzinfo=UTC), "UTC")
    'since 14:00'
    """
    local, today = since.astimezone(ZoneInfo(zone)), now.astimezone(ZoneInfo(zone))
    if local.date() == today.date():
        return f"since {local:%H:%M}"
    if today - local < timedelta(days=6):
        return f"since {local:%A %H:%M}"
    return f"since {local:%Y-%m-%d %H:%M}"


def amount_words(count: float, expected: float) -> str:
    """How much against what was expected: `41× expected`, `12 % of expected`, `none, 1,234 expected`."""
    if count > expected:
        if expected < _HARDLY_ANY:
            return f"{count:,.0f}, none expected"
        ratio = count / expected
        return f"{ratio:,.0f}× expected" if ratio >= 10 else f"{ratio:.1f}× expected"
    if count <= 0:
        return f"none, {expected:,.0f} expected" if expected >= 1 else "none"
    return f"{count / expected:.0%} of expected".replace("%", " %")


def place_words(place: str, value: str, share: float, *, missing: bool = False) -> str:
    """Where it lies: `93 % on schedd-2`, or `93 % of what is missing on schedd-2`."""
    if place not in PLACES:
        return ""
    what = " of what is missing" if missing else ""
    return f"{min(1.0, share):.0%}".replace("%", " %") + f"{what} {_ON[place]} {shown_name(value)}"
