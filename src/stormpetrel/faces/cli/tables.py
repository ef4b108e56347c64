"""Tables of a study in a terminal: Table -> rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stormpetrel.faces.cli.context import plain

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.faces.report.blocks import Table

_WIDEST: Final = 1000


def show_table(out: Console, table: Table) -> None:
    """Print a table; what comes from logs is shown, never obeyed."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    lines = [tuple(map(plain, line)) for line in table.lines()]
    drawn = RichTable(
        title=Text(table.title, style="bold"), title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for place, column in enumerate(table.columns):
        # A number or a heading's word is never broken in two, whatever the width of the terminal.
        right = column.form is not None
        words = [*column.name.split(), *(line[place] for line in lines if right)]
        drawn.add_column(
            Text(column.name),
            justify="right" if right else "left",
            overflow="fold",
            min_width=max(map(len, words), default=1),
        )
    for line in lines:
        drawn.add_row(*map(Text, line))
    # Rather a line that the terminal breaks, or a pipe takes whole, than a column that is cut off.
    needed = drawn.__rich_measure__(out, out.options.update(width=_WIDEST)).minimum
    out.print(drawn, width=max(out.width, needed), crop=False, soft_wrap=False)
    out.print(f"  {plain(table.note)}\n" if table.note else "")
