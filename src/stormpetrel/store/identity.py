"""Who a site is: one id for life and one generation, known to the state store and to the tables alike.

Identity <-> rows of the state's `meta`, and `tables/site.json`. The id tells one site from another. The generation changes when
the state is made anew or restored, and when a user is forgotten: state and tables of different generations were not left behind
together, and who was forgotten in one of them may be back in the other.

Whether the state and the tables of a site belong together, asked whenever the site is opened.

Site -> agree: strangers are refused. Of two generations, each takes over whom the other knows to be forgotten, so that nobody
comes back; that they differ stays to be told by the doctor until `doctor --repair` has examined the rest.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormpetrel.errors import StateLostError, StoreError, StoreNotWritableError, StoreVersionError
from stormpetrel.store.filesystem import writing

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

IDENTITY_FILE: Final = "site.json"
FORMAT: Final = 1
_SITE_ID, _GENERATION = "site_id", "generation"
_GENERATION_FORM: Final = re.compile(r"[0-9]{1,9}-[0-9a-f]{8}")
REPAIR: Final = "Run: stormpetrel doctor --repair"


class Standing(StrEnum):
    """How the state store and the tables stand to each other."""

    TOGETHER = "together"
    STATE_OLDER = "state older"
    TABLES_OLDER = "tables older"
    APART = "apart"  # as many changes on either side, but not the same ones: a copy was put back, and both lived on
    STRANGERS = "strangers"  # of two sites


@dataclass(frozen=True, slots=True)
class Identity:
    """The id of a site and its generation, such as `7-9f86d081`: a number that grows, and a part that nobody else draws."""

    site_id: str
    generation: str

    @property
    def number(self) -> int:
        """How many generations there were before this one, plus one."""
        return int(self.generation.partition("-")[0])

    def following(self) -> Identity:
        """The next generation of the same site."""
        return Identity(self.site_id, _generation(self.number + 1))

    def as_facts(self) -> dict[str, str]:
        """As rows of the state's `meta`."""
        return {_SITE_ID: self.site_id, _GENERATION: self.generation}


def new_identity() -> Identity:
    """That of a site which nobody has seen before."""
    return Identity(secrets.token_hex(16), _generation(1))


def identity_of(facts: Mapping[str, str]) -> Identity | None:
    """What the `meta` of a state store says; None where it says nothing."""
    site_id, generation = facts.get(_SITE_ID, ""), facts.get(_GENERATION, "")
    return Identity(site_id, generation) if site_id and _GENERATION_FORM.fullmatch(generation) else None


def read_identity(tables: Path) -> Identity | None:
    """What lies among the tables; None where no version has put it there yet."""
    path = tables / IDENTITY_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        version, identity = int(record["format"]), identity_of({name: str(record[name]) for name in (_SITE_ID, _GENERATION)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path) from error
    if version > FORMAT:
        raise StoreVersionError(
            f"The tables in {tables} were written by a newer version (format {version}, this Stormpetrel knows {FORMAT}).",
            hint="Run: pip install --upgrade stormpetrel",
        )
    if identity is None:
        raise _damaged(path)
    return identity


def write_identity(tables: Path, identity: Identity) -> None:
    """Put it among the tables, whole or not at all."""
    path = tables / IDENTITY_FILE
    fresh = path.with_name(f".{IDENTITY_FILE}-{secrets.token_hex(8)}")
    with writing(tables, doing="write who the site is"):
        tables.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
                file.write(json.dumps({"format": FORMAT, **identity.as_facts()}, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


def holds_tables(tables: Path) -> bool:
    """Whether there is anything that a state store could belong to."""
    return (tables / IDENTITY_FILE).exists() or any(tables.glob("*/_delta_log/*"))


def standing(state: Identity, tables: Identity) -> Standing:
    """How two that should be the same stand to each other."""
    if state.site_id != tables.site_id:
        return Standing.STRANGERS
    if state.generation == tables.generation:
        return Standing.TOGETHER
    if state.number == tables.number:
        return Standing.APART
    return Standing.STATE_OLDER if state.number < tables.number else Standing.TABLES_OLDER


def _generation(number: int) -> str:
    return f"{number}-{secrets.token_hex(4)}"


def _damaged(path: Path) -> StoreError:
    return StoreError(
        f"{path} cannot be read.", hint="Restore it from a backup, or delete it and run: stormpetrel doctor --repair"
    )


_PROBLEMS: Final = {
    Standing.STATE_OLDER: "the state store is older than the tables: tokens that were revoked since then work again, and what "
    "was recorded in between is gone.",
    Standing.TABLES_OLDER: "the tables are older than the state store, or forgetting a user was cut short: rows of users who "
    "were forgotten may be there.",
    Standing.APART: "the state store and the tables are of two copies of this site that lived on separately.",
}


def agree(site: Site) -> None:
    """Refuse a state of another site; let each side know whom the other has forgotten."""
    in_state, in_tables = site.state.identity(), read_identity(site.tables)
    if in_state is None or in_tables is None:
        introduce(site, in_state or in_tables or new_identity())
        return
    state = standing(in_state, in_tables)
    if state is Standing.STRANGERS:
        raise StateLostError(
            "The state store belongs to other tables than those of this site.",
            hint="Put back the one that belongs to them; or move this one away and rebuild the rest: stormpetrel doctor --repair",
        )
    if state is not Standing.TOGETHER:
        share_tombstones(site)


def introduce(site: Site, identity: Identity) -> None:
    """Give both the same identity, once each knows whom the other has forgotten; a site that cannot be written stays as it is."""
    with suppress(StoreNotWritableError), site.state.writer_lock():
        site.forgotten.create()
        share_tombstones(site)
        site.state.keep_identity(identity)
        write_identity(site.tables, identity)


def share_tombstones(site: Site) -> int:
    """Let state and tables each remember whom the other has forgotten; how many the state did not know."""
    with suppress(StoreNotWritableError):
        site.forgotten.add(site.state.forgotten_digests())
        unknown = site.forgotten.digests() - site.state.forgotten_digests()
        return site.state.take_tombstones(unknown) if unknown else 0
    return 0


def follow_state(site: Site) -> None:
    """Let the tables be of the generation that the state is of."""
    identity = site.state.identity()
    if identity is not None and identity != read_identity(site.tables):
        write_identity(site.tables, identity)


def begin_generation(site: Site) -> None:
    """Begin a new generation of a site whose state was made anew or put back; two that disagree stay to be repaired."""
    agree(site)
    identity = site.state.identity()
    if identity is not None and standing_of(site) is Standing.TOGETHER:
        site.state.keep_identity(identity.following())
        follow_state(site)


def standing_of(site: Site) -> Standing:
    """How the state and the tables of an open site stand to each other."""
    in_state, in_tables = site.state.identity(), read_identity(site.tables)
    return standing(in_state, in_tables) if in_state and in_tables else Standing.TOGETHER


def disagreement(site: Site) -> str | None:
    """What is wrong between state and tables, for people; None where they belong together."""
    return _PROBLEMS.get(standing_of(site))
