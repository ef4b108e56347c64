"""Tokens: what a program or a browser shows instead of a password.

add -> the token, once; afterwards only its SHA-256 is kept. find: the token -> whose it is and what it may do, or None.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import tokens as table

PREFIX: Final = "sp_"  # so that a token left in a file or a log can be searched for
_RANDOM_BYTES: Final = 32
_LONGEST_TOKEN: Final = 200
_LONGEST_NAME: Final = 128


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token."""

    digest: str
    name: str
    user: str
    scopes: frozenset[str]
    created: datetime
    expires: datetime | None


def digest_of(token: str) -> str:
    """What is kept in place of a token. A plain hash is enough: it has 256 random bits, so there is no list of likely ones."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenStore:
    """The tokens of a site. Their time is the real one, also where the site lives by the clock of a simulation."""

    def __init__(self, state: StateStore, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._state = state
        self._clock = clock

    def add(self, name: str, *, user: str, scopes: Iterable[str], days: float | None = None, at_most: int | None = None) -> str:
        """Make a token for a user (named as in the site's tables); this is the only time that it can be read.

        UsageError where the user has one of this name, or (`at_most`) as many valid ones already; those past their time go first.
        """
        _check_name(name)
        if not user:
            raise UsageError("A token must belong to a user.", hint="Name one: --user USER.")
        wanted = sorted(set(scopes))
        if not wanted:
            raise UsageError("A token without a scope could do nothing.", hint="Name one: --scope read.")
        if days is not None and not 0 < days <= 36_500:
            raise UsageError(f"A token cannot be valid for {days:g} days.", hint="Name more than 0 days and at most 36500.")
        token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        now = self._clock()
        row = {
            "digest": digest_of(token),
            "name": name,
            "user": user,
            "scopes": json.dumps(wanted),
            "created": now.isoformat(timespec="seconds"),
            "expires": None if days is None else (now + timedelta(days=days)).isoformat(timespec="seconds"),
        }
        with self._state.transaction() as connection:
            if at_most is not None:
                is_over = (table.c.user == user, table.c.expires <= row["created"])
                connection.execute(sa.delete(table).where(*is_over))
            names = set(connection.execute(sa.select(table.c.name).where(table.c.user == user)).scalars())
            if name in names:
                raise UsageError(f"There is a token '{name}' already.", hint=f"Run: stormpetrel tokens revoke '{name}'")
            if at_most is not None and len(names) >= at_most:
                raise UsageError(f"You have {len(names)} tokens already, and {at_most} is the most.", hint="Revoke one first.")
            connection.execute(sa.insert(table).values(row))
        return token

    def find(self, token: str) -> Token | None:
        """Whose token this is; None where it is unknown, revoked or past its time."""
        if not token.startswith(PREFIX) or len(token) > _LONGEST_TOKEN or not token.isascii():
            return None
        return self.with_digest(digest_of(token))

    def with_digest(self, digest: str) -> Token | None:
        """The token with this SHA-256, if it is still valid.

        The database compares digests, so the time that it takes tells nothing of a token; the last word is a comparison in
        constant time all the same.
        """
        with self._state.transaction() as connection:
            row = connection.execute(sa.select(table).where(table.c.digest == digest)).first()
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        token = _token(row)
        return None if self.is_over(token) else token

    def is_over(self, token: Token) -> bool:
        """Whether a token's time has passed."""
        return token.expires is not None and self._clock() >= token.expires

    def all(self, *, user: str | None = None) -> list[Token]:
        """Every token (of a user), also those past their time, by name and user."""
        query = sa.select(table).order_by(table.c.name, table.c.user)
        with self._state.transaction() as connection:
            rows = connection.execute(query if user is None else query.where(table.c.user == user))
            return [_token(row) for row in rows]

    def revoke(self, name: str, *, user: str | None = None) -> None:
        """Make a token worthless; UsageError where no user is named and several have one of that name."""
        is_it = [table.c.name == name] if user is None else [table.c.name == name, table.c.user == user]
        with self._state.transaction() as connection:
            users = list(connection.execute(sa.select(table.c.user).where(*is_it)).scalars())
            if len(users) > 1:
                raise UsageError(f"{len(users)} users have a token {name[:80]!r}.", hint="Name one of them: --user USER.")
            connection.execute(sa.delete(table).where(*is_it))
        if not users:
            raise NotThereError(f"There is no token {name[:80]!r}.", hint="Run: stormpetrel tokens list")


def _check_name(name: str) -> None:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"{name[:40]!r} cannot be the name of a token.",
            hint=f"Use 1 to {_LONGEST_NAME} printable characters, such as 'grafana'.",
        )


def _token(row: Any) -> Token:
    expires = None if row.expires is None else datetime.fromisoformat(row.expires)
    return Token(row.digest, row.name, row.user, frozenset(json.loads(row.scopes)), datetime.fromisoformat(row.created), expires)
