"""The grid's events in the report: outages over time, counts against their forecast, alarms, and the model in use.

Site -> site_event_sections -> Section. A site without event counts has none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.answers.grid import GridAnswer, GridQuestion, answer_of, headline
from stormpetrel.answers.grid_board import FAMILY, read_board
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table
from stormpetrel.figures.grid import counts_figure, counts_height, outage_timeline
from stormpetrel.figures.grid_background import background_figure, background_height
from stormpetrel.figures.grid_drawn import on_wall, time_spans, wall_times
from stormpetrel.figures.grid_score import score_figure
from stormpetrel.figures.time_spans import NAMES, kinds_of
from stormpetrel.records.outages import OutageKind

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

Progress = Callable[[str], None]

TITLE: Final = "The grid's events"
_DRAWN: Final = timedelta(days=28)  # of counts and scores: what can still be read on paper
_NEWEST_DAY: Final = timedelta(days=1)
_MOST_ROWS: Final = 40
_GAP: Final = "gap"


def site_event_sections(site: Site, *, progress: Progress = lambda _: None) -> list[Section]:
    """What there is to say about the events of a site's grid; nothing where none were taken in."""
    progress("events")
    try:
        board = read_board(site)
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"The event counts cannot be read: {error.what}"),))]
    if board.latest is None:
        return []
    head = headline(site, board)
    whole = answer_of(site, board, GridQuestion("all"), head=head, in_full=True)
    lately = answer_of(site, board, GridQuestion(since=board.latest - _DRAWN, until=board.latest), head=head, in_full=True)
    zone = site.settings.site.time_zone
    first, last = (on_wall(moment, zone) for moment in (whole.start, whole.end))
    intro = (
        f"Events of {len(board.series.kinds)} kinds in buckets of {board.series.bucket_s // 60} minutes, "
        f"from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} ({zone}). {head.words}"
    )
    return [Section(TITLE, intro, tuple(_blocks(site, whole, lately, zone)))]


def _blocks(site: Site, whole: GridAnswer, lately: GridAnswer, zone: str) -> list[Block]:
    blocks: list[Block] = [_figures(whole)]
    spans = time_spans(whole, zone)
    if spans:
        words = "As Fig. 6 of the published study, with the alarms above the outages that they belong to."
        blocks.append(Drawing(outage_timeline(spans), words, 130 + 34 * len(kinds_of(spans))))
    blocks.append(_newest_day(whole, zone))
    blocks += _drawings(lately, zone)
    blocks += [_alarm_table(whole, zone)] if whole.alarms else []
    blocks += [_outage_table(whole, zone)] if whole.outages else []
    return [*blocks, *_model(site)]


def _figures(answer: GridAnswer) -> Table:
    board = answer.board
    outages = [seen for seen in answer.outages if seen.outage.kind is OutageKind.OUTAGE]
    judged = [seen for seen in outages if seen.raised is not None]
    delays = [seen.delay.total_seconds() / 3600 for seen in judged if seen.delay is not None]
    weeks = float((~np.isnan(board.score)).sum()) * board.series.bucket_s / 604_800
    alone = [alarm for alarm in answer.alarms if not alarm.outages]
    rows: list[tuple[str, str]] = [
        ("events", f"{np.nansum(board.series.counts):,.0f}"),
        ("buckets", f"{len(board.series):,}"),
        ("of these without data", f"{int(board.series.is_gap.sum()):,}"),
        ("outages", f"{len(outages):,}"),
    ]
    if board.model:
        rows += [
            ("outages that raised an alarm", f"{sum(bool(seen.raised) for seen in judged):,} of {len(judged):,} judged"),
            ("hours until they did, median", f"{np.median(delays):.1f}" if delays else "–"),
            ("alarms", f"{len(answer.alarms):,}"),
            ("of these outside of any outage", f"{len(alone):,} ({len(alone) / weeks:.2f} a week)" if weeks else "–"),
        ]
    return Table("Figures", (Column(""), Column("", "")), tuple(rows))


def _newest_day(answer: GridAnswer, zone: str) -> Table:
    """The newest day as a table, as Fig. 5 of the published study has it: a row per bucket, a column per kind."""
    board = answer.board
    buckets = max(1, min(48, round(_NEWEST_DAY / board.bucket)))
    rows = []
    for place in range(max(0, len(board.series) - buckets), len(board.series)):
        counts = board.series.counts[place]
        told = [_GAP if count != count else count for count in counts.tolist()]
        rows.append((f"{on_wall(board.series.moment(place), zone):%Y-%m-%d %H:%M}", *told))
    columns = (Column(f"from ({zone})"), *(Column(kind, ",.0f") for kind in board.series.kinds))
    return Table("Counts of the newest buckets (Fig. 5)", columns, tuple(rows), "A gap is time of which there is no data.")


