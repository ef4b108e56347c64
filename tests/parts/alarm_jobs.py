"""Hand-made job records for the rules of alarms: who ran what where, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import polars as pl

from stormpetrel.alarms.known_jobs import known_jobs
from stormpetrel.records.jobs import job_frame

DAY0 = datetime(2024, 5, 6, tzinfo=UTC)  # a Monday
_ids = count(1000)

Row = dict[str, Any]


def at(day: float = 0.0, *, hour: float = 0.0, minute: float = 0.0) -> datetime:
    """A moment of the hand-made site."""
    return DAY0 + timedelta(days=day, hours=hour, minutes=minute)


def job(user: str, node: str, start: datetime, *, run_s: float = 3600.0, state: str = "COMPLETED", name: str = "solve") -> Row:
    """One job that started at once."""
    return {
        "cluster": "c1", "job_id": next(_ids), "submit_time": start - timedelta(seconds=1), "restart": 0, "user": user,
        "job_name": name, "state": state, "start_time": start, "end_time": start + timedelta(seconds=run_s), "elapsed_s": run_s,
        "node_list": node,
    }  # fmt: skip


def lost(user: str, node: str, start: datetime, **more: Any) -> Row:
    """A job that failed ten seconds after its start."""
    return job(user, node, start, run_s=10.0, state="FAILED", **more)


def everyday(users: Iterable[str] = ("ann", "bob", "cat"), *, days: int = 6, nodes: int = 6, name: str = "solve") -> list[Row]:
    """Jobs that all end well, eight a day of each user, on n1, n2 and so on in turn."""
    rows = []
    for number, (day, slot, user) in enumerate((day, slot, user) for day in range(days) for slot in range(8) for user in users):
        rows.append(job(user, f"n{1 + number % nodes}", at(day, hour=8 + slot), name=name))
    return rows


def known(*rows: Row | list[Row]) -> pl.DataFrame:
    """The rows as the rules see them."""
    flat = [row for part in rows for row in (part if isinstance(part, list) else [part])]
    return known_jobs(job_frame(flat))
