"""What people keep: opinions on advice, saved views, tokens; each person's own, and nobody else's.

LiveSite + Viewer + OpinionAct -> keep_opinion -> OpinionReceipt; + ViewAct -> save_view -> View; views -> Views; delete_view.
Site + Viewer + OwnToken -> create_token -> OwnTokenReceipt; own_tokens -> OwnTokens; + name -> revoke_own_token.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.schemas.own import (
    OpinionAct,
    OpinionReceipt,
    OwnToken,
    OwnTokenLine,
    OwnTokenReceipt,
    OwnTokens,
    RevokedOwnToken,
    View,
    ViewAct,
    Views,
)
from stormpetrel.answers.viewer import MANAGE, READ, WRITE
from stormpetrel.errors import AccessError, UsageError
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_CREATED: Final = "own token created"
_MOST_AN_HOUR: Final = 20  # a loop that makes and revokes tokens does not fill the audit trail


def keep_opinion(live: LiveSite, viewer: Viewer, act: OpinionAct) -> OpinionReceipt:
    """Keep whether a piece of advice was useful; a later opinion on the same advice replaces it.

    NotThereError where the job does not exist or is not the viewer's, without telling which.
    """
    viewer.require(WRITE)
    ref = JobRef.parse(act.job)
    live.overview.require_own(viewer, ref)
    live.site.opinions.add(viewer.user, ref, act.advice, useful=act.useful)
    return OpinionReceipt(job=str(ref), advice=act.advice, useful=act.useful)


def views(live: LiveSite, viewer: Viewer) -> Views:
    """Return the viewer's saved views, by name."""
    viewer.require(READ)
    return Views(views=[View(name=view.name, link=view.link) for view in live.site.views.list(viewer.user)])


def save_view(live: LiveSite, viewer: Viewer, name: str, act: ViewAct) -> View:
    """Keep a link under a name; a view of the same name is replaced. UsageError where the link leads elsewhere."""
    viewer.require(WRITE)
    view = live.site.views.save(viewer.user, name, act.link)
    return View(name=view.name, link=view.link)


def delete_view(live: LiveSite, viewer: Viewer, name: str) -> None:
    """Drop one of the viewer's saved views; NotThereError where there is none of that name."""
    viewer.require(WRITE)
    live.site.views.delete(viewer.user, name)


def create_token(site: Site, viewer: Viewer, act: OwnToken) -> OwnTokenReceipt:
    """Make a token for the viewer, whom the kernel names, and return it, once; it may no more than the viewer, and for a time."""
    viewer.require(WRITE)
    viewer.require_proof()
    limits, scopes = site.settings.serve, [str(scope) for scope in sorted(set(act.scopes))]
    if limits.own_tokens == 0:
        raise AccessError("Users make no tokens on this site.", hint="Ask an administrator for one.")
    beyond = [scope for scope in scopes if scope not in viewer.scopes]
    if beyond:
        raise AccessError(f"You do not have the scope '{beyond[0]}'.", hint=f"Yours: {', '.join(sorted(viewer.scopes))}.")
    if MANAGE in scopes and viewer.user not in map(site.user_in_tables, limits.admins):
        raise AccessError("You are no administrator: the scope 'manage' would do nothing.", hint="Leave it out.")
    if act.days > limits.own_token_days:
        raise UsageError(f"A token of your own is valid for {limits.own_token_days} days at most.", hint="Ask for fewer days.")
    if site.audit.times_since(viewer.user, _CREATED, datetime.now(UTC) - timedelta(hours=1)) >= _MOST_AN_HOUR:
        raise UsageError(f"You have made {_MOST_AN_HOUR} tokens within an hour.", hint="Try again later.")
    token = site.tokens.add(act.name, user=viewer.user, scopes=scopes, days=act.days, at_most=limits.own_tokens)
    site.audit.record(viewer.user, _CREATED, {"token": act.name, "scopes": scopes, "days": act.days})
    return OwnTokenReceipt(name=act.name, scopes=scopes, days=act.days, token=token)


def own_tokens(site: Site, viewer: Viewer) -> OwnTokens:
    """Return the viewer's tokens, also those past their time, by name; not the tokens themselves."""
    viewer.require(READ)
    return OwnTokens(
        tokens=[
            OwnTokenLine(
                name=token.name,
                scopes=sorted(token.scopes),
                created=token.created,
                expires=token.expires,
                expired=site.tokens.is_over(token),
            )
            for token in site.tokens.all(user=viewer.user)
        ]
    )


def revoke_own_token(site: Site, viewer: Viewer, name: str) -> RevokedOwnToken:
    """Make a token of the viewer worthless; NotThereError where there is none of that name."""
    viewer.require(WRITE)
    site.tokens.revoke(name, user=viewer.user)
    site.audit.record(viewer.user, "own token revoked", {"token": name})
    return RevokedOwnToken(revoked=name)
