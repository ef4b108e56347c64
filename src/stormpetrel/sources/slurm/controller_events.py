"""slurmctld's log -> counts of events: those of jobs, nodes that went down, were drained or came back, controller starts.

ControllerLog -> job_events + node events -> one CountedSpan of everything that the file tells. Reading it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.records.cursor import CursorOf
from stormpetrel.records.events import (
    EVENT_SCHEMA,
    EventKind,
    bucket_ceil,
    bucket_floor,
    count_events,
    covered,
    set_aside,
)
from stormpetrel.records.job_events import job_events
from stormpetrel.records.jobs import JOB_SCHEMA, job_frame
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.slurm.controller_log import ControllerLog, NodeEvent


class ControllerEvents:
    """A log of slurmctld as events; it has been seen whole from its first line to its last."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.source = f"slurmctld:{path.name}"
        self.notes: list[str] = []
        self._path, self._settings = path, settings
        self._bucket_s = settings.events.bucket_minutes * 60

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """One span: everything that the log tells."""
        site, events = self._settings.site, self._settings.events
        log = ControllerLog(self._path, time_zone=site.time_zone, cluster=site.cluster)
        jobs = pl.concat([job_frame([]), *(chunk.records.select(list(JOB_SCHEMA)) for chunk in log.chunks())])
        self.notes += log.notes
        happened = pl.concat([job_events(jobs, fast_failure_s=events.fast_failure_s), _of_nodes(log.node_events, site.cluster)])
        good, aside = set_aside(happened, now=now)
        counts = count_events(good, source=self.source, bucket_s=self._bucket_s, most_places=events.most_places)
        first = log.first or now
        last = max(first, log.last or now)
        marks = covered(self.source, first, last, self._bucket_s, counts)
        start, end = bucket_floor(first, self._bucket_s), bucket_ceil(last + timedelta(microseconds=1), self._bucket_s)
        yield CountedSpan(start, end, pl.concat([counts, marks]), quarantined=aside, done=1.0)


def _of_nodes(node_events: list[NodeEvent], cluster: str) -> pl.DataFrame:
    """One event per node; a start of the controller has no node."""
    rows = [
        {"time": event.at, "kind": event.kind.value, "site": cluster or None, "submit_host": None, "group": None, "node": node}
        for event in node_events
        for node in ([None] if event.kind is EventKind.CONTROLLER_STARTED else expand_nodes(event.nodes))
    ]
    return pl.DataFrame(rows, schema=EVENT_SCHEMA)
