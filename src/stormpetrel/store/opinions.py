"""Opinions on advice: "was this useful?", one per user, job and piece of advice; a later one replaces an earlier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import UsageError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import opinions as table

_LONGEST_ADVICE: Final = 2000
_LONGEST_JOB: Final = 300
_MOST_PER_USER: Final = 5000  # nobody fills the disk by clicking


@dataclass(frozen=True, slots=True)
class Opinion:
    """The opinion of one user on one piece of advice."""

    time: datetime
    user: str
    job: str
    advice: str
    useful: bool


@dataclass(frozen=True, slots=True)
class OpinionCount:
    """How many found a piece of advice useful, and how many did not."""

    advice: str
    useful: int
    not_useful: int


class OpinionStore:
    """The opinions of a site's users on the advice they were given."""

    def __init__(self, state: StateStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._state = state
        self._clock = clock

    def add(self, user: str, job: object, advice: str, *, useful: bool) -> None:
        """Keep what a user says of a piece of advice on a job (a JobRef, or its text)."""
        job_text = str(job)
        if not advice.strip() or len(advice) > _LONGEST_ADVICE or len(job_text) > _LONGEST_JOB:
            raise UsageError(
                "This is not a piece of advice on a job.",
                hint=f"Send the advice as it was shown, at most {_LONGEST_ADVICE} characters.",
            )
        same = (table.c.user == user, table.c.job == job_text, table.c.advice == advice)
        time = self._clock().isoformat(timespec="seconds")
        with self._state.transaction() as connection:
            connection.execute(sa.delete(table).where(*same))
            count = connection.execute(sa.select(sa.func.count()).select_from(table).where(table.c.user == user)).scalar_one()
            if count >= _MOST_PER_USER:
                raise UsageError(
                    f"You have given {_MOST_PER_USER} opinions, the most that are kept.", hint="Thank you; they are kept."
                )
            connection.execute(sa.insert(table).values(time=time, user=user, job=job_text, advice=advice, useful=useful))

    def of(self, user: str, job: object) -> dict[str, bool]:
        """The opinions of a user on the advice on a job: advice -> useful."""
        query = sa.select(table).where(table.c.user == user, table.c.job == str(job)).order_by(table.c.id)
        with self._state.transaction() as connection:
            return {row.advice: bool(row.useful) for row in connection.execute(query)}

    def counts(self) -> list[OpinionCount]:
        """How useful each piece of advice was found, the most judged first."""
        with self._state.transaction() as connection:
            rows = connection.execute(sa.select(table.c.advice, table.c.useful)).all()
        counts: dict[str, list[int]] = {}
        for advice, useful in rows:
            counts.setdefault(advice, [0, 0])[0 if useful else 1] += 1
        ranked = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
        return [OpinionCount(advice, yes, no) for advice, (yes, no) in ranked]

    def all_of_users(self) -> list[tuple[str, str, bool]]:
        """Every opinion: whose, on which advice, and whether it was found useful."""
        with self._state.transaction() as connection:
            rows = connection.execute(sa.select(table.c.user, table.c.advice, table.c.useful))
            return [(row.user, row.advice, bool(row.useful)) for row in rows]

    def recent(self, limit: int = 50) -> list[Opinion]:
        """The latest opinions, newest first."""
        with self._state.transaction() as connection:
            return [_opinion(row) for row in connection.execute(sa.select(table).order_by(table.c.id.desc()).limit(limit))]


def _opinion(row: Any) -> Opinion:
    return Opinion(datetime.fromisoformat(row.time), row.user, row.job, row.advice, bool(row.useful))