def _drawings(answer: GridAnswer, zone: str) -> list[Block]:
    """Scores and counts of the last weeks, against threshold and forecast."""
    if answer.first == answer.last:
        return []
    board, rows = answer.board, slice(answer.first, answer.last)
    times, spans = wall_times(answer, zone), time_spans(answer, zone)
    forecast = not np.isnan(board.low[rows]).all()
    found: list[Block] = []
    if not np.isnan(board.score[rows]).all():
        figure = score_figure(times, board.score[rows], board.threshold[rows], board.alarm[rows], spans=spans)
        figure.update_layout(title_text="Score and threshold, the last four weeks")
        found.append(Drawing(figure, "Scores above five times the threshold stand at the edge as triangles.", 340))
    figure = counts_figure(
        times,
        board.series.kinds,
        board.series.counts[rows],
        low=board.low[rows] if forecast else None,
        high=board.high[rows] if forecast else None,
        alarm=board.alarm[rows],
        spans=spans,
    )
    figure.update_layout(title_text="Counts of each kind, the last four weeks")
    words = "The band holds 99 % of calm counts; it is forecast from the buckets before." if forecast else "There is no forecast."
    found.append(Drawing(figure, words, counts_height(len(board.series.kinds))))
    names, background = board.series.background_names, board.series.background[rows]
    if np.isfinite(background).any():
        figure = background_figure(times, names, background, spans=spans)
        figure.update_layout(title_text="Background, the last four weeks")
        words = "The mean of each bucket, to understand alarms by; the alarm itself is made of the events."
        found.append(Drawing(figure, words, background_height(len(names))))
    return found


def _alarm_table(answer: GridAnswer, zone: str) -> Table:
    rows = tuple(
        (
            _clock(alarm.start, zone), (alarm.end - alarm.start) / timedelta(hours=1),
            alarm.score / alarm.threshold if alarm.threshold > 0 else None, "; ".join(alarm.findings), "; ".join(alarm.outages),
        )
        for alarm in answer.alarms[:_MOST_ROWS]
    )  # fmt: skip
    columns = (
        Column(f"began ({zone})"), Column("hours", ",.1f"), Column("score ÷ threshold", ",.1f"), Column("what was wrong"),
        Column("outage"),
    )  # fmt: skip
    return Table("Alarms", columns, rows, _newest(len(answer.alarms)))


def _outage_table(answer: GridAnswer, zone: str) -> Table:
    told = {None: "not judged", True: "yes", False: "no"}
    rows = tuple(
        (
            _clock(seen.outage.start, zone), _clock(seen.outage.end, zone), NAMES[seen.outage.kind.value].lower(),
            seen.outage.title, "" if seen.outage.kind is OutageKind.MAINTENANCE else told[seen.raised],
            None if seen.delay is None else seen.delay.total_seconds() / 3600,
        )
        for seen in answer.outages[:_MOST_ROWS]
    )  # fmt: skip
    columns = (
        Column(f"began ({zone})"), Column("ended"), Column("kind"), Column("title"), Column("alarm raised"),
        Column("after (h)", ",.1f"),
    )  # fmt: skip
    return Table("Outages and maintenance", columns, rows, _newest(len(answer.outages)))


def _model(site: Site) -> list[Block]:
    """What the registry knows of the model in use."""
    training = site.models.current_training(FAMILY)
    if training is None:
        return [Paragraph("There is no model of events yet. Train one: stormpetrel events train")]
    rows: list[tuple[Any, ...]] = []
    for model in training.models:
        told = {name: _plain(value) for name, value in model.about.items() if name in _ABOUT}
        rows += [(f"{model.name}, version {model.version}", _ABOUT[name], value) for name, value in told.items() if value]
    return [Table("The model in use", (Column("model"), Column(""), Column("")), tuple(rows))]


_ABOUT: Final = {
    "trained_until": "learnt from buckets until", "buckets": "buckets learnt from",
    "labelled_outage_buckets": "of these labelled as outage", "calm_buckets": "calm buckets that set the threshold",
    "threshold": "threshold", "alarms_per_week": "false alarms a week that it allows", "why": "why it was trained",
}  # fmt: skip


def _plain(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _newest(count: int) -> str:
    return f"The newest {_MOST_ROWS} of {count:,}." if count > _MOST_ROWS else ""


def _clock(moment: datetime | None, zone: str) -> str:
    return "goes on" if moment is None else f"{on_wall(moment, zone):%Y-%m-%d %H:%M}"
