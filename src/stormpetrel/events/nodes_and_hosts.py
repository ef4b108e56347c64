"""Three troubles that need no model: a node that eats jobs, a submit host that has gone silent, a grid that has.

counts by place -> black_holes, silent_hosts; series -> silent_grid -> findings per bucket. They are rules with few false alarms;
the first two are troubles that a sum over the grid hides.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.events.finding import Finding, FindingKind, shown_name, since_text
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import OTHER_VALUES, EventKind

# A node fails jobs fast: this many of them, this share of what it starts, and it starts this many times what nodes usually do.
_FAST_FAILURES: Final = 10
_FAILED_SHARE: Final = 0.9
_TIMES_MEDIAN: Final = 5.0
_ELSEWHERE: Final = 0.5  # all other nodes together lose at most so many for each that it loses
# Where nobody tells which jobs failed fast, many more starts must end in the same bucket.
_STARTS: Final = 30
_TIMES_MEDIAN_BLIND: Final = 10.0

_SILENT_EXPECTED: Final = 20.0  # events that a silent host should have sent by now
_LONGEST_SILENCE: Final = timedelta(days=7)  # a host that has been silent for longer is retired
_HISTORY: Final = timedelta(days=7)  # of a host, before anybody can say that it is silent
REACH: Final = _LONGEST_SILENCE + _HISTORY  # of counts before a bucket, by which it is judged

# Worth an alarm whatever the model says.
HARD: Final = frozenset({FindingKind.BLACK_HOLE, FindingKind.SILENT_HOST, FindingKind.SILENCE})


def black_holes(counts: pl.DataFrame, *, zone: str, bucket_s: int) -> dict[datetime, list[Finding]]:
    """Per bucket: nodes that start many jobs and fail them all within seconds."""
    kinds = (EventKind.EXECUTE, EventKind.FAILED_FAST, EventKind.FAILED, EventKind.TERMINATED)
    rows = counts.filter(pl.col("place") == "node", pl.col("value") != OTHER_VALUES, pl.col("kind").is_in([*kinds]))
    if not rows.height:
        return {}
    by_node = rows.group_by("bucket_start", "value").agg(
        pl.col("count").filter(pl.col("kind") == kind.value).sum().alias(kind.name) for kind in kinds
    )
    usual = pl.col("EXECUTE").filter(pl.col("EXECUTE") > 0).median().over("bucket_start")
    judged = by_node.with_columns(
        _reported(counts, EventKind.FAILED_FAST, by_node), _reported(counts, EventKind.FAILED, by_node), usual=usual
    )
    holes = judged.with_columns(eats=_eats_jobs()).filter(_alone()).sort("bucket_start", "EXECUTE", descending=[False, True])
    findings: dict[datetime, list[Finding]] = {}
    for row in holes.iter_rows(named=True):
        findings.setdefault(row["bucket_start"], []).append(_hole(row, zone, bucket_s))
    return findings


def _reported(counts: pl.DataFrame, kind: EventKind, rows: pl.DataFrame) -> pl.Series:
    """Whether the sources have reported a kind in the bucket of each row or within REACH before it; `tells_…`."""
    reported_s = counts.filter(pl.col("kind") == kind.value)["bucket_start"].unique().sort().dt.epoch("s").to_numpy()
    row_s = rows["bucket_start"].dt.epoch("s").to_numpy()
    since = np.searchsorted(reported_s, row_s - round(REACH.total_seconds()), side="left")
    return pl.Series(f"tells_{kind.name}", np.searchsorted(reported_s, row_s, side="right") > since)


def _hole(row: dict[str, Any], zone: str, bucket_s: int) -> Finding:
    """A black hole in words; the row has the counts of its node in one bucket."""
    start, starts, median = row["bucket_start"], row["EXECUTE"], row["usual"]
    lost, how = next(
        (row[name], message)
        for name, message in (("FAILED_FAST", "failed within seconds"), ("FAILED", "failed"), ("TERMINATED", "ended"))
        if row[name]
    )
    since = since_text(start, start + timedelta(seconds=bucket_s - 1), zone)
    message = (
        f"Node {shown_name(row['value'])} is a black hole: {starts:,} jobs started {since}, "
        f"{lost:,} of them {how}; other nodes start {median:,.0f}"
    )
    return Finding(
        FindingKind.BLACK_HOLE,
        message,
        event_kind=EventKind.EXECUTE.value,
        count=float(starts),
        expected=float(median),
        since=start,
        place="node",
        value=row["value"],
        share=lost / max(1, starts),
    )


def _eats_jobs() -> pl.Expr:
    """Whether a node's row is that of a black hole, judged by the best that the sources tell."""
    starts, fast = pl.col("EXECUTE"), pl.col("FAILED_FAST")
    by_fast = (fast >= _FAST_FAILURES) & (fast >= _FAILED_SHARE * starts) & (starts >= _TIMES_MEDIAN * pl.col("usual"))
    lost = pl.when("tells_FAILED").then("FAILED").otherwise("TERMINATED")
    blind = (starts >= _STARTS) & (lost >= _FAILED_SHARE * starts) & (starts >= _TIMES_MEDIAN_BLIND * pl.col("usual"))
    return pl.when("tells_FAILED_FAST").then(by_fast).otherwise(blind)


