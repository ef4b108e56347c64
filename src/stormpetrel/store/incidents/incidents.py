"""Incidents, what people did to them, and mutes, in SQL.

Incident -> commit (with the state of the watcher that led to it, in one transaction) -> list, recent, get. A body says what the
findings say; acknowledgements, verdicts and notes are rows of their own, so that a watch that writes an incident never overwrites
what a person said meanwhile.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from pydantic import ValidationError

from stormpetrel.errors import NotThereError, StoreError, UsageError
from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import (
    VERDICTS,
    ActKind,
    Incident,
    IncidentAct,
    IncidentState,
    JudgedIncident,
    Mute,
    Severity,
    standing_verdict,
)
from stormpetrel.store.incidents.history import IncidentHistory, incident_body
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import incident_acts, incidents, mutes, watchers

LONGEST_NOTE: Final = 4000
_LONGEST_NAME: Final = 300
_MOST_ACTS: Final = 1000  # of one incident: nobody fills the disk by clicking
NEWEST_INCIDENTS: Final = 300  # stay in the state however old: among them similar ones are looked for
_RECORDED: Final = "yes"  # it is in the table as it is here
_IS_DUE: Final = sa.or_(incidents.c.recorded.is_(None), incidents.c.recorded != _RECORDED)
_IS_VERDICT: Final = incident_acts.c.kind.in_([kind.value for kind in VERDICTS])
_IS_WORD: Final = sa.or_(_IS_VERDICT, incident_acts.c.kind == ActKind.WITHDRAW.value)
_HIGHEST: Final = 2**62
_PRUNED_FACT: Final = "incidents_pruned"
_PIECE: Final = 500  # numbers in one query: SQLite bears some thousand


@dataclass(frozen=True, slots=True)
class Pruned:
    """What the state store has let go of: no number above `number`, and nothing that was still open at `resolved_before`."""

    number: int
    resolved_before: datetime | None


class IncidentStore:
    """Reads and writes the incidents of a site."""

    def __init__(self, state: StateStore, history: IncidentHistory | None = None) -> None:
        self._state, self._history = state, history

    def commit(self, changed: Sequence[Incident], *, watcher: str, watcher_state: str, now: datetime) -> None:
        """Keep new and changed incidents, and what their watcher needs to go on from here: all of it, or nothing."""
        with self._state.transaction() as connection:
            if changed:
                connection.execute(sa.delete(incidents).where(incidents.c.number.in_([incident.id for incident in changed])))
                connection.execute(sa.insert(incidents), [_row(incident, now) for incident in changed])
            connection.execute(sa.delete(watchers).where(watchers.c.name == watcher))
            connection.execute(sa.insert(watchers).values(name=watcher, body=watcher_state))

    def watcher_state(self, watcher: str) -> str:
        """Return what a watcher left when it last committed; empty where it never has."""
        with self._state.transaction() as connection:
            return str(connection.execute(sa.select(watchers.c.body).where(watchers.c.name == watcher)).scalar() or "")

    def next_number(self) -> int:
        """Return the number that the next incident gets: none comes again, also after the state was lost."""
        with self._state.transaction() as connection:
            highest = int(connection.execute(sa.select(sa.func.max(incidents.c.number))).scalar() or 0)
        return max(highest, self._history.last_number() if self._history else 0, self.pruned().number) + 1

    def list(
        self,
        *,
        is_open: bool | None = None,
        resolved_after: datetime | None = None,
        severities: Iterable[Severity] | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[Incident]:
        """Return incidents, the newest first; `resolved_after` leaves out those that were over before.

        `before` leaves out those with this number or a higher one: with `limit`, to read them piece by piece.
        """
        query = sa.select(incidents.c.body).order_by(incidents.c.number.desc())
        if is_open is not None:
            query = query.where(incidents.c.resolved.is_(None) if is_open else incidents.c.resolved.is_not(None))
        if resolved_after is not None:
            query = query.where(sa.or_(incidents.c.resolved.is_(None), incidents.c.resolved > _text(resolved_after)))
        if severities is not None:
            query = query.where(incidents.c.severity.in_([severity.value for severity in severities]))
        if before is not None:
            query = query.where(incidents.c.number < before)
        if limit is not None:
            query = query.limit(limit)
        with self._state.transaction() as connection:
            return [_incident(body) for body in connection.execute(query).scalars()]

    def get(self, number: int) -> Incident:
        """Return one incident."""
        with self._state.transaction() as connection:
            body = connection.execute(sa.select(incidents.c.body).where(incidents.c.number == number)).scalar()
        if body is None:
            raise NotThereError(f"There is no incident {number}.", hint="List them: stormpetrel alarms list")
        return _incident(body)

    def _not_there(self, number: int) -> NotThereError:
        if self._history is not None and number <= self.pruned().number and self._history.get(number):
            what = f"Incident {number} has been over for so long that it gets no notes and verdicts any more."
            return NotThereError(what, hint=f"See it: stormpetrel alarms show {number}")
        return NotThereError(f"There is no incident {number}.", hint="List them: stormpetrel alarms list")

    def first_raised(self) -> datetime | None:
        """Return when the first incident was raised; None where there is none."""
        with self._state.transaction() as connection:
            text = connection.execute(sa.select(sa.func.min(incidents.c.raised))).scalar()
        return datetime.fromisoformat(text) if text else None

    def add_act(self, act: IncidentAct) -> IncidentAct:
        """Keep what a person did to an incident that is there."""
        kept = IncidentAct(act.incident, act.at.astimezone(UTC), act.user, act.kind, _line(act.note, "note"))
        with self._state.transaction() as connection:
            if not connection.execute(sa.select(incidents.c.number).where(incidents.c.number == act.incident)).first():
                raise self._not_there(act.incident)
            connection.execute(sa.update(incidents).where(incidents.c.number == act.incident).values(recorded=None))
            count = sa.select(sa.func.count()).select_from(incident_acts).where(incident_acts.c.incident == act.incident)
            if connection.execute(count).scalar_one() >= _MOST_ACTS:
                raise UsageError(f"Incident {act.incident} has {_MOST_ACTS:,} notes and verdicts, the most that are kept.")
            connection.execute(sa.insert(incident_acts).values(_act_row(kept)))
        return kept

    def acts(self, numbers: Iterable[int]) -> dict[int, Sequence[IncidentAct]]:
        """Return what people did to these incidents, the oldest first."""
        wanted = sorted(set(numbers))
        acts: dict[int, Any] = {number: [] for number in wanted}
        query = sa.select(incident_acts).where(incident_acts.c.incident.in_(wanted)).order_by(incident_acts.c.id)
        with self._state.transaction() as connection:
            for row in connection.execute(query):
                act = IncidentAct(row.incident, datetime.fromisoformat(row.time), row.user, ActKind(row.kind), row.note)
                acts[row.incident].append(act)
        return acts

    def judged(self) -> Sequence[JudgedIncident]:
        """Return the incidents whose verdict stands, the oldest first; they stay in the state, however long they are over."""
        with self._state.transaction() as connection:
            numbers = list(connection.execute(sa.select(incident_acts.c.incident).where(_IS_VERDICT).distinct()).scalars())
            bodies: Any = {}
            for start in range(0, len(numbers), _PIECE):
                query = sa.select(incidents.c.number, incidents.c.body)
                rows = connection.execute(query.where(incidents.c.number.in_(numbers[start : start + _PIECE])))
                bodies |= {row.number: row.body for row in rows}
        verdicts = {number: standing_verdict(acts) for number, acts in self.acts(bodies).items()}
        return [JudgedIncident(_incident(bodies[number]), act) for number, act in sorted(verdicts.items()) if act is not None]

    def verdicts_version(self) -> int:
        """Return a number that changes when a verdict is given or withdrawn."""
        with self._state.transaction() as connection:
            return int(connection.execute(sa.select(sa.func.max(incident_acts.c.id)).where(_IS_WORD)).scalar() or 0)

    def has_unrecorded(self) -> bool:
        """Whether an incident changed since it was written to its table."""
        with self._state.transaction() as connection:
            return connection.execute(sa.select(incidents.c.number).where(_IS_DUE).limit(1)).first() is not None

    def take_unrecorded(self, limit: int) -> tuple[str, Sequence[Incident]]:
        """Return incidents that changed since they were written to their table, the oldest first, and a word for `note_recorded`.

        Whatever changes one of them after this call makes it unrecorded again, and so does a kill before `note_recorded`.
        """
        token = secrets.token_hex(8)
        with self._state.transaction() as connection:
            query = sa.select(incidents.c.number).where(_IS_DUE).order_by(incidents.c.number).limit(limit)
            numbers = list(connection.execute(query).scalars())
            if not numbers:
                return token, []
            connection.execute(sa.update(incidents).where(incidents.c.number.in_(numbers)).values(recorded=token))
            bodies = connection.execute(
                sa.select(incidents.c.body).where(incidents.c.recorded == token).order_by(incidents.c.number)
            ).scalars()
            return token, [_incident(body) for body in bodies]

    def note_recorded(self, token: str) -> None:
        """Note that what `take_unrecorded` gave is in the table; what has changed meanwhile is not."""
        with self._state.transaction() as connection:
            connection.execute(sa.update(incidents).where(incidents.c.recorded == token).values(recorded=_RECORDED))

    def prune(self, resolved_before: datetime, *, keep: int) -> int:
        """Delete incidents that are in their table and over since before a moment, but none of the newest `keep`; how many.

        What people judged stays: it says what is never learnt as normal, and what is not raised again.
        """
        newest = sa.select(incidents.c.number).order_by(incidents.c.number.desc()).limit(keep)
        over = sa.select(incidents.c.number).where(
            incidents.c.recorded == _RECORDED, incidents.c.resolved < _text(resolved_before)
        )
        with self._state.transaction() as connection:
            kept = set(connection.execute(newest).scalars()) if keep else set()
            kept |= set(connection.execute(sa.select(incident_acts.c.incident).where(_IS_VERDICT)).scalars())
            numbers = sorted(set(connection.execute(over).scalars()) - kept)
            for start in range(0, len(numbers), _PIECE):
                piece = numbers[start : start + _PIECE]
                connection.execute(sa.delete(incident_acts).where(incident_acts.c.incident.in_(piece)))
                connection.execute(sa.delete(incidents).where(incidents.c.number.in_(piece)))
        if numbers:
            self._note_pruned(Pruned(numbers[-1], resolved_before))
        return len(numbers)

    def restore(self, resolved_after: datetime, now: datetime) -> int:
        """Take incidents back out of their table, after the state was lost: the newest, and what was not over then; how many."""
        past = self._history.list(up_to=_HIGHEST) if self._history else []
        newest, older = past[:NEWEST_INCIDENTS], past[NEWEST_INCIDENTS:]
        taken = [*newest, *(pair for pair in older if _is_kept(*pair, resolved_after))]
        gone = {incident.id for incident, _ in past} - {incident.id for incident, _ in taken}
        with self._state.transaction() as connection:
            there = set(connection.execute(sa.select(incidents.c.number)).scalars())
            taken = [(incident, acts) for incident, acts in taken if incident.id not in there]
            if taken:
                connection.execute(
                    sa.insert(incidents), [{**_row(incident, now), "recorded": _RECORDED} for incident, _ in taken]
                )
            rows = [_act_row(act) for _, acts in taken for act in acts]
            if rows:
                connection.execute(sa.insert(incident_acts), rows)
        if gone:
            self._note_pruned(Pruned(max(gone), resolved_after))
        return len(taken)

    def pruned(self) -> Pruned:
        """Return which incidents are in their table only."""
        text = self._state.fact(_PRUNED_FACT)
        if not text:
            return Pruned(0, None)
        facts = json.loads(text)
        return Pruned(int(facts["number"]), datetime.fromisoformat(facts["before"]))

    def _note_pruned(self, now: Pruned) -> None:
        before = self.pruned()
        limit = max(filter(None, (before.resolved_before, now.resolved_before)))
        facts = {"number": max(before.number, now.number), "before": _text(limit)}
        self._state.set_fact(_PRUNED_FACT, json.dumps(facts))

    def mute(self, mute: Mute) -> Mute:
        """Keep a mute, in place of those of the same subject; its `id` is given here. One that ends at once only ends those."""
        name, reason = _line(mute.subject.name, "subject", _LONGEST_NAME), _line(mute.reason, "reason")
        same = (mutes.c.cluster == mute.cluster, mutes.c.kind == mute.subject.kind.value, mutes.c.name == name)
        values = {
            "cluster": mute.cluster, "kind": mute.subject.kind.value, "name": name, "since": _text(mute.since),
            "until": _text(mute.until), "user": mute.user, "reason": reason,
        }  # fmt: skip
        with self._state.transaction() as connection:
            connection.execute(sa.update(mutes).where(*same, mutes.c.until > _text(mute.since)).values(until=_text(mute.since)))
            if mute.until <= mute.since:
                return mute
            number = connection.execute(sa.insert(mutes).values(**values)).inserted_primary_key
        return Mute(int(number[0]) if number else 0, mute.cluster, mute.subject, mute.since, mute.until, mute.user, reason)

    def mutes(self, *, after: datetime | None = None) -> Sequence[Mute]:
        """Return the mutes, the oldest first; without those that ended before `after`."""
        query = sa.select(mutes).order_by(mutes.c.id)
        if after is not None:
            query = query.where(mutes.c.until > _text(after))
        with self._state.transaction() as connection:
            return [_mute(row) for row in connection.execute(query)]


def _row(incident: Incident, now: datetime) -> dict[str, Any]:
    return {
        "number": incident.id,
        "raised": _text(incident.raised_at),
        "resolved": _text(incident.resolved_at) if incident.state == IncidentState.RESOLVED and incident.resolved_at else None,
        "changed": _text(now),
        "severity": incident.severity.value,
        "body": incident_body().dump_json(incident).decode(),
    }


def _is_kept(incident: Incident, acts: Sequence[IncidentAct], resolved_after: datetime) -> bool:
    """Whether an old incident belongs into the state: it was not over then, or people judged it."""
    is_recent = incident.resolved_at is None or incident.resolved_at > resolved_after
    return is_recent or any(act.kind in VERDICTS for act in acts)


def _act_row(act: IncidentAct) -> dict[str, Any]:
    return {"incident": act.incident, "time": _text(act.at), "user": act.user, "kind": act.kind.value, "note": act.note}


def _incident(body: str) -> Incident:
    try:
        return incident_body().validate_json(body)
    except ValidationError as error:
        raise StoreError(
            f"An incident in the state store cannot be read: {error.errors()[0]['msg']}.",
            hint="It may be of a newer version: pip install --upgrade stormpetrel",
        ) from error


def _mute(row: Any) -> Mute:
    subject = Subject(SubjectKind(row.kind), row.name)
    since, until = datetime.fromisoformat(row.since), datetime.fromisoformat(row.until)
    return Mute(row.id, row.cluster, subject, since, until, row.user, row.reason)


def _line(text: str, what: str, longest: int = LONGEST_NOTE) -> str:
    """The text without characters that do something to a terminal; one that is too long is refused."""
    if len(text) > longest:
        raise UsageError(f"The {what} is too long ({len(text):,} characters).", hint=f"At most {longest:,} are kept.")
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text).strip()


def _text(moment: datetime) -> str:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
