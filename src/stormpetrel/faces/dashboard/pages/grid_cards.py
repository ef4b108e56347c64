"""The parts of the page of the grid: headline and findings, score over time, counts per kind, tables of alarms, outages and gaps.

GridAnswer -> cards. A click on a figure chooses a bucket; every table leads to the same by keyboard.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dash import html

from stormpetrel.answers.grid import Alarm, GridAnswer, GridState, SeenOutage
from stormpetrel.faces.dashboard.blocks import card, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.tables import TableColumn, marked, numbers, sortable_table
from stormpetrel.figures.grid import counts_figure, counts_height
from stormpetrel.figures.grid_background import background_figure, background_height
from stormpetrel.figures.grid_drawn import on_wall, time_spans, wall_times
from stormpetrel.figures.grid_score import score_figure
from stormpetrel.figures.time_spans import NAMES
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.source_health import span_words

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite

_TONES: Final = {
    GridState.CALM: ("●", "Calm", "chip-complete", ""), GridState.ALARM: ("▲", "Alarm", "chip-fail", "health-problem"),
    GridState.SILENT: ("○", "No data", "chip-wait", "health-warning"),
    GridState.MAINTENANCE: ("◆", "Maintenance", "chip-wait", "health-warning"),
    GridState.UNJUDGED: ("○", "Not judged", "chip-wait", "health-warning"),
    GridState.EMPTY: ("○", "Nothing yet", "chip-wait", "health-warning"),
}  # fmt: skip
_SCORE_PX: Final = 300
_MOST_ROWS: Final = 1_000


def head(answer: GridAnswer) -> Component:
    """How the grid is: a word, a sentence, what is wrong, and what to do."""
    symbol, word, tone, frame = _TONES[answer.head.state]
    parts: list[Any] = [html.P([marked(symbol, word, tone), html.Span(answer.head.words, className="grid-words")])]
    if answer.findings:
        parts.append(findings(answer.findings))
    if answer.head.hint:
        parts.append(html.P(answer.head.hint, className="soft grid-hint"))
    return html.Div(parts, className=f"health-head grid-head {frame}".strip(), id="grid-head", role="status")


def findings(words: tuple[str, ...]) -> Component:
    """What is wrong, a sentence each, as text."""
    return html.Ul([html.Li(one) for one in words], className="grid-findings")


def figures(live: LiveSite, answer: GridAnswer) -> Component:
    """What the time that is shown comes to."""
    board, rows = answer.board, slice(answer.first, answer.last)
    bucket = length(board.bucket)
    missing = int(board.series.is_gap[rows].sum())
    outages = [seen for seen in answer.outages if seen.outage.kind is OutageKind.OUTAGE]
    judged = [seen for seen in outages if seen.raised is not None]
    raised = f"{sum(bool(seen.raised) for seen in judged)} of {len(judged)} raised an alarm" if judged else ""
    events = float(np.nansum(board.series.counts[rows]))
    shown = stretch(live, answer.start, answer.end)
    return stats(
        stat("Events", f"{events:,.0f}", f"{answer.last - answer.first:,} buckets of {bucket}, {shown}"),
        stat("Alarms", f"{len(answer.alarms):,}", _alarmed(answer), tone="bad" if answer.alarms else ""),
        stat("Outages", f"{len(outages):,}", raised),
        stat("Without data", length(missing * board.bucket) if missing else "nothing", _stretches(len(answer.gaps))),
    )


def score(live: LiveSite, answer: GridAnswer) -> Component:
    """The score of each bucket against the threshold, with alarms, outages, maintenance and gaps."""
    board, rows, zone = answer.board, slice(answer.first, answer.last), live.settings.site.time_zone
    figure = score_figure(
        wall_times(answer, zone), board.score[rows], board.threshold[rows], board.alarm[rows], spans=time_spans(answer, zone)
    )
    summary = (
        "How unusual each bucket was, against the threshold above which there is an alarm; outages and maintenance above it."
    )
    hint = f"Scores above five times the threshold stand at the edge as ▲. Times are {zone}. A click shows that bucket below."
    return card(
        "Score and alarms",
        html.P(f"{summary} {hint}", className="soft small"),
        plot("grid-score", figure, summary, height=_SCORE_PX),
    )


def counts(live: LiveSite, answer: GridAnswer) -> list[Component]:
    """The count of each kind in each bucket, in the band in which 99 % of calm counts lie."""
    board, rows, zone = answer.board, slice(answer.first, answer.last), live.settings.site.time_zone
    forecast = not np.isnan(board.low[rows]).all()
    figure = counts_figure(
        wall_times(answer, zone),
        board.series.kinds,
        board.series.counts[rows],
        low=board.low[rows] if forecast else None,
        high=board.high[rows] if forecast else None,
        alarm=board.alarm[rows],
        spans=time_spans(answer, zone),
    )
    band = "in the band in which 99 % of calm counts lie" if forecast else "without a forecast"
    summary = (
        f"Events of each kind per {length(board.bucket).removeprefix('1 ')}, {band}. Hatched is time without data; zero is zero."
    )
    hint = "Triangles are counts of an alarm outside of the band. A click shows that bucket below."
    return [
        html.P(f"{summary} {hint if forecast else 'A click shows that bucket below.'}", className="soft small"),
        plot("grid-counts", figure, summary, height=counts_height(len(board.series.kinds))),
    ]


def background(live: LiveSite, answer: GridAnswer) -> list[Component]:
    """Queued jobs, slots and the like beside the alarms; nothing where the site reads none, or has none of this time."""
    series, rows, zone = answer.board.series, slice(answer.first, answer.last), live.settings.site.time_zone
    values = series.background[rows]
    told = [place for place in range(len(series.background_names)) if np.isfinite(values[:, place]).any()]
    if not told:
        return []
    names = [series.background_names[place] for place in told]
    figure = background_figure(wall_times(answer, zone), names, values[:, told], spans=time_spans(answer, zone))
    summary = f"{', '.join(names)}: the mean of each {length(answer.board.bucket).removeprefix('1 ')}, beside alarms and outages."
    words = f"{summary} They help to understand an alarm; the alarm itself is made of the events."
    shown = plot("grid-background", figure, summary, height=background_height(len(names)))
    return [card("Background", html.P(words, className="soft small"), shown)]


def kinds_px(answer: GridAnswer) -> int:
    """The room that the counts take, kept free until they are there."""
    return counts_height(len(answer.board.series.kinds)) + 75


def alarm_table(live: LiveSite, answer: GridAnswer, link: PageLink) -> Component:
    """Every alarm of the time that is shown; its beginning leads to its worst bucket."""
    columns = (
        TableColumn("start", "Began", "link", 165),
        TableColumn("hours", "Lasted (h)", "number", 105),
        TableColumn("times", "Score ÷ threshold", "number", 150, "Of the worst bucket"),
        TableColumn("what", "What was wrong", width=330),
        TableColumn("outage", "Outage", width=170, hint="Outages and maintenance at the same time"),
    )
    rows = [_alarm_row(live, answer, alarm, link) for alarm in answer.alarms[:_MOST_ROWS]]
    words = "The newest first. Choose one (Enter, or a click on its time) to see why and where above."
    if not rows:
        return card("Alarms", html.P("There was no alarm in this time.", className="soft"))
    table = _with_a_digit(sortable_table("grid-alarms", columns, rows, label="Alarms", most_px=380), "times", "hours")
    return card("Alarms", html.P(words, className="soft small"), table)


def outage_table(live: LiveSite, answer: GridAnswer, link: PageLink) -> Component:
    """Every outage, maintenance and time found normal, and whether an alarm was raised."""
    columns = (
        TableColumn("start", "Began", "link", 165),
        TableColumn("end", "Ended", width=165),
        TableColumn("kind", "Kind", width=120),
        TableColumn("title", "Title", width=260),
        TableColumn("source", "Told by", width=110),
        TableColumn("raised", "Alarm raised", width=120),
        TableColumn("delay", "After (h)", "number", 100, "From its beginning to the end of the first bucket of alarm"),
    )
    rows = [_outage_row(live, seen, link) for seen in answer.outages[:_MOST_ROWS]]
    if not rows:
        hint = " Label one: stormpetrel events label, or let Grafana or a calendar tell." if answer.in_full else ""
        return card("Outages and maintenance", html.P(f"Nobody has told of any in this time.{hint}", className="soft"))
    table = _with_a_digit(sortable_table("grid-outages", columns, rows, label="Outages and maintenance", most_px=380), "delay")
    return card("Outages and maintenance", html.P("The newest first.", className="soft small"), table)


def gap_table(live: LiveSite, answer: GridAnswer) -> list[Component]:
    """The time without data, folded away; why is told to administrators."""
    if not answer.gaps:
        return []
    columns = [TableColumn("start", "From", width=165), TableColumn("end", "To", width=165), TableColumn("for", "For", width=90)]
    columns += [TableColumn("why", "Why", width=380)] if answer.in_full else []
    rows = [
        {"start": clock(live, gap.start), "end": clock(live, gap.end), "for": length(gap.end - gap.start), "why": gap.why}
        for gap in reversed(answer.gaps)
    ][:_MOST_ROWS]
    table = sortable_table("grid-gaps", columns, rows, label="Time without data", most_px=330)
    return [card("Time without data", numbers(f"{_stretches(len(answer.gaps))}, the newest first", table))]


def length(span: timedelta) -> str:
    """A length of time: `1 hour`, `15 minutes`, `26 hours`, `3 days`."""
    seconds = span.total_seconds()
    for unit, words in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0 and (unit < 86_400 or seconds >= 2 * unit):
            return f"{seconds / unit:,.0f} {words}{'' if seconds == unit else 's'}"
    return span_words(seconds)


def clock(live: LiveSite, moment: datetime) -> str:
    """A moment by the clock on the wall, as tables write it: it sorts as text."""
    return f"{on_wall(moment, live.settings.site.time_zone):%Y-%m-%d %H:%M}"


def at_of(live: LiveSite, moment: datetime) -> str:
    """A moment as a link names it."""
    return f"{on_wall(moment, live.settings.site.time_zone):%Y-%m-%dT%H:%M}"


def stretch(live: LiveSite, first: datetime, last: datetime) -> str:
    """From when to when, by the clock on the wall."""
    begin, end = (on_wall(moment, live.settings.site.time_zone) for moment in (first, last))
    if begin.date() == end.date():
        return f"{begin:%a %d %b %Y, %H:%M} to {end:%H:%M}"
    return f"{begin:%d %b %Y %H:%M} to {end:%d %b %Y %H:%M}"


def _alarm_row(live: LiveSite, answer: GridAnswer, alarm: Alarm, link: PageLink) -> dict[str, Any]:
    known = np.isfinite(alarm.score) and np.isfinite(alarm.threshold) and alarm.threshold > 0
    return {
        "start": clock(live, alarm.start),
        "start_link": link.to(at=at_of(live, answer.board.series.moment(alarm.worst)), kind=None),
        "hours": (alarm.end - alarm.start) / timedelta(hours=1),
        "times": alarm.score / alarm.threshold if known else None,
        "what": "; ".join(alarm.findings),
        "outage": "; ".join(alarm.outages),
    }


def _outage_row(live: LiveSite, seen: SeenOutage, link: PageLink) -> dict[str, Any]:
    outage = seen.outage
    raised = "" if outage.kind is OutageKind.MAINTENANCE else {None: "not judged", True: "▲ yes", False: "no"}[seen.raised]
    return {
        "start": clock(live, outage.start),
        "start_link": link.to(at=at_of(live, outage.start), kind=None),
        "end": "goes on" if outage.end is None else clock(live, outage.end),
        "kind": NAMES[outage.kind.value],
        "title": outage.title,
        "source": outage.source.partition(":")[0],
        "raised": raised,
        "delay": None if seen.delay is None else seen.delay.total_seconds() / 3600,
    }


def _with_a_digit(table: Any, *columns: str) -> Component:
    """A sortable table whose columns of these names have a digit after the point."""
    for definition in table.children.columnDefs:
        if definition["field"] in columns:
            definition["valueFormatter"] = {"function": "params.value == null ? '' : d3.format(',.1f')(params.value)"}
    found: Component = table
    return found


def _alarmed(answer: GridAnswer) -> str:
    buckets = int(answer.board.alarm[answer.first : answer.last].sum())
    return f"{length(buckets * answer.board.bucket)} of alarm" if buckets else ""


def _stretches(count: int) -> str:
    return "" if not count else f"{count:,} {'stretch' if count == 1 else 'stretches'}"
