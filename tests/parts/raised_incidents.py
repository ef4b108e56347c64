"""Incidents in the state of a site, as a watch would have raised them."""

from __future__ import annotations

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.store.site import Site


def raise_incidents(site: Site, *findings: Finding, watcher: str = "jobs") -> list[Incident]:
    """Take findings one after the other and commit what becomes of them; every incident of the book, the oldest first.

    A real watch that goes on from there wants another `watcher`: it reads what its own has noted last.
    """
    book = IncidentBook(site.incidents.list(), first_id=site.incidents.next_number())
    for one in findings:
        changed = book.take([one], one.known_at)
        site.incidents.commit(changed, watcher=watcher, watcher_state="{}", now=one.known_at)
    return list(book)
