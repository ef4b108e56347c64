"""Tokens of a site: made, listed and revoked by those who manage it; each act stands in the audit trail.

Site + Viewer + NewToken -> make_token -> NewTokenReceipt; tokens -> Tokens; revoke_token -> RevokedToken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.administration import NewToken, NewTokenReceipt, RevokedToken, TokenLine, Tokens
from stormpetrel.answers.viewer import MANAGE, SCOPES
from stormpetrel.errors import UsageError

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def make_token(site: Site, viewer: Viewer, act: NewToken) -> NewTokenReceipt:
    """Make a token and return it, once: only its digest is kept."""
    viewer.require(MANAGE)
    scopes = _known_scopes(act.scopes)
    if MANAGE in scopes and act.user not in site.settings.serve.admins:
        raise UsageError(
            f"{act.user!r} is no administrator, so the scope 'manage' would do nothing.",
            hint="Name the user in serve.admins in site.toml first.",
        )
    token = site.tokens.add(act.name, user=site.user_in_tables(act.user), scopes=scopes, days=act.days)
    site.audit.record(viewer.signature(site), "token added", {"token": act.name, "scopes": scopes, "days": act.days})
    return NewTokenReceipt(name=act.name, user=act.user, scopes=scopes, days=act.days, token=token)


def tokens(site: Site, viewer: Viewer) -> Tokens:
    """Return every token, also those past their time, by name."""
    viewer.require(MANAGE)
    return Tokens(
        tokens=[
            TokenLine(
                name=token.name,
                user=token.user,
                scopes=sorted(token.scopes),
                created=token.created,
                expires=token.expires,
                expired=site.tokens.is_over(token),
            )
            for token in site.tokens.all()
        ]
    )


def revoke_token(site: Site, viewer: Viewer, name: str) -> RevokedToken:
    """Make a token worthless; NotThereError where there is none of that name."""
    viewer.require(MANAGE)
    site.tokens.revoke(name)
    site.audit.record(viewer.signature(site), "token revoked", {"token": name})
    return RevokedToken(revoked=name)


def _known_scopes(scopes: list[str]) -> list[str]:
    for scope in scopes:
        if scope not in SCOPES:
            raise UsageError(f"Unknown scope {scope!r}.", hint=f"Known: {', '.join(SCOPES)}.")
    return sorted(set(scopes))
