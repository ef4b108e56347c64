"""Outages and maintenance, in SQL: what people, Grafana and calendars say of spans of time.

Outage -> add, or all of a source at once -> replace_source; list -> outages, oldest first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import outages as table
from stormpetrel.store.tables import Committed

_LONGEST_NAME: Final = 200  # of source and uid, as the table has them
_LONGEST_TITLE: Final = 500
_MOST: Final = 100_000  # outages of one source: nobody fills the disk with a calendar


class OutageStore:
    """Reads and writes the outages of a site."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def add(self, outage: Outage) -> Outage:
        """Keep an outage, in place of one with the same source and uid; without a uid it is given one. Returns what is kept."""
        kept = _checked(outage)
        with self._state.transaction() as connection:
            connection.execute(sa.delete(table).where(table.c.source == kept.source, table.c.uid == kept.uid))
            count = sa.select(sa.func.count()).select_from(table).where(table.c.source == kept.source)
            if connection.execute(count).scalar_one() >= _MOST:
                raise UsageError(f"{kept.source} has {_MOST:,} outages already, the most that are kept.")
            connection.execute(sa.insert(table).values(**_row(kept)))
        return kept

    def replace_source(self, source: str, outages: Sequence[Outage], start: datetime, end: datetime) -> Committed:
        """Take all that a source says of [start, end] now; how many are new, known, changed (those that are gone among them)."""
        by_uid = {entry.uid: entry for entry in (_checked(replace(outage, source=source)) for outage in outages)}
        if len(by_uid) > _MOST:
            raise UsageError(
                f"{source} tells of {len(by_uid):,} outages; at most {_MOST:,} can be kept.", hint="Read a shorter span."
            )
        with self._state.transaction() as connection:
            own = {row.uid: _outage(row) for row in connection.execute(sa.select(table).where(table.c.source == source))}
            gone = [uid for uid, entry in own.items() if uid not in by_uid and _overlaps(entry, start, end)]
            new = [uid for uid in by_uid if uid not in own]
            changed = [uid for uid, entry in by_uid.items() if uid in own and _row(own[uid]) != _row(entry)]
            for uid in (*gone, *changed):
                connection.execute(sa.delete(table).where(table.c.source == source, table.c.uid == uid))
            if new or changed:
                connection.execute(sa.insert(table), [_row(by_uid[uid]) for uid in (*new, *changed)])
        return Committed(kept=len(new), known=len(by_uid) - len(new) - len(changed), changed=len(changed) + len(gone))

    def list(self, since: datetime | None = None, until: datetime | None = None) -> list[Outage]:
        """The outages that overlap a span of time, oldest first."""
        query = sa.select(table).order_by(table.c.start, table.c.source, table.c.uid)
        if until is not None:
            query = query.where(table.c.start < _text(until))
        if since is not None:
            query = query.where(sa.or_(table.c.end.is_(None), table.c.end > _text(since), table.c.start >= _text(since)))
        with self._state.transaction() as connection:
            return [_outage(row) for row in connection.execute(query)]

    def remove(self, source: str, uid: str) -> Outage:
        """Delete an outage; returns what it was."""
        same = (table.c.source == source, table.c.uid == uid)
        with self._state.transaction() as connection:
            row = connection.execute(sa.select(table).where(*same)).first()
            if row is None:
                raise NotThereError(f"There is no outage {uid!r} of {source}.", hint="List them: stormpetrel events label --list")
            connection.execute(sa.delete(table).where(*same))
        return _outage(row)


def _checked(outage: Outage) -> Outage:
    """The outage as it is kept: in UTC, with a uid, its title as one bounded line."""
    if outage.start.tzinfo is None or (outage.end is not None and outage.end.tzinfo is None):
        raise UsageError("The time of an outage has no zone.", hint="Write it with one, such as 2026-01-31T14:00+01:00.")
    if outage.end is not None and outage.end < outage.start:
        raise UsageError(f"An outage ends before it begins ({outage.start:%Y-%m-%d %H:%M}).", hint="Check its two times.")
    if len(outage.source) > _LONGEST_NAME or len(outage.uid) > _LONGEST_NAME:
        raise UsageError("The name of an outage is too long.", hint=f"At most {_LONGEST_NAME} characters are kept.")
    title = " ".join("".join(letter if letter.isprintable() else " " for letter in outage.title).split())[:_LONGEST_TITLE]
    end = outage.end.astimezone(UTC) if outage.end else None
    resource = outage.resource if outage.resource.isprintable() and len(outage.resource) <= _LONGEST_NAME else ""
    kept = replace(outage, start=outage.start.astimezone(UTC), end=end, title=title, resource=resource)
    return kept if kept.uid else replace(kept, uid=_uid_of(kept))


def _uid_of(outage: Outage) -> str:
    """A name that says the same outage twice the same way: its beginning, kind and title."""
    content = f"{_text(outage.start)}|{outage.kind}|{outage.title}"
    return f"{outage.start:%Y%m%dT%H%M}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"


def _overlaps(outage: Outage, start: datetime, end: datetime) -> bool:
    return outage.start <= end and (outage.end is None or outage.end >= start)


def _text(moment: datetime) -> str:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _row(outage: Outage) -> dict[str, Any]:
    return {
        "source": outage.source,
        "uid": outage.uid,
        "start": _text(outage.start),
        "end": _text(outage.end) if outage.end else None,
        "kind": str(outage.kind),
        "title": outage.title,
        "resource": outage.resource or None,
    }


def _outage(row: Any) -> Outage:
    end = datetime.fromisoformat(row.end) if row.end else None
    return Outage(
        datetime.fromisoformat(row.start), end, OutageKind(row.kind), row.title, row.source, row.uid, resource=row.resource or ""
    )
