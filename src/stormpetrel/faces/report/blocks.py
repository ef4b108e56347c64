"""The blocks that a report is built of, and the sections that gather them.

plain values -> Table, Drawing, Paragraph -> Section. A page and a terminal show the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

NOTHING: Final = "–"  # what stands where there is no value


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, with the unit, and how its numbers are written (None for text)."""

    name: str
    form: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads to a part of the page; in a terminal its text alone."""

    text: str
    anchor: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Table:
    """A table to be read: values as they are, written out by the form of their column.

    `shows` names the items of the published studies that it is this site's version of: keys of `inventory.ITEMS`.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    shows: tuple[str, ...] = ()

    def lines(self) -> Iterator[tuple[str, ...]]:
        """The rows as text."""
        for row in self.rows:
            yield tuple(written(value, column.form) for value, column in zip(row, self.columns, strict=True))


@dataclass(frozen=True, slots=True)
class Drawing:
    """A Plotly figure with a sentence below it; the height is in pixels, `shows` as in a table."""

    figure: Any
    caption: str = ""
    height: int = 420
    shows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Blocks that stand side by side where the page is wide enough."""

    blocks: tuple[Block, ...]


Shown = TypeVar("Shown", Table, Drawing)
Block: TypeAlias = Table | Drawing | Paragraph | SideBySide


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report: what it is about, in a sentence or two, and what it shows.

    `missing` says of items of the published studies that could not be drawn from this data why not.
    """

    title: str
    intro: str
    blocks: tuple[Block, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)


def showing(block: Shown, *items: str) -> Shown:
    """The same table or drawing as this site's version of items of the published studies."""
    return replace(block, shows=items)


def flat_blocks(section: Section) -> Iterator[Table | Drawing | Paragraph]:
    """The blocks of a section, those that stand side by side one after the other."""

    def unpacked(blocks: tuple[Block, ...]) -> Iterator[Table | Drawing | Paragraph]:
        for block in blocks:
            if isinstance(block, SideBySide):
                yield from unpacked(block.blocks)
            else:
                yield block

    yield from unpacked(section.blocks)


def written(value: object, form: str | None) -> str:
    """A value as text: by its form if it is a number, a dash if there is none.

    >>> written(27992, ",d"), written(None, ",d"), written("all", ",d")
    ('27,992', '–', 'all')
    """
    if value is None or (isinstance(value, float) and value != value):
        return NOTHING
    return str(value) if form is None or isinstance(value, str) else format(value, form)
