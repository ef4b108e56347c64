"""What is new at a site: applications, users and accounts that came in the last week, and load that grows.

Site + Viewer -> site_changes -> sentences, for administrators: they name people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormpetrel.answers.viewer import READ
from stormpetrel.lifecycle.changes import change_texts, changes_at

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def site_changes(site: Site, viewer: Viewer) -> list[str]:
    """Return what has changed by now, a sentence each; nothing to who is no administrator."""
    viewer.require(READ)
    return change_texts(changes_at(site, site.now())) if viewer.is_admin else []
