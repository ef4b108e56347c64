"""Alarms as `events score` and the demo print them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.grid import GridAlarm


def alarm_json(alarm: GridAlarm) -> dict[str, Any]:
    """An alarm as `--json` prints it."""
    span = {"from": alarm.start.isoformat(), "to": alarm.end.isoformat()}
    return {**span, "score": alarm.score, "why": alarm.findings, "labels": alarm.labels}


def alarm_span(alarm: GridAlarm, zone: str) -> str:
    """From and to, by the clock on the site's wall."""
    return f"{_local(alarm.start, zone)} to {_local(alarm.end, zone)}"


def label_command(alarm: GridAlarm, zone: str) -> str:
    """How to say that it was none."""
    return f"stormpetrel events label '{_local(alarm.start, zone)}' '{_local(alarm.end, zone)}' --kind normal"


def _local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