def _alone() -> pl.Expr:
    """Whether a node that eats jobs is to blame: where other nodes lose many as well, it is the jobs."""
    lost = pl.when("tells_FAILED_FAST").then("FAILED_FAST").when("tells_FAILED").then("FAILED")  # else everybody's jobs end
    elsewhere = lost.filter(~pl.col("eats")).sum().over("bucket_start")
    return pl.col("eats") & (elsewhere <= _ELSEWHERE * lost).fill_null(value=True)


def silent_hosts(counts: pl.DataFrame, series: EventSeries) -> dict[datetime, list[Finding]]:
    """Per bucket: submit hosts that tell nothing for longer than ever before, while others do."""
    rows = counts.filter(pl.col("place") == "submit_host", pl.col("value") != OTHER_VALUES)
    if not rows.height:
        return {}
    hosts, events = _by_host(rows, series)
    seen = ~series.is_gap
    anybody = events.sum(axis=1) > 0  # (buckets,)
    findings: dict[datetime, list[Finding]] = {}
    for place, host in enumerate(hosts):
        for at, first, expected in _silences(events[:, place], seen, series.bucket_s):
            if anybody[at]:  # of a single host, silence is the grid's
                start = series.moment(at)
                findings.setdefault(start, []).append(_silent(host, series, at, first, expected))
    return findings


def silent_grid(series: EventSeries) -> dict[datetime, list[Finding]]:
    """Per bucket: no event of any kind for longer than ever before, where many were to be expected."""
    seen = ~series.is_gap
    silences = _silences(np.nan_to_num(series.counts.sum(axis=1)), seen, series.bucket_s)
    return {series.moment(at): [silence(series, at, first, expected)] for at, first, expected in silences}


def silence(series: EventSeries, at: int, first: int, expected: float) -> Finding:
    """No event at all, with both explanations."""
    since, now = series.moment(first), series.moment(at) + timedelta(seconds=series.bucket_s - 1)
    message = (
        f"No event of any kind {since_text(since, now, series.zone)}, {expected:,.0f} were to be expected: "
        "the grid stands still, or its events are not collected"
    )
    return Finding(FindingKind.SILENCE, message, expected=expected, since=since)


def _by_host(rows: pl.DataFrame, series: EventSeries) -> tuple[list[str], npt.NDArray[np.float64]]:
    """The hosts, and (buckets, hosts) how many events each sent."""
    hosts = sorted(rows["value"].unique())
    sums = rows.group_by("bucket_start", "value").agg(pl.col("count").sum())
    bucket = (sums["bucket_start"].dt.epoch("s").to_numpy() - int(series.start_s[0])) // series.bucket_s
    column = np.searchsorted(hosts, sums["value"].to_numpy().astype(str))
    inside = (bucket >= 0) & (bucket < len(series))
    events = np.zeros((len(series), len(hosts)))
    events[bucket[inside], column[inside]] = sums["count"].to_numpy()[inside]
    return hosts, events


def _silences(events: npt.NDArray[np.float64], seen: npt.NDArray[np.bool_], bucket_s: int) -> list[tuple[int, int, float]]:
    """The buckets at which a host's silence is news: (bucket, first silent bucket, events that were to be expected since).

    Each is judged by the REACH before it, so that it does not matter of how many buckets somebody asks at once.
    """
    most, least, reach = (round(span.total_seconds() / bucket_s) for span in (_LONGEST_SILENCE, _HISTORY, REACH))
    ever = np.flatnonzero(events > 0)
    if not ever.size:
        return []
    total, count = (np.concatenate([[0], np.cumsum(values)]) for values in (events, seen))
    silences: list[tuple[int, int, float]] = []
    pauses: list[tuple[int, int]] = []  # (first silent bucket, how many) of the silences that are over
    run, first = 0, 0
    for at in np.flatnonzero(seen[int(ever[0]) :]) + int(ever[0]):
        if events[at] > 0:
            if run:
                pauses.append((first, run))
            run = 0
            continue
        first = int(at) if run == 0 else first
        run += 1
        begin = int(ever[min(int(np.searchsorted(ever, at - reach)), ever.size - 1)])  # since then it is known
        if run > most or first - begin < least:
            continue
        before = max(begin, first - least)
        expected = run * float(total[first] - total[before]) / max(1, int(count[first] - count[before]))
        if expected >= _SILENT_EXPECTED and all(length < run for since, length in pauses if since > begin):
            silences.append((int(at), first, expected))
    return silences


def _silent(host: str, series: EventSeries, at: int, first: int, expected: float) -> Finding:
    since, now = series.moment(first), series.moment(at) + timedelta(seconds=series.bucket_s - 1)
    message = (
        f"Submit host {shown_name(host)} is silent {since_text(since, now, series.zone)}; "
        f"{expected:,.0f} events were to be expected, and other hosts go on"
    )
    return Finding(FindingKind.SILENT_HOST, message, expected=expected, since=since, place="submit_host", value=host, share=1.0)
