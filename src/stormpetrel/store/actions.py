"""What policies and people decided and did, in SQL: noted before it is done, counted against the caps in the same transaction.

Act -> keep_dry, or intend -> INTENDED (or HELD_BACK, OFF) -> update -> what became of it. The switch is a row and a file: one
of them is enough to stop everything.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import NotThereError, StormpetrelError
from stormpetrel.private_files import create_private
from stormpetrel.records.actions.acts import COUNTED, UNFINISHED, Act, ActState, Arming, Mode, Outcome, Step, Switch
from stormpetrel.records.actions.policies import Action, Policy
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import actions as table
from stormpetrel.store.state_tables import meta

OFF_FILE: Final = "ACTIONS_OFF"  # in the site's folder: while it is there nothing is done, also where the database is away
_SWITCH: Final = "actions_switch"
_ARMINGS: Final = "actions_policies"
_LOCK: Final = "actions_lock"
_HOUR: Final = timedelta(hours=1)
_PIECE: Final = 500  # keys in one query
_COLUMNS: Final = (
    "key", "policy", "digest", "mode", "user", "state", "outcome", "saved_core_s", "lost_core_s", "redo_core_s", "right_jobs",
    "wrong_jobs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Caps:
    """How many acts an hour may see: of one policy, and of all together; None: no cap, for a person."""

    policy: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """What a policy's cases of one mode came to; core-seconds."""

    cases: int = 0
    settled: int = 0
    right: int = 0
    wrong: int = 0
    saved_core_s: float = 0.0
    lost_core_s: float = 0.0
    redo_core_s: float = 0.0
    right_jobs: int = 0
    wrong_jobs: int = 0


