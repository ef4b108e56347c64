"""Whether the state and the tables of a site belong together, asked whenever the site is opened.

Site -> agree: strangers are refused. Of two generations, each takes over whom the other knows to be forgotten, so that nobody
comes back; that they differ stays to be told by the doctor until `doctor --repair` has examined the rest.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stormpetrel.errors import StateLostError, StoreNotWritableError
from stormpetrel.store.identity import Identity, Standing, new_identity, read_identity, standing, write_identity

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

REPAIR: Final = "Run: stormpetrel doctor --repair"
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
