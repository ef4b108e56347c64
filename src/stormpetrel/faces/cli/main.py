"""`stormpetrel`: the program. Reads the options before the command, runs it, and turns errors into one line and an exit code.

Commands and their groups are listed in `commands.py` and imported when they are run: `--help` answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import itertools
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from stormpetrel_client.command import main as ask_service
from stormpetrel_client.sbatch import own_options_first
from stormpetrel_client.where import ClientError, find_service
from typer.exceptions import TyperException

from stormpetrel import __version__
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.cli.commands import COMMANDS
from stormpetrel.faces.cli.lazy_group import LazyGroup
from stormpetrel.faces.cli.options import Context
from stormpetrel.learn.lean_imports import import_lean
from stormpetrel.learn.threads import wait_politely


class CommandLine(LazyGroup):
    """All commands of the program."""

    table = COMMANDS


app = typer.Typer(
    name="stormpetrel",
    cls=CommandLine,
    help="Early warning for compute clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"stormpetrel {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    site: Annotated[
        Path | None, typer.Option("--site", envvar="STORMPETREL_SITE", help="Folder of the site.", show_default=False)
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Early warning for compute clusters."""
    context.obj = Context(site_folder=site, debug=debug)


_SITE_FILE = "site.toml"  # config.SITE_FILE, whose module takes 100 ms to import
_FOR_USERS = (
    "check", "why", "jobs list", "jobs show", "me", "waste", "alarms", "top", "digest",
    "tokens create", "tokens list", "tokens revoke",
)  # fmt: skip
_FLAGS_OF_CHECK = ("--json", "--log-odds", "-h", "--help")
_VALUES_OF_CHECK = ("--user", "--kind", "--fail-above")
_INTERRUPTED = 130
_FOR_US_ALONE = 0o077  # umask: what any library writes for us, tables too, holds names
_STOPPED = "stopped; what was committed is kept, run the same command again to continue."
_STOPPED_WRITING = "stopped; nothing was written."  # synth writes whole files and folders or none


def common_first(arguments: list[str]) -> list[str]:
    """Return the arguments of a command line with --site and --debug before the command, wherever they stood.

    >>> common_first(["ingest", "jobs", "a.txt", "--site", "mysite"])
    ['--site', 'mysite', 'ingest', 'jobs', 'a.txt']
    """
    common: list[str] = []
    rest: list[str] = []
    following = iter(arguments)
    for argument in following:
        if argument == "--":
            rest += [argument, *following]
        elif argument == "--site":
            common += [argument, *itertools.islice(following, 1)]
        elif argument.startswith("--site=") or argument == "--debug":
            common.append(argument)
        else:
            rest.append(argument)
    return common + sbatch_last(rest)


def sbatch_last(arguments: list[str]) -> list[str]:
    """Return the arguments of `check` with our options before `--`, and after it what sbatch would get.

    >>> sbatch_last(["check", "-t", "5", "job.sh", "--json"])
    ['check', '--json', '--', '-t', '5', 'job.sh']
    """
    if arguments[:1] != ["check"]:
        return arguments
    own, others = own_options_first(arguments[1:], flags=_FLAGS_OF_CHECK, with_value=_VALUES_OF_CHECK)
    return ["check", *own, "--", *others]


def is_for_service(arguments: list[str]) -> bool:
    """Whether a command is one for users, no site is named or lies here, and there is a service to ask."""
    command = " ".join(arguments[: 2 if arguments[:1] in (["jobs"], ["tokens"]) else 1])
    names_site = any(word.partition("=")[0] == "--site" for word in arguments) or os.environ.get("STORMPETREL_SITE")
    if command not in _FOR_USERS or names_site or Path(_SITE_FILE).is_file():
        return False
    try:
        return bool(find_service(os.environ))
    except ClientError:
        return False


def search_no_garbage() -> None:
    """Let Python not look for garbage: not until a command that takes longer is loaded, and not once more at the end.

    Imports and loaded models are hundreds of thousands of small objects that stay. Looking through them again and again, and
    twice more at the end of the process, was a third of the processor time of a cold `check` (docs/log.md).
    """
    gc.disable()
    atexit.unregister(_end_without_search)
    atexit.register(_end_without_search)


def _end_without_search() -> None:
    """Spare a brief command the last searches; the objects of others may have something to do when they go."""
    if not gc.isenabled():
        gc.freeze()


def main() -> None:
    """Run the command line: one line and exit code 1 for an error, 2 for wrong usage, 130 for Ctrl-C; never a traceback."""
    debug = "--debug" in sys.argv
    os.umask(_FOR_US_ALONE)
    search_no_garbage()
    wait_politely()
    import_lean()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our dots and bars is no reason to fail
    try:
        sys.exit(ask_service(sys.argv[1:]) if is_for_service(sys.argv[1:]) else _run(common_first(sys.argv[1:])))
    except StormpetrelError as error:
        if debug:
            raise
        _end(str(error), error.exit_code, error)
    except BrokenPipeError:
        _close_quietly()  # the reader of a pipe went away; nobody would read a message
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        _end(_STOPPED_WRITING if "synth" in sys.argv[1:4] else _STOPPED, _INTERRUPTED)
    except SystemExit:
        raise
    except BaseException as error:  # also the panics of compiled libraries, which are no Exceptions
        if debug:
            raise
        message = (str(error).strip().splitlines() or [""])[0][:300]
        _end(
            f"something unexpected happened: {type(error).__name__}: {message} What was committed is kept; --debug shows more.",
            1,
            error,
        )


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        if not hasattr(error, "show"):
            raise
        error.show()  # wrong usage: its message names the option
        return int(getattr(error, "exit_code", 2))
    if code == _INTERRUPTED:  # typer has caught it and prints nothing
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: libraries turn it into errors of their own when it comes in the middle of something."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt) or "KeyboardInterrupt" in f"{type(error).__name__} {error}":
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _end(line: str, code: int, error: BaseException | None = None) -> NoReturn:
    if _was_interrupted(error):
        line, code = _STOPPED, _INTERRUPTED
    typer.echo(f"stormpetrel: {line}", err=True)
    _close_quietly()
    sys.exit(code)


def _close_quietly() -> None:
    """Flush standard output; where nobody reads it any more, drop what is left."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
