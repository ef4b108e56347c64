"""Repair: what `doctor --repair` does when the state of a site was lost, is damaged, or does not fit its tables.

folder -> repair -> Repaired: what was done, and what is gone for good. Users stay forgotten by the tombstones among the tables,
and the registry comes back out of the model folders. Killed anywhere, a state that was begun stays refused until the next repair.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl
import sqlalchemy as sa

from stormpetrel.config import load_settings
from stormpetrel.errors import StateLostError
from stormpetrel.records.model_families import train_command
from stormpetrel.store.identity import Standing, agree, follow_state, new_identity, read_identity, share_tombstones, standing_of
from stormpetrel.store.registry.entries import Entry, entries_in_folders
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site, open_site, state_folder
from stormpetrel.store.state_tables import models as registry
from stormpetrel.store.tables import Table
from stormpetrel.store.upkeep.forgotten import FORGOTTEN
from stormpetrel.store.upkeep.upkeep import forget

ACTION: Final = "doctor --repair"  # what stands in the audit trail
ProblemOf = Callable[[Site, Training], str | None]  # why a training cannot be used; None where it can
_GONE: Final = (
    "Tokens are gone: whoever used one needs a new one (stormpetrel tokens add).",
    "Saved views, opinions on advice, the audit trail and the reports of past ingests are gone.",
    "Outages that were entered by hand are gone; those of Grafana and calendars come again when they are read.",
)
_UNKNOWN_FORGOTTEN: Final = (
    "Who had been forgotten is not known: the version that used this site last kept that in the lost state only. "
    "Forget them again before the next ingest: stormpetrel store forget USER."
)


@dataclass(slots=True)
class Repaired:
    """What a repair came to: sentences for people."""

    rebuilt: bool = False  # whether there is a new state
    done: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def repair(folder: Path, *, problem_of: ProblemOf, user: str) -> Repaired:
    """Make state and tables of a site fit again; StoreBusyError while a watch runs on it. `user` is for the audit trail."""
    report = Repaired()
    _set_damaged_aside(folder, report)
    knew_forgotten = Table(folder / "tables", FORGOTTEN).exists()
    try:
        site = open_site(folder)
    except StateLostError:
        site, report.rebuilt = open_site(folder, new_state=True), True
    with site, site.state.sole("watch"), site.state.writer_lock():
        if standing_of(site) is Standing.STRANGERS:
            agree(site)  # raises, and says what to do
        _repair(site, report, problem_of, user)
        if report.rebuilt:
            report.gone += [*_GONE, *(() if knew_forgotten else (_UNKNOWN_FORGOTTEN,))]
    return report


def _repair(site: Site, report: Repaired, problem_of: ProblemOf, user: str) -> None:
    apart = report.rebuilt or standing_of(site) is not Standing.TOGETHER
    _remember_forgotten(site, report)
    _enter_models(site, report)
    _put_in_use(site, report, problem_of, user)
    _forget_again(site, report, apart=apart)
    if report.rebuilt:
        _take_incidents(site, report)
    if not apart and not report.done:
        return
    if report.rebuilt:
        report.done.insert(0, "A new state store was made for the tables that are there.")
    elif apart:
        report.done.append("State and tables are of one generation again.")
    site.audit.record(user, ACTION, {"done": report.done})
    before = max(
        filter(None, (site.state.identity(), read_identity(site.tables))), key=lambda identity: identity.number, default=None
    )
    site.state.keep_identity((before or new_identity()).following())  # from here on the state counts as finished
    follow_state(site)


def _set_damaged_aside(folder: Path, report: Repaired) -> None:
    """A SQLite file that cannot be read any more is kept under another name, for whoever knows how to read it."""
    settings = load_settings(folder)
    path = state_folder(folder, settings) / "state.db"
    if settings.store.state_url or not path.is_file() or _is_sound(path):
        return
    kept = path.with_name(f"state.db.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(f"state.db{ending}")
        if part.exists():
            part.rename(kept.with_name(f"{kept.name}{ending}"))
    report.done.append(f"state.db was damaged; it is kept as {kept.name}.")


def _is_sound(path: Path) -> bool:
    try:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        finally:
            connection.close()
    except sqlite3.OperationalError:  # locked, or no permission: no damage
        return True
    except sqlite3.DatabaseError:
        return False


def _remember_forgotten(site: Site, report: Repaired) -> None:
    tombstones = share_tombstones(site)
    if tombstones:
        report.done.append(f"Forgotten users stay forgotten: {_count(tombstones, 'tombstone')} lay among the tables.")


def _enter_models(site: Site, report: Repaired) -> None:
    """Enter the models whose folders are there and which the registry does not know; none of them is in use yet."""
    known = {(version.name, version.version) for version in site.models.versions()}
    entries = [entry for entry in entries_in_folders(site.folder / "models") if (entry.name, entry.version) not in known]
    if not report.rebuilt:  # a folder without an entry was never entered: a training died before it was done
        entries = [entry for entry in entries if entry.noted]
    if not entries:
        return
    with site.state.transaction() as connection:
        connection.execute(sa.insert(registry), [_row(entry) for entry in entries])
    site.models.sign_unsigned()  # whoever repairs a site says that what lies there is the site's own
    report.done.append(f"Entered in the registry again, out of their folders: {_count(len(entries), 'model')}.")


def _take_incidents(site: Site, report: Repaired) -> None:
    """Incidents come back out of their table; messages about them are gone, and are made anew for what lasts."""
    taken = site.incidents.restore(site.now() - timedelta(days=site.settings.alarms.keep_days), site.now())
    if taken:
        report.done.append(f"Taken out of their table, with what people did to them: {_count(taken, 'incident')}.")


def _row(entry: Entry) -> dict[str, Any]:
    about = dict(entry.about) if entry.noted else {"why": "found by doctor --repair", **entry.about}
    return {
        "name": entry.name,
        "version": entry.version,
        "created": entry.created,
        "about": json.dumps(about),
        "current": False,
    }


def _put_in_use(site: Site, report: Repaired, problem_of: ProblemOf, user: str) -> None:
    """Of each family without a model in use: what was put in use last, or the newest, of those that can be read."""
    for family in sorted({training.family for training in site.models.trainings()}):
        if site.models.current_training(family) is not None:
            continue
        reasons: list[str] = []
        for training in sorted(site.models.trainings(family), key=_last_used, reverse=True):
            problem = problem_of(site, training)
            if problem is None:
                site.models.promote_training(training.name, user=user, action=ACTION)
                skipped = f" ({'; '.join(reasons)})" if reasons else ""
                report.done.append(f"{training.name} is in use now{skipped}.")
                break
            reasons.append(f"{training.name} cannot be used: {problem.rstrip('.')}")
        else:
            report.gone.append(f"No model of {family} can be used: {'; '.join(reasons)}. Run: {train_command(family)}.")


def _last_used(training: Training) -> tuple[str, int]:
    digits = training.name.rpartition("-")[2]
    return (training.promoted or {}).get("time", ""), int(digits) if digits.isdecimal() else 0


def _forget_again(site: Site, report: Repaired, *, apart: bool) -> None:
    """Delete what is there of users who were forgotten: tables that were put back may hold them again."""
    privacy = site.privacy
    if not privacy.forgotten:
        return
    users = site.jobs.table.scan().select(pl.col("user").unique()).collect()["user"].drop_nulls()
    back = [user for user in users if privacy.digest(user) in privacy.forgotten]
    rows = sum(forget(site, user) for user in back)
    if rows:
        report.done.append(
            f"Deleted, since they were there again: {_count(rows, 'job')} of {_count(len(back), 'forgotten user')}."
        )
    if apart and site.settings.store.pseudonymise_users:
        report.gone.append(
            "Whether rows of forgotten users are there again cannot be seen where users have pseudonyms. To be sure, forget them "
            "once more: stormpetrel store forget USER."
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
