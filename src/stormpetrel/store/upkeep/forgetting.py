"""Forgetting a user, around the deletion itself: what would go, and how running processes hear of it.

Site + user -> to_be_forgotten -> ToBeForgotten. Each forgetting is counted in the state store: a process that keeps rows in
memory compares the count with the one it knows, and lets go of everything where it has changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import polars as pl
import sqlalchemy as sa

from stormpetrel.records.jobs import KEY
from stormpetrel.store.site import Site
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import meta, opinions, tokens, views

_KEY: Final = "forgettings"


@dataclass(frozen=True, slots=True)
class ToBeForgotten:
    """How much there is about a user."""

    jobs: int
    predictions: int
    refused: int
    tokens: int
    views: int
    opinions: int

    def __bool__(self) -> bool:
        return any((self.jobs, self.predictions, self.refused, self.tokens, self.views, self.opinions))

    def __str__(self) -> str:
        counts = {
            "job": self.jobs,
            "prediction": self.predictions,
            "refused record": self.refused,
            "token": self.tokens,
            "saved view": self.views,
            "opinion": self.opinions,
        }
        parts = [f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
        return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] if parts else "nothing"


def to_be_forgotten(site: Site, user: str) -> ToBeForgotten:
    """What `store forget` would delete, without deleting it."""
    names = [user, site.privacy.pseudonym(user)]
    keys = site.jobs.table.scan().filter(pl.col("user").is_in(names)).select(KEY).collect()
    predictions = site.predictions.table.scan().select(KEY).join(keys.lazy(), on=list(KEY), how="semi", nulls_equal=True)
    with site.state.transaction() as connection:
        own = [
            connection.execute(sa.select(sa.func.count()).select_from(table).where(table.c.user.in_(names))).scalar_one()
            for table in (tokens, views, opinions)
        ]
    return ToBeForgotten(
        jobs=keys.height,
        predictions=int(predictions.select(pl.len()).collect().item()) if keys.height else 0,
        refused=int(site.quarantine.table.scan().filter(names_user(user)).select(pl.len()).collect().item()),
        tokens=own[0],
        views=own[1],
        opinions=own[2],
    )


def names_user(user: str) -> pl.Expr:
    """Which refused records hold a user's name as a word."""
    pattern = rf"(^|\W){re.escape(user)}(\W|$)"
    return pl.any_horizontal([pl.col(name).fill_null("").str.contains(pattern) for name in ("raw", "reason", "source")])


def forgettings(state: StateStore) -> int:
    """How often a user has been forgotten on this site."""
    with state.transaction() as connection:
        return int(connection.execute(sa.select(meta.c.value).where(meta.c.key == _KEY)).scalar() or 0)


def count_forgetting(state: StateStore) -> None:
    """Let running processes know. Whoever calls holds the lock of writers and has deleted the rows."""
    number = str(forgettings(state) + 1)
    with state.transaction() as connection:
        updated = connection.execute(sa.update(meta).where(meta.c.key == _KEY).values(value=number))
        if not updated.rowcount:
            connection.execute(sa.insert(meta).values(key=_KEY, value=number))
