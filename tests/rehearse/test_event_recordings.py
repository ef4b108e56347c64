"""Recorded counts without a site."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL
from stormpetrel.records.events import as_counts, covered
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.rehearse.event_study import labelled, read_recording, recordings_in, series_of_counts
from tests.builders import T0, Job, condor_events_document, swf_document
from tests.events.rhythmic import rhythmic_series

HOUR = timedelta(hours=1)


def hourly_jobs(hours=30):
    """Two jobs an hour, submitted at :10 and :40, run for ten minutes from a minute later; every fifth fails at once."""
    return [
        Job(
            job_id=100 + n, submit=T0 + timedelta(minutes=10 + 30 * n), run_s=5 if n % 5 == 0 else 600,
            state="FAILED" if n % 5 == 0 else "COMPLETED", exit_code=int(n % 5 == 0),
        )
        for n in range(2 * hours)
    ]  # fmt: skip


def test_a_job_log_is_counted_from_its_first_to_its_last_submission(tmp_path):
    log = swf_document(hourly_jobs()).write(tmp_path / "log.swf")
    series = read_recording(log, zone="Europe/Paris").series
    assert series.moment(0) == T0 + HOUR and len(series) == 28  # the first and last hour are not whole
    assert series.kinds == ("Submit", "Execute", "JobTerminated", "JobFailed", "JobFailedFast")
    assert (series.counts[:, 0] == 2).all() and series.counts[:, 3].sum() == series.counts[:, 4].sum() > 0
    assert series.zone == "Europe/Paris" and not series.is_gap.any()


def test_an_hour_without_a_mark_is_a_gap_and_one_without_events_a_zero():
    rows = pl.DataFrame(
        {"bucket_start": [T0, T0 + 2 * HOUR, T0 + 4 * HOUR], "kind": "Submit", "place": "", "value": "", "count": [5, 7, 9]}
    )
    counts = as_counts(rows, "table:x", 3600)
    marks = [covered("table:x", T0, T0 + 2 * HOUR, 3600), covered("table:x", T0 + 3 * HOUR, T0 + 5 * HOUR, 3600)]
    series = series_of_counts(pl.concat([counts, *marks]), ["Submit"], bucket_s=3600, zone="UTC")
    np.testing.assert_array_equal(series.counts[:, 0], [5, 0, np.nan, 0, 9])


def test_counts_without_any_whole_bucket_are_refused():
    with pytest.raises(SourceFormatError, match="No bucket of time was seen as a whole"):
        series_of_counts(covered("x", T0, T0, 3600), ["Submit"], bucket_s=3600, zone="UTC")


def test_a_bucket_that_an_outage_touches_is_an_outage():
    series = rhythmic_series(8)
    start = series.moment(100)

    def span(kind, first_h, last_h):
        end = None if last_h is None else start + last_h * HOUR
        return Outage(start + first_h * HOUR, end, kind, "x")

    spans = [
        span(OutageKind.OUTAGE, 0.5, 2),
        span(OutageKind.MAINTENANCE, 1, 4),
        span(OutageKind.NORMAL, 6, 9),
        span(OutageKind.OUTAGE, 1000, None),
    ]
    found = labelled(series, spans)
    assert found.label[99:105].tolist() == [NORMAL, ANOMALY, ANOMALY, MAINTENANCE, MAINTENANCE, NORMAL]
    assert (found.label[1100:] == ANOMALY).all() and (found.label[105:1100] == NORMAL).all()


def test_a_folder_stands_for_the_files_in_it(tmp_path):
    for name in ("b.swf.gz", "a.swf", ".index"):
        (tmp_path / name).touch()
    assert [path.name for path in recordings_in([tmp_path])] == ["a.swf", "b.swf.gz"]
    for missing in (tmp_path / "none", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="There is no file"):
            recordings_in([missing])


def test_an_htcondor_event_log_is_counted_by_its_own_events(tmp_path):
    log = condor_events_document(hourly_jobs()).write(tmp_path / "EventLog")
    series = read_recording(log).series
    assert {"Submit", "Execute", "JobTerminated"} <= set(series.kinds)
    inner = series.counts[2:-2, series.kinds.index("Submit")]
    assert (inner == 2).all() and len(inner) > 20


def test_a_table_of_counts_is_read_with_its_zeros_and_gaps(tmp_path):
    table = tmp_path / "counts.csv"
    lines = [f"{(datetime(2025, 1, 6, tzinfo=UTC) + n * HOUR).isoformat()},{n % 3},{'' if n == 5 else n}" for n in range(24)]
    table.write_text("time,JobHeld,Submit\n" + "\n".join(lines) + "\n")
    series = read_recording(table).series
    assert series.kinds == ("Submit", "JobHeld") and series.is_gap[5] and series.counts[3].tolist() == [3, 0]


def test_outages_of_a_file_become_labels_and_what_could_not_be_read_is_told(tmp_path):
    table, incidents = tmp_path / "counts.of.2025.csv", tmp_path / "incidents.csv"
    moments = [datetime(2025, 1, 6, tzinfo=UTC) + n * HOUR for n in range(24)]
    table.write_text("time,Submit\n" + "\n".join(f"{moment.isoformat()},5" for moment in [*moments, moments[-1]]) + "\n")
    incidents.write_text("start,end,kind,title\n2025-01-06 05:30,2025-01-06 07:00,outage,power\nyesterday,,outage,?\n")
    found = read_recording(table, zone="Europe/Paris", outages=incidents)
    assert found.name == "counts" and found.has_labels
    assert np.flatnonzero(found.series.label == ANOMALY).tolist() == [4, 5]  # an hour later by the clock on the wall
    assert len(found.notes) == 2, found.notes
