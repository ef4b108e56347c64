"""Capacity in the report: load by week with its forecast, waits against utilisation, and who asks for it.

Site -> site_capacity_sections -> Section. A site without a whole week of data has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.cluster.capacity import site_capacity
from stormpetrel.answers.schemas.capacity import Capacity
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError
from stormpetrel.events.capacity.text import wait_text
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table
from stormpetrel.figures.capacity import load_figure, wait_figure

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

Progress = Callable[[str], None]

TITLE: Final = "Capacity"
_MOST_GROUPS: Final = 30
_MOST_WEEKS: Final = 26


def site_capacity_sections(site: Site, *, progress: Progress = lambda _: None) -> list[Section]:
    """What there is to say about load, growth and the queue of a site."""
    progress("capacity")
    try:
        answer = site_capacity(site, LOCAL)
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"The load cannot be read: {error.what}"),))]
    if all(week.load is None for week in answer.weeks):
        return []
    return [Section(TITLE, answer.headline, tuple(_blocks(answer)))]


def _blocks(answer: Capacity) -> list[Block]:
    blocks: list[Block] = [Paragraph(" ".join(answer.reasons))] if answer.reasons else []
    blocks.append(Drawing(load_figure(answer), "The current week is left out."))
    if answer.waits:
        blocks.append(Drawing(wait_figure(answer), "Only where there was a day of such hours or more.", 360))
    blocks.append(_weeks(answer))
    return [*blocks, _groups(answer)] if answer.groups else blocks


def _weeks(answer: Capacity) -> Table:
    columns = (
        Column("week"), Column(answer.unit, ",.0f"), Column("seen", ".0%"), Column("submitted", ",.0f"),
        Column("started", ",.0f"), Column("ended", ",.0f"), Column("wait, median"), Column("wait, 90 %"),
    )  # fmt: skip
    rows = tuple(
        (
            f"{week.week:%Y-%m-%d}", week.load, week.seen, week.jobs, week.started, week.ended,
            wait_text(week.wait_median_s), wait_text(week.wait_p90_s),
        )
        for week in answer.weeks[-_MOST_WEEKS:]
    )  # fmt: skip
    return Table("Load by week", columns, rows, "A week that was not seen whole is scaled by the share that was.")


def _groups(answer: Capacity) -> Table:
    by = answer.grouped_by or "group"
    columns = (
        Column(by), Column(f"{answer.unit} a week", ",.0f"), Column("share", ".1%"), Column("growth a week", "+.1%"),
        Column("at least", "+.1%"), Column("at most", "+.1%"),
    )  # fmt: skip
    rows = tuple(
        (group.group, group.load, group.share, group.growth, group.growth_low, group.growth_high)
        for group in answer.groups[:_MOST_GROUPS]
    )
    note = f"The largest {_MOST_GROUPS} of {len(answer.groups)}." if len(answer.groups) > _MOST_GROUPS else ""
    return Table(f"Load by {by}", columns, rows, note)
