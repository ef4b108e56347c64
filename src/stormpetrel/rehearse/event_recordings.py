"""Recorded event counts without a site: a job log, an HTCondor event log or a table of counts -> EventSeries.

For `events evaluate PATH`. A site's ingest does more: it keeps what it read, and fills gaps later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.config import settings_from
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.records.event_counting import bucket_ceil, bucket_floor, count_events, covered, no_counts
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, NORMAL, UNLABELLED, EventSeries
from stormpetrel.records.events import COVERED, JOB_RECORD_KINDS, SEED_KINDS, WHOLE
from stormpetrel.records.job_events import job_events
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.sources.event_formats import EVENT_FORMATS, event_file
from stormpetrel.sources.formats import ReadOptions, sniff_format
from stormpetrel.sources.incident_files import incident_file
from stormpetrel.sources.reading import read_log

FAST_FAILURE_S: Final = 60.0
_HIDDEN: Final = "."


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The counts of a file, under its name up to the first dot, and what a person should know about how it was read."""

    name: str
    series: EventSeries
    notes: tuple[str, ...] = ()
    has_labels: bool = False


def recordings_in(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: those named, and those in the folders named."""
    found = []
    for path in paths:
        if path.is_dir():
            found += sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(_HIDDEN))
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"There is no file {path}.", hint="Name a job log, a table of counts, or a folder of them.")
    if not found:
        raise UsageError(f"There is no file in {', '.join(map(str, paths))}.", hint="Name a folder of job logs.")
    return found


def read_recording(
    path: Path, format_name: str | None = None, *, zone: str = "UTC", bucket_s: int = HOUR_S, outages: Path | None = None
) -> Recording:
    """The counts of a file: of the jobs in it where it is a job log, else of the events or counts that it holds.

    `zone` is that of times that have none, and of the people who worked there. `outages` (CSV or iCalendar) become labels.
    """
    if format_name in EVENT_FORMATS or (format_name is None and not _is_job_log(path)):
        series, notes = _of_events(path, format_name, zone, bucket_s)
    else:
        series, notes = _of_jobs(path, format_name, zone, bucket_s)
    if outages:
        source = incident_file(outages, zone=zone, now=datetime.now(UTC))
        last = series.moment(len(series) - 1) + timedelta(seconds=bucket_s)
        series = labelled(series, source.outages(series.moment(0), last))
        notes = [*notes, *source.notes]
    return Recording(path.name.split(".")[0] or path.name, series, tuple(notes), has_labels=outages is not None)


def labelled(series: EventSeries, outages: Sequence[Outage]) -> EventSeries:
    """The series with these spans as labels; what overlaps an outage is an outage, and all else is normal."""
    label = np.full(len(series), NORMAL, dtype=np.int8)
    for kind, value in ((OutageKind.MAINTENANCE, MAINTENANCE), (OutageKind.OUTAGE, ANOMALY)):
        for one in (outage for outage in outages if outage.kind == kind):
            end_s = one.end.timestamp() if one.end else np.inf
            label[(series.start_s < end_s) & (series.start_s + series.bucket_s > one.start.timestamp())] = value
    return series.with_labels(label)


def series_of_counts(counts: pl.DataFrame, kinds: Sequence[str], *, bucket_s: int, zone: str) -> EventSeries:
    """A frame of counts with its marks as a series; a bucket without a mark is a gap."""
    whole = counts.filter(pl.col("place") == WHOLE, pl.col("bucket_s") == bucket_s)
    marks = whole.filter(pl.col("kind") == COVERED)["bucket_start"]
    if marks.is_empty():
        raise SourceFormatError("No bucket of time was seen as a whole.", hint="Use a longer recording, or smaller buckets.")
    marked_s = marks.dt.epoch("s").to_numpy()
    first, last = int(marked_s.min()), int(marked_s.max())
    start_s = np.arange(first, last + bucket_s, bucket_s, dtype=np.int64)
    table = np.full((len(start_s), len(kinds)), np.nan)  # (buckets, kinds)
    table[(marked_s - first) // bucket_s] = 0.0
    at = pl.col("bucket_start").dt.epoch("s").alias("at")
    sums = whole.group_by(at, "kind").agg(pl.col("count").sum()).filter(pl.col("at").is_between(first, last))
    for place, kind in enumerate(kinds):
        rows = sums.filter(pl.col("kind") == kind)
        table[(rows["at"].to_numpy() - first) // bucket_s, place] += rows["count"].to_numpy()  # a gap stays NaN
    return EventSeries(start_s, bucket_s, tuple(kinds), table, np.full(len(start_s), UNLABELLED, dtype=np.int8), zone=zone)


def _of_jobs(path: Path, format_name: str | None, zone: str, bucket_s: int) -> tuple[EventSeries, list[str]]:
    """From the first to the last submission: before and after it the log holds only a part of what happened."""
    log = read_log([str(path)], format_name, ReadOptions(time_zone=zone))
    jobs = log.jobs
    events = job_events(jobs, fast_failure_s=FAST_FAILURE_S)
    start, end = _moment(jobs["submit_time"].min()), _moment(jobs["submit_time"].max())
    begin, stop = bucket_ceil(start, bucket_s), bucket_floor(end, bucket_s)
    if stop - begin < timedelta(seconds=bucket_s):
        raise SourceFormatError(f"{path} spans less than a bucket of time.", hint="Use a longer log.")
    events = events.filter(pl.col("time").is_between(begin, stop, closed="left"))
    counts = count_events(events, source=f"jobs:{path.name}", bucket_s=bucket_s, most_places=1)
    marks = covered(f"jobs:{path.name}", begin, stop, bucket_s)
    seen = set(counts["kind"].unique())
    kinds = [str(kind) for kind in JOB_RECORD_KINDS if str(kind) in seen]
    notes = [*log.notes, *(f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())]
    return series_of_counts(pl.concat([counts, marks]), kinds, bucket_s=bucket_s, zone=zone), notes


def _of_events(path: Path, format_name: str | None, zone: str, bucket_s: int) -> tuple[EventSeries, list[str]]:
    settings = settings_from({"site": {"time_zone": zone}, "events": {"bucket_minutes": bucket_s // 60}})
    source = event_file(path, format_name, settings)
    spans = list(source.spans(lambda _name: None, datetime.now(UTC)))
    counts = pl.concat([no_counts(), *(span.counts for span in spans)])
    seen = set(counts["kind"].unique()) - {COVERED}
    named = [str(kind) for kind in dict.fromkeys((*SEED_KINDS, *JOB_RECORD_KINDS)) if str(kind) in seen]
    aside = sum((Counter(span.quarantined) for span in spans), Counter[str]())
    notes = [*source.notes, *(f"{count:,} rows or events were not counted: {reason}" for reason, count in aside.items())]
    return series_of_counts(counts, [*named, *sorted(seen - set(named))], bucket_s=bucket_s, zone=zone), notes


def _is_job_log(path: Path) -> bool:
    """An HTCondor event log tells of jobs too, but its events are what is counted."""
    try:
        return sniff_format(str(path)) not in EVENT_FORMATS
    except SourceFormatError:
        return False


def _moment(value: object) -> datetime:
    assert isinstance(value, datetime)
    return value
