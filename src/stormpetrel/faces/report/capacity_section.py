"""Capacity in the report: load by week with its forecast, waits against utilisation, and who asks for it.

Site -> site_capacity_sections -> Section. A site without a whole week of data has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.capacity import CapacityAnswer, answer_of, read_board
from stormpetrel.errors import StormpetrelError
from stormpetrel.events.capacity_words import wait_words
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table, table_of
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
        record = read_board(site).record
    except StormpetrelError as error:
        return [Section(TITLE, "", (Paragraph(f"The load cannot be read: {error.what}"),))]
    if not record.known_weeks:
        return []
    answer = answer_of(site, record, in_full=True)
    return [Section(TITLE, answer.headline, tuple(_blocks(answer)))]


def _blocks(answer: CapacityAnswer) -> list[Block]:
    plan = answer.plan
    blocks: list[Block] = [Paragraph(" ".join(answer.reasons))] if answer.reasons else []
    blocks.append(Drawing(load_figure(plan), "The week that is not over is left out."))
    if plan.waits.low.size:
        blocks.append(Drawing(wait_figure(plan), "Only where there was a day of such hours or more.", 360))
    blocks.append(_weeks(answer))
    return [*blocks, _groups(answer)] if answer.groups.height else blocks


def _weeks(answer: CapacityAnswer) -> Table:
    weeks = answer.plan.record.weeks.tail(_MOST_WEEKS)
    columns = (
        Column("week"), Column(answer.plan.record.unit.value, ",.0f"), Column("seen", ".0%"), Column("submitted", ",.0f"),
        Column("started", ",.0f"), Column("ended", ",.0f"), Column("wait, median"), Column("wait, 90 %"),
    )  # fmt: skip
    rows = tuple(
        (
            f"{row['week']:%Y-%m-%d}", row["load"], row["seen"], row["jobs"], row["started"], row["ended"],
            wait_words(row["wait_median_s"]), wait_words(row["wait_p90_s"]),
        )
        for row in weeks.iter_rows(named=True)
    )  # fmt: skip
    return Table("Load by week", columns, rows, "A week that was not seen whole is scaled by the share that was.")


def _groups(answer: CapacityAnswer) -> Table:
    unit, by = answer.plan.record.unit.value, answer.plan.record.grouped_by or "group"
    columns = (
        ("group", Column(by)), ("load", Column(f"{unit} a week", ",.0f")), ("share", Column("share", ".1%")),
        ("growth", Column("growth a week", "+.1%")), ("growth_low", Column("at least", "+.1%")),
        ("growth_high", Column("at most", "+.1%")),
    )  # fmt: skip
    shown = answer.groups.sort(pl.col("load"), descending=True).head(_MOST_GROUPS)
    note = f"The largest {_MOST_GROUPS} of {answer.groups.height}." if answer.groups.height > _MOST_GROUPS else ""
    return table_of(f"Load by {by}", shown, columns, note=note)
