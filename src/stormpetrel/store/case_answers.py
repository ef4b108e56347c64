"""Answers of administrators on cases that they were asked about: a job, a node's hour, a bucket of events.

CaseAnswer -> add -> standing: the last answer on each case, unless it was withdrawn. What somebody answered is never deleted, so
that who said what, when and why can be read. Incidents have acts of their own (`store/incidents/incidents.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import UsageError
from stormpetrel.records.incidents import VERDICTS, ActKind
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import case_answers as table

LONGEST_CASE: Final = 300
_LONGEST_NOTE: Final = 4000
_MOST: Final = 100_000  # answers of a site: nobody fills the disk by clicking


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What one person said of one case, and when (UTC): confirm (real trouble), dismiss (none), withdraw."""

    case: str  # job:REF, node:NAME@UNIX-SECONDS, bucket:UNIX-SECONDS
    at: datetime
    user: str
    kind: ActKind
    note: str = ""


class CaseAnswerStore:
    """The answers of a site's administrators."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def add(self, answer: CaseAnswer) -> CaseAnswer:
        """Keep an answer; the last one on a case holds."""
        if len(answer.case) > LONGEST_CASE or len(answer.note) > _LONGEST_NOTE or not answer.case.isprintable():
            raise UsageError(
                "This is no case, or its note is too long.", hint=f"A note has at most {_LONGEST_NOTE:,} characters."
            )
        note = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in answer.note).strip()
        values = {"case": answer.case, "time": answer.at.astimezone(UTC).isoformat(), "user": answer.user}
        with self._state.transaction() as connection:
            if connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() >= _MOST:
                raise UsageError(f"{_MOST:,} answers are kept, the most that are.", hint="Thank you; they are used.")
            connection.execute(sa.insert(table).values(**values, kind=answer.kind.value, note=note))
        return CaseAnswer(answer.case, answer.at, answer.user, answer.kind, note)

    def standing(self) -> dict[str, CaseAnswer]:
        """Return the answer that holds on each case that has one."""
        last = {answer.case: answer for answer in self.recent()[::-1]}
        return {case: answer for case, answer in last.items() if answer.kind in VERDICTS}

    def recent(self, limit: int = _MOST) -> Sequence[CaseAnswer]:
        """Return the latest answers, the newest first."""
        with self._state.transaction() as connection:
            return [_answer(row) for row in connection.execute(sa.select(table).order_by(table.c.id.desc()).limit(limit))]


def _answer(row: Any) -> CaseAnswer:
    return CaseAnswer(row.case, datetime.fromisoformat(row.time), row.user, ActKind(row.kind), row.note)
