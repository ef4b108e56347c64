"""Saved views: a name for a link into our own pages. checked_link keeps every other link out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import views as table

LONGEST_LINK: Final = 2000
_LONGEST_NAME: Final = 128
_MOST_PER_USER: Final = 200  # nobody fills the disk by clicking


@dataclass(frozen=True, slots=True)
class SavedView:
    """A link that a user gave a name."""

    name: str
    link: str


def checked_link(link: str) -> str:
    r"""A link, if it is a path of our own pages; else UsageError. A browser must never be led from it to another host.

    Browsers read `//host` and `/\host` as another host, and leave out tabs and line ends before they decide.

    >>> checked_link("/jobs?user=kim")
    '/jobs?user=kim'
    """
    fine = (
        len(link) <= LONGEST_LINK
        and link.startswith("/")
        and not link.startswith("//")
        and "\\" not in link
        and link.isprintable()
        and " " not in link
    )
    if not fine:
        raise UsageError(
            f"{link[:80]!r} is not a link to one of our pages.",
            hint=f"Expected a path such as /jobs?user=kim, at most {LONGEST_LINK} characters.",
        )
    return link


class ViewStore:
    """The saved views of a site's users; each sees only the own ones."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def save(self, user: str, name: str, link: str) -> SavedView:
        """Give a link a name; a view of the same name is replaced."""
        name = name.strip()
        if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            raise UsageError(
                f"{name[:40]!r} cannot be the name of a view.", hint=f"Use 1 to {_LONGEST_NAME} printable characters."
            )
        view = SavedView(name, checked_link(link))
        with self._state.transaction() as connection:
            connection.execute(sa.delete(table).where(table.c.user == user, table.c.name == name))
            count = connection.execute(sa.select(sa.func.count()).select_from(table).where(table.c.user == user)).scalar_one()
            if count >= _MOST_PER_USER:
                raise UsageError(f"There are {_MOST_PER_USER} views already, the most that are kept.", hint="Delete one first.")
            connection.execute(sa.insert(table).values(user=user, name=name, link=view.link))
        return view

    def list(self, user: str) -> tuple[SavedView, ...]:
        """A user's views, by name."""
        query = sa.select(table).where(table.c.user == user).order_by(table.c.name)
        with self._state.transaction() as connection:
            return tuple(SavedView(row.name, row.link) for row in connection.execute(query))

    def delete(self, user: str, name: str) -> None:
        """Drop a view."""
        with self._state.transaction() as connection:
            gone = connection.execute(sa.delete(table).where(table.c.user == user, table.c.name == name)).rowcount
        if not gone:
            raise NotThereError(f"You have no view {name[:80]!r}.", hint="Reload the page: it may have been deleted elsewhere.")
