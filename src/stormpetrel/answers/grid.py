"""The grid as a whole: whether it is in normal operation now, which alarms and outages there were, and which were raised.

LiveSite -> GRID_BOARDS.look -> GridBoard; + Viewer + GridQuestion -> grid_answer -> GridAnswer. Counts per kind of event, scores,
alarms and outages are everybody's; what names groups or nodes, and why data is missing, is for administrators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from stormpetrel.answers.grid_board import GRID_BOARDS, GridBoard, GridLack
from stormpetrel.answers.grid_words import finding_words
from stormpetrel.answers.viewer import READ
from stormpetrel.events.alarm_budget import episodes
from stormpetrel.events.why_words import since_words
from stormpetrel.records.outages import Outage, OutageKind

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.event_gaps import EventGap
    from stormpetrel.store.site import Site

SPANS: Final = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30), "all": None}
_LATE: Final = timedelta(minutes=15)  # data that is later than a bucket and this is missing
_NEVER_BEFORE, _NEVER_AFTER = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))
_LACKS: Final = {
    GridLack.EVENTS: (
        "No events have been taken in yet.",
        "Take them in: stormpetrel ingest events --live, or FILEs with counts. Then: stormpetrel events train",
    ),
    GridLack.MODEL: ("There are counts of events, but no model of them yet.", "Train one: stormpetrel events train"),
    GridLack.SCORES: ("There is a model of events, but it has judged nothing yet.", "Let it: stormpetrel events score"),
}


class GridState(StrEnum):
    """How the grid is, in a word."""

    CALM = "calm"
    ALARM = "alarm"
    MAINTENANCE = "maintenance"
    SILENT = "silent"  # no data for longer than a bucket takes
    UNJUDGED = "unjudged"  # counts, but no model or no score
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class GridQuestion:
    """Which time: the last day, week or month before the latest bucket, or all; or from one moment to another."""

    span: str = "week"
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """How it stands in a sentence, and what to do about it."""

    state: GridState
    words: str
    hint: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Alarm:
    """Buckets of alarm in a row."""

    start: datetime
    end: datetime
    worst: int  # the bucket with the highest score
    score: float
    threshold: float
    findings: tuple[str, ...]  # of that bucket, in words
    outages: tuple[str, ...]  # titles of the outages that it overlaps with


@dataclass(frozen=True, slots=True)
class SeenOutage:
    """An outage, a maintenance or a time found normal, and whether an alarm was raised."""

    outage: Outage
    raised: bool | None  # None: nothing of it was judged
    delay: timedelta | None  # from its beginning to the end of the first bucket of alarm


@dataclass(frozen=True, slots=True, eq=False)
class GridAnswer:
    """What a viewer sees of the grid; `first` to before `last` are the buckets of the board that were asked for.

    Outages are those of the time that was asked for, also where there are no counts: a maintenance that is yet to come is told.
    """

    asked: GridQuestion
    board: GridBoard
    first: int
    last: int
    head: Headline
    findings: tuple[str, ...]  # of the alarm that is on
    alarms: tuple[Alarm, ...]  # newest first
    outages: tuple[SeenOutage, ...]  # newest first
    gaps: tuple[EventGap, ...]  # oldest first
    as_of: datetime
    in_full: bool  # whether groups, nodes and the reasons of gaps are told

    @property
    def start(self) -> datetime:
        """The beginning of the time that is shown."""
        return self.board.series.moment(self.first)

    @property
    def end(self) -> datetime:
        """The end of the time that is shown."""
        return self.board.series.moment(self.last - 1) + self.board.bucket


def grid(live: LiveSite, viewer: Viewer, asked: GridQuestion | None = None) -> GridAnswer:
    """The grid as this viewer may see it; waits where the counts are still being read."""
    viewer.require(READ)
    return grid_answer(live, GRID_BOARDS.wait(live).value, viewer, asked or GridQuestion())


def grid_answer(live: LiveSite, made: Made[GridBoard], viewer: Viewer, asked: GridQuestion) -> GridAnswer:
    """The same out of a board that is there already; the time since the last data goes on meanwhile."""
    viewer.require(READ)
    head = headline(live.site, made.value)
    key = ("grid", viewer.is_admin, asked, head)
    return made.answer(key, lambda: answer_of(live.site, made.value, asked, head=head, in_full=viewer.is_admin))


def headline(site: Site, board: GridBoard) -> Headline:
    """How the grid is now."""
    zone, latest, now = site.settings.site.time_zone, board.latest, site.now()
    if latest is None:
        return Headline(GridState.EMPTY, *_LACKS[GridLack.EVENTS])
    settle = timedelta(minutes=site.settings.events.settle_minutes)
    if now - latest > board.bucket + settle + max(_LATE, board.bucket):
        words = f"No data {since_words(latest, now, zone)}."
        return Headline(GridState.SILENT, words, "Is it still collected? stormpetrel ingest events --live", latest)
    if board.lack is not None:
        return Headline(GridState.UNJUDGED, *_LACKS[board.lack])
    current = _current_alarm(board)
    if current is not None:
        start = board.series.moment(current[0])
        return Headline(GridState.ALARM, f"Alarm {since_words(start, now, zone)}.", "", start)
    upkeep = next((one for one in board.outages if one.kind is OutageKind.MAINTENANCE and _is_on(one, now)), None)
    if upkeep is not None:
        words = f"Maintenance {since_words(upkeep.start, now, zone)}: {upkeep.title}"
        return Headline(GridState.MAINTENANCE, words, "No alarm is raised meanwhile.", upkeep.start)
    return Headline(GridState.CALM, f"Calm: nothing out of the ordinary up to {_clock(latest, now, zone)}.")


def answer_of(site: Site, board: GridBoard, asked: GridQuestion, *, head: Headline, in_full: bool) -> GridAnswer:
    """What there is to say about a time; groups, nodes and reasons of gaps are told `in_full` only."""
    first, last = _span(board, asked)
    zone, now = site.settings.site.time_zone, site.now()
    start, end = _since(board, asked) or _NEVER_BEFORE, asked.until or _NEVER_AFTER
    runs = [run for run in episodes(board.alarm, board.series.bucket_s) if run[0] < last and run[1] >= first]
    current = _current_alarm(board)
    on = () if current is None else _findings(board, current[1], zone, in_full=in_full)
    outages = [one for one in board.outages if one.start < end and (one.end or now) > start]
    return GridAnswer(
        asked=asked,
        board=board,
        first=first,
        last=last,
        head=_for_viewer(head, in_full=in_full),
        findings=on if head.state is GridState.ALARM else (),
        alarms=tuple(_alarm(board, *run, zone, in_full=in_full) for run in reversed(runs)),
        outages=tuple(_seen(board, one, now) for one in reversed(outages)),
        gaps=tuple(
            gap if in_full else replace(gap, why="", sources=()) for gap in board.gaps if gap.start < end and gap.end > start
        ),
        as_of=now,
        in_full=in_full,
    )


def _current_alarm(board: GridBoard) -> tuple[int, int] | None:
    """The alarm that is on: it reaches to the latest bucket that was judged."""
    judged = np.flatnonzero(~np.isnan(board.score) | board.alarm)
    runs = episodes(board.alarm, board.series.bucket_s)
    return runs[-1] if runs and judged.size and runs[-1][1] == judged[-1] else None


def _for_viewer(head: Headline, *, in_full: bool) -> Headline:
    """Commands are for administrators."""
    if in_full or head.state is GridState.MAINTENANCE:
        return head
    return Headline(head.state, head.words, "", head.since)


def _span(board: GridBoard, asked: GridQuestion) -> tuple[int, int]:
    """First and one beyond the last bucket that was asked for; the same where there is none."""
    size = len(board.series)
    if not size:
        return 0, 0
    since, until = _since(board, asked), asked.until
    first = 0 if since is None else min(max(0, _bucket_of(board, since)), size)
    last = size if until is None else min(max(0, _bucket_after(board, until)), size)
    return first, max(first, last)


def _since(board: GridBoard, asked: GridQuestion) -> datetime | None:
    """The moment from which on it is asked for; None: from the beginning."""
    length = SPANS.get(asked.span, SPANS["week"])
    if asked.since is not None or asked.until is not None or length is None or board.latest is None:
        return asked.since
    return board.latest - length


def _bucket_of(board: GridBoard, moment: datetime) -> int:
    """The bucket in which a moment lies; it need not be there."""
    return int((moment.timestamp() - int(board.series.start_s[0])) // board.series.bucket_s)


def _bucket_after(board: GridBoard, moment: datetime) -> int:
    """The first bucket that begins at a moment or later; it need not be there."""
    return -int((int(board.series.start_s[0]) - moment.timestamp()) // board.series.bucket_s)


def _alarm(board: GridBoard, first: int, last: int, zone: str, *, in_full: bool) -> Alarm:
    scores = np.where(board.alarm, np.nan_to_num(board.score, nan=-np.inf), -np.inf)[first : last + 1]
    worst = first + int(scores.argmax())
    start, end = board.series.moment(first), board.series.moment(last) + board.bucket
    titles = [
        one.title
        for one in board.outages
        if one.kind is not OutageKind.NORMAL and one.start < end and (one.end is None or one.end > start)
    ]
    told = (float(board.score[worst]), float(board.threshold[worst]))
    return Alarm(start, end, worst, *told, _findings(board, worst, zone, in_full=in_full), tuple(titles))


def _findings(board: GridBoard, place: int, zone: str, *, in_full: bool) -> tuple[str, ...]:
    end = board.series.moment(place) + board.bucket
    return finding_words(board.why.get(place, ""), now=end - timedelta(seconds=1), zone=zone, in_full=in_full)


def _seen(board: GridBoard, outage: Outage, now: datetime) -> SeenOutage:
    """Whether an alarm was raised during an outage, and how long after its beginning it could be told."""
    if outage.kind is OutageKind.MAINTENANCE or not len(board.series):
        return SeenOutage(outage, None, None)
    first = max(0, _bucket_of(board, outage.start))
    last = max(first, _bucket_after(board, outage.end or now))
    alarm = board.alarm[first:last]
    if not alarm.any():
        judged = not np.isnan(board.score[first:last]).all() if alarm.size else False
        return SeenOutage(outage, False if judged else None, None)
    told = board.series.moment(first + int(alarm.argmax())) + board.bucket
    return SeenOutage(outage, True, max(timedelta(0), told - outage.start))


def _is_on(outage: Outage, now: datetime) -> bool:
    return outage.start <= now and (outage.end is None or outage.end > now)


def _clock(moment: datetime, now: datetime, zone: str) -> str:
    return since_words(moment, now, zone).removeprefix("since ")
