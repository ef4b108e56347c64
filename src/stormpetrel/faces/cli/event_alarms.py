"""When an alarm of `events score` was, and how to say that it was none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import ScoredAlarm


def alarm_span(alarm: ScoredAlarm, zone: str) -> str:
    """From and to, by the clock on the site's wall."""
    return f"{_local(alarm.start, zone)} to {_local(alarm.end, zone)}"


def label_command(alarm: ScoredAlarm, zone: str) -> str:
    """How to say that it was none."""
    return f"stormpetrel events label '{_local(alarm.start, zone)}' '{_local(alarm.end, zone)}' --kind normal"


def _local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
