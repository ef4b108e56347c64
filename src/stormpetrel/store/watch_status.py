"""What the watcher last said of itself, for the pages that show it: one small record in the state store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime

import sqlalchemy as sa

from stormpetrel.store.state import StateStore, meta

_KEY = "watch"


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A sign of life: who watches, since when, how far, and what is wrong. Times are ISO, in the site's own clock."""

    pid: int
    host: str
    started: str
    stepped: str  # the site's clock at the last turn of the loop
    stepped_real: str  # the machine's
    horizon: str | None = None
    problem: str | None = None
    open_jobs: int = 0
    predictions: int = 0  # since it was started
    late: int = 0
    poll_s: float = 5.0
    stopped: bool = False
    models: dict[str, int] = field(default_factory=dict)
    training: str | None = None  # what the last training came to

    def seconds_silent(self, now: datetime) -> float:
        """How long ago, in real time, the watcher was last heard of."""
        return (now - datetime.fromisoformat(self.stepped_real)).total_seconds()


def write_status(state: StateStore, status: WatchStatus) -> None:
    """Leave a sign of life."""
    value = json.dumps(asdict(status))
    with state.transaction() as connection:
        updated = connection.execute(sa.update(meta).where(meta.c.key == _KEY).values(value=value))
        if not updated.rowcount:
            connection.execute(sa.insert(meta).values(key=_KEY, value=value))


def read_status(state: StateStore) -> WatchStatus | None:
    """The last sign of life; None where nobody has watched yet."""
    with state.transaction() as connection:
        value = connection.execute(sa.select(meta.c.value).where(meta.c.key == _KEY)).scalar()
    return WatchStatus(**json.loads(value)) if value else None
