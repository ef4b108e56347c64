"""What is asked, of whom, to count events: the request as it is sent, or in words what is counted."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

_JOBS = (
    "every job of the job table: its submission, its start and its end, and how it ended (failed, failed within "
    "{fast:g} s of its start, timed out, cancelled, preempted or requeued, node failed); a job on many nodes counts once"
)
_LOG = "every event of the HTCondor event log {path}, read on from where the last run stopped; event 028 by its trigger"
_FILE = "what the file told when it was read; read it again to correct it"


def queries_of(site: Site, start: datetime, end: datetime) -> list[dict[str, Any]]:
    """For each source: its name, what is counted in words, and the request where there is one; nothing is sent."""
    from stormpetrel.ingest.events import counts_jobs
    from stormpetrel.ingest.job_event_counts import JobTableEvents

    settings = site.settings
    told: list[dict[str, Any]] = []
    if settings.elastic.url:
        told.append(_elastic(site, start, end))
    if settings.htcondor.event_log:
        told.append({"source": "condor", "words": _LOG.format(path=settings.htcondor.event_log)})
    if counts_jobs(site):
        words = _JOBS.format(fast=settings.events.fast_failure_s)
        told.append({"source": JobTableEvents(site).source, "words": words})
    known = {one["source"] for one in told} | ({"condor"} if settings.htcondor.event_log else set())
    others = [name for name in site.event_counts.sources() if name not in known and name.partition(":")[0] not in known]
    return told + [{"source": name, "words": _FILE} for name in others]


def _elastic(site: Site, start: datetime, end: datetime) -> dict[str, Any]:
    from stormpetrel.errors import MissingExtraError
    from stormpetrel.sources.elastic import ElasticEvents

    elastic = site.settings.elastic
    about = {"source": f"elastic:{elastic.index}", "words": f"the documents of {elastic.index} at {elastic.url}, by the server"}
    try:
        source = ElasticEvents(elastic, site.settings.events)
    except MissingExtraError as error:
        return {**about, "words": f"{about['words']}; {error}"}
    return {**about, "query": source.query_shown(start, end)}