class ActionStore:
    """Reads and writes the acts of a site, its switch, and which policies are armed."""

    def __init__(self, state: StateStore, folder: Path) -> None:
        self._state, self._folder = state, folder

    # The switch

    def switch(self) -> Switch:
        """Whether anything may be done; the file is asked first, and needs no database."""
        if file_says_off(self._folder):
            return replace(self._kept_switch_if_there(), is_on=False)
        return self._kept_switch()

    def turn(self, *, on: bool, by: str, why: str, now: datetime) -> Switch:
        """Turn the switch; off is written to the file first, and on takes the file away last."""
        if not on:
            turn_off_by_file(self._folder)
        switch = Switch(on, by, now, why)
        self._state.set_fact(_SWITCH, json.dumps({"on": on, "by": by, "at": _text(now), "why": why}))
        if on:
            with suppress(FileNotFoundError):
                (self._folder / OFF_FILE).unlink()
        return switch

    def _kept_switch(self) -> Switch:
        with self._state.transaction() as connection:
            return _switch_in(connection)

    def _kept_switch_if_there(self) -> Switch:
        try:
            return self._kept_switch()
        except StormpetrelError:  # the database is away: the file is enough to know that it is off
            return Switch(is_on=False)

    # Policies

    def armings(self, policies: Sequence[Policy], now: datetime) -> dict[str, Arming]:
        """Since when each policy runs dry as it is, and whether it is armed; one that was changed, or is new, begins now."""
        kept = self._kept_armings()
        fresh = {policy.name: Arming(policy.name, policy.digest, now) for policy in policies}
        return {name: kept.get((name, arming.digest), arming) for name, arming in fresh.items()}

    def list_policies(self, policies: Sequence[Policy], now: datetime, *, drop_others: bool = False) -> dict[str, Arming]:
        """Begin the dry run of policies that are new to the watch; return all as `armings` does.

        With `drop_others` policies that are not among these are let go of: one that comes back later runs dry first.
        """
        kept, armings = self._kept_armings(), self.armings(policies, now)
        current = {(arming.policy, arming.digest): arming for arming in armings.values()}
        if current.keys() - kept.keys() or (drop_others and kept.keys() - current.keys()):
            self._keep_armings(current if drop_others else kept | current)
        return armings

    def arm(self, arming: Arming) -> None:
        """Keep that a policy is armed, or (without a time) that it is not."""
        self._keep_armings(self._kept_armings() | {(arming.policy, arming.digest): arming})

    def _kept_armings(self) -> dict[tuple[str, str], Arming]:
        armings = [_arming(body) for body in json.loads(self._state.fact(_ARMINGS) or "[]")]
        return {(arming.policy, arming.digest): arming for arming in armings}

    def _keep_armings(self, armings: dict[tuple[str, str], Arming]) -> None:
        bodies = [{**asdict(arming), "listed": _text(arming.listed), "armed": _text(arming.armed)} for arming in armings.values()]
        self._state.set_fact(_ARMINGS, json.dumps(bodies))

    # Acts

    def keep_dry(self, acts: Sequence[Act], per_hour: int, now: datetime) -> list[Act]:
        """Keep what a policy decided and does not do, each once, as many as its cap allows; return those that are new."""
        known = self.states([act.key for act in acts])
        new = list({act.key: act for act in acts if act.key not in known}.values())
        if not new:
            return []
        with self._state.transaction() as connection:
            _hold_back_others(connection)
            room = max(0, per_hour - _count(connection, now, new[0].policy, Mode.DRY, (ActState.DRY,)))
            kept = new[:room]
            if kept:
                connection.execute(sa.insert(table), [_row(act) for act in kept])
        return kept

    def states(self, keys: Collection[str]) -> dict[str, ActState]:
        """The states of those of these acts that are kept."""
        wanted = sorted(set(keys))
        states: dict[str, ActState] = {}
        with self._state.transaction() as connection:
            for start in range(0, len(wanted), _PIECE):
                query = sa.select(table.c.key, table.c.state).where(table.c.key.in_(wanted[start : start + _PIECE]))
                states |= {row.key: ActState(row.state) for row in connection.execute(query)}
        return states

    def intend(self, act: Act, caps: Caps, now: datetime) -> ActState | None:
        """Note an act before it is done; None where it was noted before: it is not done twice.

        Switch, caps and the note are one transaction, which holds back every other process that wants to act. One that
        a cap held back before may be noted again.
        """
        with self._state.transaction() as connection:
            _hold_back_others(connection)
            before = connection.execute(sa.select(table.c.state).where(table.c.key == act.key)).scalar()
            if before is not None and before != ActState.HELD_BACK:
                return None
            state, why = self._verdict(connection, act, caps, now)
            if before is not None and state == ActState.HELD_BACK:
                return ActState.HELD_BACK
            connection.execute(sa.delete(table).where(table.c.key == act.key))
            connection.execute(sa.insert(table).values(_row(replace(act, state=state, why=why, decided=now))))
            return state

    def _verdict(self, connection: sa.Connection, act: Act, caps: Caps, now: datetime) -> tuple[ActState, str]:
        if file_says_off(self._folder) or not _switch_in(connection).is_on:
            return ActState.OFF, "Acting is switched off."
        if caps.policy is not None and _count(connection, now, act.policy) >= caps.policy:
            return ActState.HELD_BACK, f"Policy '{act.policy}' has done {caps.policy} acts within an hour."
        if caps.total is not None and _count(connection, now) >= caps.total:
            return ActState.HELD_BACK, f"All policies together have done {caps.total} acts within an hour."
        return ActState.INTENDED, ""

    def update(self, act: Act) -> None:
        """Keep what has become of an act."""
        with self._state.transaction() as connection:
            connection.execute(sa.update(table).where(table.c.key == act.key).values(_row(act)))

    def settle(self, acts: Sequence[Act]) -> None:
        """Keep what became of the jobs of dry acts, all or none."""
        with self._state.transaction() as connection:
            for act in acts:
                connection.execute(sa.update(table).where(table.c.key == act.key).values(_row(act)))

    def get(self, key: str) -> Act:
        """One act; NotThereError where there is none of this key."""
        acts = self._read(sa.select(table).where(table.c.key == key))
        if not acts:
            raise NotThereError(f"There is no act {key[:80]!r}.", hint="See which there are: stormpetrel actions list")
        return acts[0]

    def list(
        self, *, policy: str | None = None, modes: Iterable[Mode] = tuple(Mode), user: str | None = None, limit: int | None = None
    ) -> Sequence[Act]:
        """Acts, the newest first; of one policy, of one user's jobs, or all."""
        query = sa.select(table).where(table.c.mode.in_([mode.value for mode in modes]))
        if policy is not None:
            query = query.where(table.c.policy == policy)
        if user is not None:
            query = query.where(table.c.user == user)
        return self._read(query.order_by(table.c.decided.desc(), table.c.key).limit(limit))

    def unfinished(self) -> Sequence[Act]:
        """What was noted, and of which it is not known what became of it, the oldest first."""
        is_open = table.c.state.in_([state.value for state in UNFINISHED])
        return self._read(sa.select(table).where(is_open).order_by(table.c.decided))

    def unsettled(self, limit: int) -> Sequence[Act]:
        """Dry acts of which it is not known what became of their job or node, the oldest first."""
        query = sa.select(table).where(table.c.mode == Mode.DRY.value, table.c.settled.is_(None))
        return self._read(query.order_by(table.c.decided).limit(limit))

    def totals(self, policy: Policy, mode: Mode) -> LedgerTotals:
        """What the cases of a policy as it is now came to."""
        is_settled, c = table.c.settled.is_not(None), table.c
        sums = [sa.func.coalesce(sa.func.sum(column), 0) for column in (c.saved_core_s, c.lost_core_s, c.redo_core_s)]
        jobs = [sa.func.coalesce(sa.func.sum(column), 0) for column in (c.right_jobs, c.wrong_jobs)]
        counted = [
            sa.func.coalesce(sa.func.sum(sa.case((condition, 1), else_=0)), 0)
            for condition in (is_settled, c.outcome == Outcome.RIGHT.value, c.outcome == Outcome.WRONG.value)
        ]
        query = sa.select(sa.func.count(), *counted, *sums, *jobs)
        query = query.where(c.policy == policy.name, c.digest == policy.digest, c.mode == mode.value)
        with self._state.transaction() as connection:
            return LedgerTotals(*connection.execute(query).one())

    def in_last_hour(self, now: datetime, policy: str | None = None) -> int:
        """How many acts of a policy, or of all, count against the caps now."""
        with self._state.transaction() as connection:
            return _count(connection, now, policy)

    def prune(self, before: datetime) -> int:
        """Delete what was decided before a moment and is not under way; how many."""
        is_open = [state.value for state in UNFINISHED]
        with self._state.transaction() as connection:
            return connection.execute(
                sa.delete(table).where(table.c.decided < _text(before), table.c.state.not_in(is_open))
            ).rowcount

    def _read(self, query: sa.Select[Any]) -> Sequence[Act]:
        with self._state.transaction() as connection:
            return [_act(row) for row in connection.execute(query)]


