"""How an answer leaves the command line: as text or tables for people, as JSON for programs, as figures in a file.

answer -> emit. What comes from logs and notes is shown, never obeyed (`plain`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from stormpetrel.faces.report.blocks import Block, Section, Table
from stormpetrel.faces.report.page import write_page

_WIDEST: Final = 1000


def emit(
    answer: Any,
    text: str | Callable[[Console], None],
    *,
    as_json: bool,
    plot: Path | None = None,
    draw: Callable[[Path], None] | None = None,
    next_step: str = "",
) -> None:
    """Draw the figures of an answer, then print it: for people, or with `as_json` for programs.

    Parameters
    ----------
    answer
        What --json prints: a model of `answers.schemas` (compact JSON), or plain values.
    text
        What people read: a sentence, or a function that prints to the console.
    plot, draw
        The file of the figures, if any are wanted, and what draws them into it; without `draw` it is written already.
    next_step
        The command to run next, after everything else.
    """
    if plot is not None and draw is not None:
        draw(plot)
    if as_json:
        print_json(answer)
        return
    out = console()
    if isinstance(text, str):
        out.print(text)
    else:
        text(out)
    if plot is not None:
        out.print(f"{plain(str(plot))}: the figures, to be opened in a browser")
    if next_step:
        out.print(f"Next: {next_step}")


def print_json(value: Any) -> None:
    """Print a model or plain values as JSON; a number that is none becomes null in a model."""
    dump = getattr(value, "model_dump_json", None)
    typer.echo(json.dumps(value, ensure_ascii=False) if dump is None else dump(by_alias=True))


def console(*, error: bool = False) -> Console:
    """Return the terminal of people; what comes from logs is printed as text, never as markup."""
    return Console(stderr=error, markup=False, highlight=False, emoji=False, soft_wrap=True)


def plain(text: str) -> str:
    """Return text from a log, safe for a terminal: control characters and escapes are shown, not obeyed."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def one_line(text: str) -> str:
    """Return what somebody wrote on one line, safe for a terminal."""
    return plain(" ".join(text.split()))


def format_time(moment: datetime, zone: str) -> str:
    """Return a time to the minute, in the site's zone."""
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def show_table(out: Console, table: Table) -> None:
    """Print a table of a report or a study."""
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


def draw_page(path: Path, title: str, blocks: tuple[Block, ...], about: str = "") -> None:
    """Write figures and tables as a page with one section."""
    write_page(path, title, [Section(title, about, blocks)])
