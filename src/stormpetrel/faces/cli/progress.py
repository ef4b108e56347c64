"""What a terminal shows while a command works: bars and spinners on standard error, cleared at the end.

All are silent where `quiet` says so (--json) and where standard error is no terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stormpetrel.faces.cli.output import console, plain

ReportShare = Callable[[float, str], None]  # the share that is done, 0 to 1, and what is being done


@contextmanager
def byte_bar(title: str, total: int, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar over `total` bytes; yields what takes the bytes and the records read so far."""
    if not _is_shown(quiet):
        yield lambda _done, _count: None
        return
    columns = (_text("{task.description}"), BarColumn(), DownloadColumn(), _text("{task.fields[records]:,} records"))
    with _bar(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task(plain(title), total=total or None, records=0)
        yield lambda done, count: bar.update(task, completed=done, records=count)


@contextmanager
def share_bar(title: str = "starting", *, quiet: bool, refresh_per_s: float = 10) -> Iterator[ReportShare]:
    """Show a bar over the share that is done, the time since the start, and what is being done."""
    if not _is_shown(quiet):
        yield lambda _share, _step: None
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), _text("{task.description}"))
    with _bar(*columns, refresh_per_s=refresh_per_s) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share, step: bar.update(task, completed=share, description=plain(step))


@contextmanager
def step_spinner(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the name of the current step; yields what takes that name."""
    if not _is_shown(quiet):
        yield lambda _step: None
        return
    with console(error=True).status("starting") as status:
        yield lambda step: status.update(plain(step))


@contextmanager
def share_spinner(*, quiet: bool) -> Iterator[ReportShare]:
    """Show a spinner with the share that is done and the name of the current step."""
    with step_spinner(quiet=quiet) as show:
        yield lambda share, step: show(f"{share:.0%} {step}")


def _is_shown(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


def _text(template: str) -> TextColumn:
    return TextColumn(template, markup=False)


def _bar(*columns: ProgressColumn, refresh_per_s: float = 10) -> Progress:
    return Progress(*columns, console=console(error=True), transient=True, refresh_per_second=refresh_per_s)