def file_says_off(folder: Path) -> bool:
    """Whether the file that stops everything is there; one that cannot be looked at counts as there."""
    try:
        (folder / OFF_FILE).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def turn_off_by_file(folder: Path) -> None:
    """Stop everything by a file alone: from the next command on, whatever the database says."""
    if not file_says_off(folder):
        create_private(
            folder / OFF_FILE, "While this file is here, Stormpetrel acts on nothing. stormpetrel actions on removes it.\n"
        )


def _hold_back_others(connection: sa.Connection) -> None:
    """Let no other process decide until this transaction ends: its first statement writes a row that all of them write."""
    hold = sa.update(meta).where(meta.c.key == _LOCK).values(value="held")
    if connection.execute(hold).rowcount:
        return
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(meta).values(key=_LOCK, value="held"))
    except sa.exc.IntegrityError:  # another process was faster: wait for it
        connection.execute(hold)


def _count(
    connection: sa.Connection,
    now: datetime,
    policy: str | None = None,
    mode: Mode = Mode.LIVE,
    states: Sequence[ActState] = COUNTED,
) -> int:
    query = sa.select(sa.func.count()).where(
        table.c.mode == mode.value, table.c.state.in_([state.value for state in states]), table.c.decided > _text(now - _HOUR)
    )
    return int(connection.execute(query if policy is None else query.where(table.c.policy == policy)).scalar_one())


def _switch_in(connection: sa.Connection) -> Switch:
    text = connection.execute(sa.select(meta.c.value).where(meta.c.key == _SWITCH)).scalar()
    if not text:
        return Switch(is_on=True)
    body = json.loads(text)
    return Switch(bool(body["on"]), body["by"], _moment(body["at"]), body["why"])


def _arming(body: dict[str, Any]) -> Arming:
    listed = _moment(body["listed"])
    assert listed is not None
    return Arming(body["policy"], body["digest"], listed, _moment(body["armed"]), body["by"], body["without_dry_run"])


def _row(act: Act) -> dict[str, Any]:
    body = asdict(act)
    row = {name: body.pop(name) for name in _COLUMNS}
    row["decided"], row["settled"] = _text(body.pop("decided")), _text(body.pop("settled"))
    steps = [{**step, "begun": _text(step["begun"]), "ended": _text(step["ended"])} for step in body.pop("steps")]
    text = json.dumps({**body, "ended": _text(body["ended"]), "steps": steps}, ensure_ascii=False)
    return {**row, "outcome": None if act.outcome is None else act.outcome.value, "mode": act.mode.value, "body": text}


def _act(row: Any) -> Act:
    body = json.loads(row.body)
    steps = tuple(
        Step(
            tuple(step["words"]), step["repeatable"], _moment(step["begun"]), _moment(step["ended"]), step["code"], step["answer"]
        )
        for step in body.pop("steps")
    )
    decided = _moment(row.decided)
    assert decided is not None
    columns = {name: getattr(row, name) for name in _COLUMNS}
    known = {
        **body, **columns, "decided": decided, "steps": steps, "ended": _moment(body["ended"]), "settled": _moment(row.settled),
        "state": ActState(row.state), "mode": Mode(row.mode), "action": Action(body["action"]),
        "outcome": None if row.outcome is None else Outcome(row.outcome),
    }  # fmt: skip
    return Act(**known)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(moment: datetime | None) -> str | None:
    # Always with microseconds: texts then sort as times do.
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else None
