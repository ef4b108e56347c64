"""The cluster as a whole: whether it is in normal operation now, its counts of events, which alarms and outages there were.

LiveSite + Viewer + question -> cluster_now, cluster_counts, cluster_outages, cluster_period -> their models. Counts per kind of
event, scores, alarms and outages are shown to all; groups, nodes and why data is missing to administrators.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.answers.alarms.incidents import list_incidents
from stormpetrel.answers.cluster.alarms import alarms_of, finding_texts, kept_findings
from stormpetrel.answers.cluster.board import ClusterBoard, ClusterLack
from stormpetrel.answers.schemas.alarms import MOST_INCIDENTS, IncidentQuestion
from stormpetrel.answers.schemas.cluster import (
    ClusterAlarm,
    ClusterCounts,
    ClusterGap,
    ClusterNow,
    ClusterOutage,
    ClusterOutages,
    ClusterPeriod,
    ClusterQuestion,
    CountsQuestion,
    SpanQuestion,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.events.finding import since_text
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import EARLIEST, LATEST

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_SPANS: Final = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30), "all": None}
_LATE: Final = timedelta(minutes=15)  # data that is later than a bucket and this is missing
_NEVER_BEFORE, _NEVER_AFTER = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))
_LACKS: Final = {
    ClusterLack.EVENTS: (
        "No events have been taken in yet.",
        "Take them in: stormpetrel ingest events --live, or FILEs with counts. Then: stormpetrel events train",
    ),
    ClusterLack.MODEL: ("There are counts of events, but no model of them yet.", "Train one: stormpetrel events train"),
    ClusterLack.SCORES: ("There is a model of events, but it has judged nothing yet.", "Let it: stormpetrel events score"),
}


class ClusterState(StrEnum):
    """State of the cluster."""

    CALM = "calm"
    INCIDENT = "incident"  # the events are as expected, but an incident is open
    ALARM = "alarm"
    MAINTENANCE = "maintenance"
    SILENT = "silent"  # no data for longer than a bucket takes
    UNJUDGED = "unjudged"  # counts, but no model or no score
    EMPTY = "empty"


def cluster_now(live: LiveSite, viewer: Viewer, *, board: Snapshot[ClusterBoard] | None = None) -> ClusterNow:
    """State of the cluster now, out of a board that is there already, or else of one that is waited for."""
    viewer.require(READ)
    latest = board or live.boards.cluster.wait(live).value
    now = now_of(live.site, latest.value, in_full=viewer.is_admin)
    return _above_incidents(live, viewer, now) if now.state == ClusterState.CALM.value else now


def _above_incidents(live: LiveSite, viewer: Viewer, now: ClusterNow) -> ClusterNow:
    """The same where no incident is open; else what the events say, and never that all is calm."""
    count = len(list_incidents(live.site, viewer, IncidentQuestion(limit=MOST_INCIDENTS)).incidents)
    if not count:
        return now
    text = f"{count:,} open {'incident' if count == 1 else 'incidents'}"
    seen = now.headline.removeprefix("Calm: ").rstrip(".")
    headline = f"{text}. Of the events: {seen}."
    return now.model_copy(update={"state": ClusterState.INCIDENT.value, "headline": headline, "hint": "See the page Alarms."})


def cluster_period(
    live: LiveSite, viewer: Viewer, question: ClusterQuestion | None = None, *, board: Snapshot[ClusterBoard] | None = None
) -> ClusterPeriod:
    """What a time comes to, out of a board that is there already, or else of one that is waited for.

    Outages are those of the whole time in question, also where there are no counts: a maintenance that is yet to come is among
    them.
    """
    viewer.require(READ)
    latest, in_full, wanted = board or live.boards.cluster.wait(live).value, viewer.is_admin, question or ClusterQuestion()
    alarms = latest.answer(("cluster alarms", in_full), lambda: all_alarms(live.site, latest.value, in_full=in_full))
    return latest.answer(
        ("cluster period", in_full, wanted), lambda: period_of(live.site, latest.value, alarms, wanted, in_full=in_full)
    )


def cluster_outages(live: LiveSite, viewer: Viewer, question: SpanQuestion) -> ClusterOutages:
    """Outages and alarms of a time, the newest first; without `since` and `until` all of them."""
    viewer.require(READ)
    since, until = _within_reason(question)
    period = cluster_period(live, viewer, ClusterQuestion(span="all", since=since, until=until))
    return ClusterOutages(outages=period.outages, alarms=period.alarms)


def cluster_counts(live: LiveSite, viewer: Viewer, question: CountsQuestion) -> ClusterCounts:
    """Events of each kind in each bucket of a time, with what was expected, the oldest first."""
    viewer.require(READ)
    board = live.boards.cluster.wait(live).value.value
    since, until = _within_reason(question)
    if since is None and until is not None:
        since = until - timedelta(days=1)
    return counts_of(board, ClusterQuestion(span="day", since=since, until=until), limit=question.limit, in_full=viewer.is_admin)


def now_of(site: Site, board: ClusterBoard, *, in_full: bool) -> ClusterNow:
    """State of the cluster of a board at this moment; commands, groups and nodes are shown `in_full` only."""
    zone, now = site.settings.site.time_zone, site.now()
    state, headline, hint, since = _headline(site, board)
    on = board.alarm_now if state is ClusterState.ALARM else None
    return ClusterNow(
        as_of=now,
        state=state.value,
        headline=headline,
        hint=hint if in_full or state is ClusterState.MAINTENANCE else "",
        since=since,
        findings=[] if on is None else bucket_findings(board, on[1], zone, in_full=in_full),
        lack=board.lack,
        bucket_s=board.series.bucket_s,
        latest=board.latest,
        model=board.model,
        model_version=board.model_version,
    )


def all_alarms(site: Site, board: ClusterBoard, *, in_full: bool) -> list[ClusterAlarm]:
    """Every alarm of a board, the oldest first."""
    return alarms_of(board.alarms, board.outages, zone=site.settings.site.time_zone, in_full=in_full)


def period_of(
    site: Site, board: ClusterBoard, alarms: list[ClusterAlarm], question: ClusterQuestion, *, in_full: bool
) -> ClusterPeriod:
    """What a time of a board comes to; `alarms` are all of the board, and reasons of gaps are shown `in_full` only."""
    first, last = _places(board, question)
    arrays, now = board.arrays.take(first, last), site.now()
    start, end = (board.series.moment(first), board.series.moment(last - 1) + board.bucket) if first < last else (None, None)
    period_start, period_end = _edges(board, question)
    outages = [item for item in board.outages if item.start < period_end and (item.end or now) > period_start]
    return ClusterPeriod(
        start=start,
        end=end,
        bucket_s=board.series.bucket_s,
        kinds=list(board.series.kinds),
        buckets=last - first,
        gap_buckets=int(arrays.series.is_gap.sum()),
        judged_buckets=int((~np.isnan(arrays.score)).sum()),
        alarm_buckets=int(arrays.alarm.sum()),
        events=float(np.nansum(arrays.series.counts)),
        alarms=[item for item in reversed(alarms) if start and end and item.start < end and item.end > start],
        outages=[outage_of(board, item, now) for item in reversed(outages)],
        gaps=_gaps(board, question, in_full=in_full),
        in_full=in_full,
    )


def counts_of(board: ClusterBoard, question: ClusterQuestion, *, limit: int, in_full: bool) -> ClusterCounts:
    """So many buckets of a time, the earliest; reasons of gaps are shown `in_full` only."""
    first, end = _places(board, question)
    last = min(end, first + limit)
    arrays = board.arrays.take(first, last)
    series, forecast = arrays.series, ~np.isnan(arrays.expected).all(axis=1)
    columns: dict[str, list[Any]] = {
        "start": [series.moment(place) for place in range(len(series))],
        "counts": [None if is_gap else row for row, is_gap in zip(series.counts.tolist(), series.is_gap.tolist(), strict=True)],
        **{name: _rows(getattr(arrays, name), forecast) for name in ("expected", "low", "high")},
        "background": _numbers(series.background),
        "score": _numbers(arrays.score),
        "threshold": _numbers(arrays.threshold),
        "alarm": arrays.alarm.tolist(),
    }
    return ClusterCounts.model_validate(
        {
            "bucket_s": series.bucket_s,
            "kinds": series.kinds,
            "background_names": series.background_names,
            "buckets": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "gaps": _gaps(board, question, in_full=in_full),
            "next": board.series.moment(last) if last < end else None,
        }
    )


def bucket_findings(board: ClusterBoard, place: int, zone: str, *, in_full: bool) -> list[str]:
    """What was wrong in a bucket, a sentence each."""
    end = board.series.moment(place) + board.bucket
    return finding_texts(kept_findings(board.why.get(place, "")), now=end - timedelta(seconds=1), zone=zone, in_full=in_full)


def outage_of(board: ClusterBoard, outage: Outage, now: datetime) -> ClusterOutage:
    """Whether an alarm was raised during an outage, and how long after its beginning it could be raised."""
    raised, delay = _raised(board, outage, now)
    return ClusterOutage(
        start=outage.start,
        end=outage.end,
        kind=outage.kind.value,
        title=outage.title,
        source=outage.source.partition(":")[0],
        raised=raised,
        delay_s=None if delay is None else delay.total_seconds(),
    )


def _headline(site: Site, board: ClusterBoard) -> tuple[ClusterState, str, str, datetime | None]:
    """State, sentence, what to do about it, and since when it is so."""
    zone, latest, now = site.settings.site.time_zone, board.latest, site.now()
    if latest is None:
        return ClusterState.EMPTY, *_LACKS[ClusterLack.EVENTS], None
    settle = timedelta(minutes=site.settings.events.settle_minutes)
    if now - latest > board.bucket + settle + max(_LATE, board.bucket):
        words = f"No data {since_text(latest, now, zone)}."
        return ClusterState.SILENT, words, "Is it still collected? stormpetrel ingest events --live", latest
    if board.lack is not None:
        return ClusterState.UNJUDGED, *_LACKS[board.lack], None
    if board.alarm_now is not None:
        start = board.series.moment(board.alarm_now[0])
        return ClusterState.ALARM, f"Alarm {since_text(start, now, zone)}.", "", start
    upkeep = next((outage for outage in board.outages if outage.kind is OutageKind.MAINTENANCE and _is_on(outage, now)), None)
    if upkeep is not None:
        words = f"Maintenance {since_text(upkeep.start, now, zone)}: {upkeep.title}"
        return ClusterState.MAINTENANCE, words, "No alarm is raised meanwhile.", upkeep.start
    clock = since_text(latest, now, zone).removeprefix("since ")
    return ClusterState.CALM, f"Calm: nothing out of the ordinary up to {clock}.", "", None


def _within_reason(question: SpanQuestion) -> tuple[datetime | None, datetime | None]:
    """The edges of a time, no further than calendars reach."""
    since, until = (None if edge is None else max(EARLIEST, min(edge, LATEST)) for edge in (question.since, question.until))
    return since, until


def _since(board: ClusterBoard, question: ClusterQuestion) -> datetime | None:
    """The moment from which on it is requested; None: from the beginning."""
    length = _SPANS[question.span]
    if question.since is not None or question.until is not None or length is None or board.latest is None:
        return question.since
    return board.latest - length


def _edges(board: ClusterBoard, question: ClusterQuestion) -> tuple[datetime, datetime]:
    return _since(board, question) or _NEVER_BEFORE, question.until or _NEVER_AFTER


def _places(board: ClusterBoard, question: ClusterQuestion) -> tuple[int, int]:
    """First and one beyond the last bucket that was requested; the same where there is none."""
    size = len(board.series)
    if not size:
        return 0, 0
    since, until = _since(board, question), question.until
    first = 0 if since is None else min(max(0, _bucket_of(board, since)), size)
    last = size if until is None else min(max(0, _bucket_after(board, until)), size)
    return first, max(first, last)


def _bucket_of(board: ClusterBoard, moment: datetime) -> int:
    """The bucket in which a moment lies; it need not be there."""
    return int((moment.timestamp() - int(board.series.start_s[0])) // board.series.bucket_s)


def _bucket_after(board: ClusterBoard, moment: datetime) -> int:
    """The first bucket that begins at a moment or later; it need not be there."""
    return -int((int(board.series.start_s[0]) - moment.timestamp()) // board.series.bucket_s)


def _gaps(board: ClusterBoard, question: ClusterQuestion, *, in_full: bool) -> list[ClusterGap]:
    start, end = _edges(board, question)
    return [
        ClusterGap(start=gap.start, end=gap.end, why=gap.why if in_full else "")
        for gap in board.gaps
        if gap.start < end and gap.end > start
    ]


def _raised(board: ClusterBoard, outage: Outage, now: datetime) -> tuple[bool | None, timedelta | None]:
    if outage.kind is OutageKind.MAINTENANCE or not len(board.series):
        return None, None
    first = max(0, _bucket_of(board, outage.start))
    last = max(first, _bucket_after(board, outage.end or now))
    alarm = board.arrays.alarm[first:last]
    if not alarm.any():
        judged = not np.isnan(board.arrays.score[first:last]).all() if alarm.size else False
        return (False if judged else None), None
    first_alarm_end = board.series.moment(first + int(alarm.argmax())) + board.bucket
    return True, max(timedelta(0), first_alarm_end - outage.start)


def _is_on(outage: Outage, now: datetime) -> bool:
    return outage.start <= now and (outage.end is None or outage.end > now)


def _numbers(values: Any) -> list[Any]:
    """An array as lists; what is no finite number is None."""
    cells = np.asarray(values).astype(np.object_)
    cells[~np.isfinite(values)] = None
    numbers: list[Any] = cells.tolist()
    return numbers


def _rows(values: Any, known: Any) -> list[Any]:
    """Rows of a table as lists; None where nothing is known."""
    return [row if there else None for row, there in zip(_numbers(values), known.tolist(), strict=True)]
