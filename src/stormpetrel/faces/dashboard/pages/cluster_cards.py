"""The parts of the page Cluster: headline and findings, score over time, counts per kind, tables of alarms, outages and gaps.

ClusterNow, ClusterPeriod, ClusterArrays -> cards. A click on a figure chooses a bucket; so does a row of a table, by keyboard.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from dash import html

from stormpetrel.answers.cluster.cluster import ClusterState
from stormpetrel.answers.schemas.cluster import ClusterAlarm, ClusterGap, ClusterNow, ClusterOutage, ClusterPeriod
from stormpetrel.faces.dashboard.blocks import card, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, sortable_table, status_chip
from stormpetrel.figures.cluster.background import background_height
from stormpetrel.figures.cluster.counts import counts_height
from stormpetrel.figures.cluster.drawn import background_over_time, counts_over_time, has_forecast, on_wall, score_over_time
from stormpetrel.figures.time_spans import NAMES
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.source_health import format_span

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.cluster.board import ClusterArrays
    from stormpetrel.answers.live_site import LiveSite

_TONES: Final = {
    ClusterState.CALM: ("●", "Calm", "chip-complete", ""), ClusterState.ALARM: ("▲", "Alarm", "chip-fail", "health-problem"),
    ClusterState.INCIDENT: ("▲", "Incident", "chip-fail", "health-warning"),
    ClusterState.SILENT: ("○", "No data", "chip-wait", "health-warning"),
    ClusterState.MAINTENANCE: ("◆", "Maintenance", "chip-wait", "health-warning"),
    ClusterState.UNJUDGED: ("○", "Not judged", "chip-wait", "health-warning"),
    ClusterState.EMPTY: ("○", "Nothing yet", "chip-wait", "health-warning"),
}  # fmt: skip
_SCORE_PX: Final = 300
_MOST_ROWS: Final = 1_000


def head(now: ClusterNow) -> Component:
    """State of the cluster: a label, a sentence, the findings, and what to do."""
    symbol, label, tone, frame = _TONES[ClusterState(now.state)]
    parts: list[Any] = [html.P([status_chip(symbol, label, tone), html.Span(now.headline, className="cluster-headline")])]
    if now.findings:
        parts.append(findings(now.findings))
    if now.hint:
        parts.append(html.P(now.hint, className="soft cluster-hint"))
    return html.Div(parts, className=f"health-head cluster-head {frame}".strip(), id="cluster-head", role="status")


def findings(sentences: list[str]) -> Component:
    """What is wrong, a sentence each, as text."""
    return html.Ul([html.Li(sentence) for sentence in sentences], className="cluster-findings")


def figures(live: LiveSite, period: ClusterPeriod) -> Component:
    """What the time that is shown comes to."""
    assert period.start is not None and period.end is not None
    outages = [outage for outage in period.outages if outage.kind == OutageKind.OUTAGE]
    judged = [outage for outage in outages if outage.raised is not None]
    raised = f"{sum(bool(outage.raised) for outage in judged)} of {len(judged)} raised an alarm" if judged else ""
    span = f"{period.buckets:,} buckets of {length(period.bucket_s)}, {stretch(live, period.start, period.end)}"
    alarmed = f"{length(period.alarm_buckets * period.bucket_s)} of alarm" if period.alarm_buckets else ""
    missing = length(period.gap_buckets * period.bucket_s) if period.gap_buckets else "nothing"
    return stats(
        stat("Events", f"{period.events:,.0f}", span),
        stat("Alarms", f"{len(period.alarms):,}", alarmed, tone="bad" if period.alarms else ""),
        stat("Outages", f"{len(outages):,}", raised),
        stat("Without data", missing, _stretches(len(period.gaps))),
    )


def score(live: LiveSite, period: ClusterPeriod, arrays: ClusterArrays) -> Component:
    """The score of each bucket against the threshold, with alarms, outages, maintenance and gaps."""
    zone = live.settings.site.time_zone
    figure = score_over_time(arrays, period, zone)
    summary = (
        "How unusual each bucket was, against the threshold above which there is an alarm; outages and maintenance above it."
    )
    hint = f"Scores above five times the threshold are drawn at the edge as ▲. Times are {zone}. A click shows that bucket below."
    return card(
        "Score and alarms",
        html.P(f"{summary} {hint}", className="soft small"),
        plot("cluster-score", figure, summary, height=_SCORE_PX),
    )


def counts(live: LiveSite, period: ClusterPeriod, arrays: ClusterArrays) -> list[Component]:
    """The count of each kind in each bucket, with the band of 99 % of normal counts."""
    figure, forecast = counts_over_time(arrays, period, live.settings.site.time_zone), has_forecast(arrays)
    band = "with the band of 99 % of normal counts" if forecast else "without a forecast"
    bucket = length(period.bucket_s).removeprefix("1 ")
    summary = f"Events of each kind per {bucket}, {band}. Hatched is time without data; zero is zero."
    hint = "Triangles are counts of an alarm outside of the band. A click shows that bucket below."
    return [
        html.P(f"{summary} {hint if forecast else 'A click shows that bucket below.'}", className="soft small"),
        plot("cluster-counts", figure, summary, height=counts_height(len(period.kinds))),
    ]


def background(live: LiveSite, period: ClusterPeriod, arrays: ClusterArrays) -> list[Component]:
    """Queued jobs, slots and the like next to the alarms; nothing where the site reads none, or has none of this time."""
    drawing = background_over_time(arrays, period, live.settings.site.time_zone)
    if drawing is None:
        return []
    figure, names = drawing
    summary = f"{', '.join(names)}: the mean of each {length(period.bucket_s).removeprefix('1 ')}, with alarms and outages."
    text = f"{summary} They help to understand an alarm; the alarm itself comes from the events."
    shown = plot("cluster-background", figure, summary, height=background_height(len(names)))
    return [card("Background", html.P(text, className="soft small"), shown)]


def kinds_px(period: ClusterPeriod) -> int:
    """The room that the counts take, kept free until they are there."""
    return counts_height(len(period.kinds)) + 75


def alarm_table(live: LiveSite, period: ClusterPeriod, link: PageLink) -> Component:
    """Every alarm of the time that is shown; its beginning leads to its worst bucket."""
    columns = (
        TableColumn("start", "Began", "link", 165),
        TableColumn("hours", "Lasted (h)", "number", 105),
        TableColumn("times", "Score ÷ threshold", "number", 150, "Of the worst bucket"),
        TableColumn("what", "What was wrong", width=330),
        TableColumn("outage", "Outage", width=170, hint="Outages and maintenance at the same time"),
    )
    rows = [_alarm_row(live, alarm, link) for alarm in period.alarms[:_MOST_ROWS]]
    text = "The newest first. Choose one (Enter, or a click on its time) to see why and where above."
    if not rows:
        return card("Alarms", html.P("There was no alarm in this time.", className="soft"))
    table = _with_a_digit(sortable_table("cluster-alarms", columns, rows, label="Alarms", most_px=380), "times", "hours")
    return card("Alarms", html.P(text, className="soft small"), table)


def outage_table(live: LiveSite, period: ClusterPeriod, link: PageLink) -> Component:
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
    rows = [_outage_row(live, outage, link) for outage in period.outages[:_MOST_ROWS]]
    if not rows:
        hint = " Label one: stormpetrel events label, or use Grafana or a calendar." if period.in_full else ""
        return card("Outages and maintenance", html.P(f"None was reported in this time.{hint}", className="soft"))
    table = _with_a_digit(sortable_table("cluster-outages", columns, rows, label="Outages and maintenance", most_px=380), "delay")
    return card("Outages and maintenance", html.P("The newest first.", className="soft small"), table)


def gap_table(live: LiveSite, period: ClusterPeriod) -> list[Component]:
    """The time without data, folded away; why is shown to administrators."""
    if not period.gaps:
        return []
    columns = [TableColumn("start", "From", width=165), TableColumn("end", "To", width=165), TableColumn("for", "For", width=90)]
    columns += [TableColumn("why", "Why", width=380)] if period.in_full else []
    rows = [
        {"start": clock(live, gap.start), "end": clock(live, gap.end), "for": length(_seconds(gap)), "why": gap.why}
        for gap in reversed(period.gaps)
    ][:_MOST_ROWS]
    table = sortable_table("cluster-gaps", columns, rows, label="Time without data", most_px=330)
    return [card("Time without data", numbers(f"{_stretches(len(period.gaps))}, the newest first", table))]


def length(seconds: float) -> str:
    """A length of time: `1 hour`, `15 minutes`, `26 hours`, `3 days`."""
    for unit, unit_name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0 and (unit < 86_400 or seconds >= 2 * unit):
            return f"{seconds / unit:,.0f} {unit_name}{'' if seconds == unit else 's'}"
    return format_span(seconds)


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


def _seconds(span: ClusterGap | ClusterAlarm) -> float:
    return (span.end - span.start).total_seconds()


def _alarm_row(live: LiveSite, alarm: ClusterAlarm, link: PageLink) -> dict[str, Any]:
    return {
        "start": clock(live, alarm.start),
        "start_link": link.to(at=at_of(live, alarm.worst or alarm.start), kind=None),
        "hours": _seconds(alarm) / 3600,
        "times": None if alarm.score is None or not alarm.threshold else alarm.score / alarm.threshold,
        "what": "; ".join(alarm.findings),
        "outage": "; ".join(alarm.outages),
    }


def _outage_row(live: LiveSite, outage: ClusterOutage, link: PageLink) -> dict[str, Any]:
    raised = "" if outage.kind == OutageKind.MAINTENANCE else {None: "not judged", True: "▲ yes", False: "no"}[outage.raised]
    return {
        "start": clock(live, outage.start),
        "start_link": link.to(at=at_of(live, outage.start), kind=None),
        "end": "goes on" if outage.end is None else clock(live, outage.end),
        "kind": NAMES[outage.kind],
        "title": outage.title,
        "source": outage.source,
        "raised": raised,
        "delay": None if outage.delay_s is None else outage.delay_s / 3600,
    }


def _with_a_digit(table: Any, *columns: str) -> Component:
    """A sortable table whose columns of these names have a digit after the point."""
    for definition in table.children.columnDefs:
        if definition["field"] in columns:
            definition["valueFormatter"] = {"function": "params.value == null ? '' : d3.format(',.1f')(params.value)"}
    sized: Component = table
    return sized


def _stretches(count: int) -> str:
    return "" if not count else f"{count:,} {'stretch' if count == 1 else 'stretches'}"
