"""What people keep: opinions on advice, and saved views; each person's own, and nobody else's.

LiveSite + Viewer + OpinionAct -> keep_opinion -> OpinionReceipt; + ViewAct -> save_view -> View; views -> Views; delete_view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.own import OpinionAct, OpinionReceipt, View, ViewAct, Views
from stormpetrel.answers.viewer import READ, WRITE
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer


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
