"""Who is asking, and what that person may see. Every question of a face goes through a Viewer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.errors import AccessError

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

READ: Final = "read"  # jobs, predictions, trends, waste, health
PREDICT: Final = "predict"  # judge requests and scripts
INGEST: Final = "ingest"  # hand in job records: for a program, such as Slurm's jobcomp plug-in
WRITE: Final = "write"  # opinions on advice, saved views
ACT: Final = "act"  # cancel jobs: the own ones, administrators any
MANAGE: Final = "manage"  # promote and roll back models; administrators only
SCOPES: Final = (READ, PREDICT, WRITE, INGEST, ACT, MANAGE)
_OF_PEOPLE: Final = frozenset(SCOPES) - {INGEST}  # without a token: nobody hands in records of jobs that are not theirs


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person or a program with a name; users see their own jobs, administrators all."""

    user: str
    is_admin: bool
    scopes: frozenset[str] = _OF_PEOPLE
    is_proved: bool = False  # the kernel says who it is, at the other end of a Unix socket: no token, session or proxy does

    def sees(self) -> pl.Expr:
        """Which rows of a frame with `user` this viewer may see; AccessError for one who may not read at all."""
        self.require(READ)
        return self.owns()

    def owns(self) -> pl.Expr:
        """Which rows of a frame with `user` are this viewer's to write about: the own ones, or an administrator's all."""
        return pl.lit(True) if self.is_admin else (pl.col("user") == self.user).fill_null(False)

    def require(self, scope: str) -> None:
        """Refuse what this viewer's scopes do not cover."""
        if scope not in self.scopes:
            raise AccessError(f"This needs the scope '{scope}'.", hint="Ask an administrator for a token that has it.")
        if scope == MANAGE:
            self.require_admin()

    def require_proof(self) -> None:
        """Refuse who was not named by the kernel: what lets somebody in must not come from what somebody may have found."""
        if not self.is_proved:
            raise AccessError(
                "This is done on a machine of the cluster, through the service's Unix socket: a token cannot make tokens.",
                hint="Log in there and run: stormpetrel tokens create NAME",
            )

    def signature(self, site: Site) -> str:
        """Who signs an act in the audit trail; where nobody had to log in, who runs this process."""
        from stormpetrel.lifecycle.family import operator

        return self.user or site.user_in_tables(operator())

    def require_admin(self) -> None:
        """Refuse who is not an administrator."""
        if not self.is_admin:
            raise AccessError("Only administrators may do this.", hint="Administrators are named in site.toml: serve.admins.")


LOCAL: Final = Viewer("", is_admin=True, scopes=frozenset(SCOPES))  # loopback without a login
_viewer: ContextVar[Viewer | None] = ContextVar("stormpetrel_viewer", default=None)


def current_viewer() -> Viewer:
    """Who made the request that is being answered, in an endpoint or a callback; AccessError outside of one."""
    viewer = _viewer.get()
    if viewer is None:
        raise AccessError("The request has no user.", hint="Use the web server: it knows the user.")
    return viewer


@contextmanager
def seen_by(viewer: Viewer) -> Iterator[None]:
    """Answer what follows as to this viewer."""
    before = _viewer.set(viewer)
    try:
        yield
    finally:
        _viewer.reset(before)
