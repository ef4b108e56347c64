"""Groups of commands whose modules are imported when a command is run: a table of commands -> `LazyGroup`.

The module of a command takes up to half a second to import (Polars, pydantic, our own rooms); a list of commands needs none of
them. Names and help lines therefore stand in a table (`commands.py`), and command modules import at the top like all others.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, MutableMapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

import typer.main
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:  # where typer keeps its own copy of click
    from typer._click.core import Command
    from typer._click.core import Context as ClickContext
    from typer._click.formatting import HelpFormatter
    from typer._click.shell_completion import CompletionItem

_PACKAGE: Final = "stormpetrel.faces.cli"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command: its function as MODULE:FUNCTION below `faces/cli`, and the first line of that function's docstring.

    A `brief` one is over within seconds: Python does not search its memory for garbage meanwhile (`main.search_no_garbage`).
    """

    target: str
    help: str
    brief: bool = False

    def load(self) -> Any:
        """Import the module and return the function."""
        module, _, function = self.target.partition(":")
        loaded = getattr(import_module(f"{_PACKAGE}.{module}"), function)
        if not self.brief:
            gc.enable()
        return loaded


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group of commands, such as `stormpetrel jobs`, and its help."""

    help: str
    commands: Mapping[str, CommandEntry]


Entry = CommandEntry | GroupEntry


class LazyCommands(MutableMapping[str, "Command"]):
    """The commands of a group by name; each is built, and its module imported, when it is first looked up."""

    def __init__(self, table: Mapping[str, Entry]) -> None:
        self._table = table
        self._built: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._built:
            self._built[name] = _build(name, self._table[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._table, *self._built]))

    def __len__(self) -> int:
        return len(self._table.keys() | self._built.keys())


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, *, table: Mapping[str, Entry] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._table = self.table if table is None else table
        self.commands = LazyCommands(self._table)

    def list_commands(self, ctx: ClickContext) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return list(self.commands)

    def format_commands(self, ctx: ClickContext, formatter: HelpFormatter) -> None:
        """Write the names and help lines of the commands."""
        self._outline().format_commands(ctx, formatter)

    def shell_complete(self, ctx: ClickContext, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`."""
        listing = copy(ctx)
        listing.command = self._outline()
        return listing.command.shell_complete(listing, incomplete)

    def _outline(self) -> TyperGroup:
        """Return this group with commands that have a name and a help line only."""
        lines = {name: TyperCommand(name=name, help=entry.help) for name, entry in self._table.items()}
        return TyperGroup(name=self.name, commands={**lines}, params=self.params, rich_markup_mode=None)


def _build(name: str, entry: Entry) -> Command:
    if isinstance(entry, GroupEntry):
        return LazyGroup(name=name, table=entry.commands, help=entry.help, no_args_is_help=True, rich_markup_mode=None)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(entry.load())
    return typer.main.get_command(single)
