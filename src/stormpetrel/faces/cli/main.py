"""`stormpetrel`: nouns, then verbs. Commands are thin; what they do lives in the rooms.

Nothing heavy is imported here: `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from stormpetrel import __version__
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.cli import (
    alarms,
    answers,
    campaign,
    demo,
    doctor,
    events,
    exporter,
    ingest,
    ingest_events,
    ingest_traces,
    init,
    jobs,
    models,
    nightly,
    notify,
    report,
    serve,
    sql,
    store,
    synth,
    tokens,
    traces,
    watch,
)
from stormpetrel.faces.cli.context import Context
from stormpetrel.learn.threads import wait_politely
from stormpetrel.learn.xgboost_alone import leave_sklearn_out

app = typer.Typer(
    name="stormpetrel",
    help="Early warning for compute clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init")(init.init)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(ingest.app, name="ingest")
ingest.app.command("traces")(ingest_traces.ingest_traces)
ingest.app.command("events")(ingest_events.ingest_events)
app.add_typer(jobs.app, name="jobs")
app.add_typer(traces.app, name="traces")
app.add_typer(events.app, name="events")
app.add_typer(synth.app, name="synth")
app.add_typer(alarms.app, name="alarms")
app.add_typer(notify.app, name="notify")
app.command("check")(answers.check)
app.command("why")(answers.why)
app.command("watch")(watch.watch)
app.command("serve")(serve.serve)
app.add_typer(models.app, name="models")
app.command("nightly")(nightly.nightly)
app.add_typer(tokens.app, name="tokens")
app.command("exporter")(exporter.exporter)
app.add_typer(campaign.app, name="campaign")
app.command("report")(report.report)
app.add_typer(store.app, name="store")
app.command("sql")(sql.sql)


def _print_version(wanted: bool) -> None:
    if wanted:
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


_INTERRUPTED = 130
_FOR_US_ALONE = 0o077  # umask: what any library writes for us, tables too, holds names
_STOPPED = "stopped; what was committed is kept, run the same command again to go on."
_STOPPED_WRITING = "stopped; nothing was written."  # synth writes whole files and folders or none


def common_first(words: list[str]) -> list[str]:
    """The words of a command line with --site and --debug before the command, wherever they stood.

    >>> common_first(["ingest", "jobs", "a.txt", "--site", "mysite"])
    ['--site', 'mysite', 'ingest', 'jobs', 'a.txt']
    """
    common: list[str] = []
    rest: list[str] = []
    following = iter(words)
    for word in following:
        if word == "--":
            rest += [word, *following]
        elif word == "--site":
            common += [word, *itertools.islice(following, 1)]
        elif word.startswith("--site=") or word == "--debug":
            common.append(word)
        else:
            rest.append(word)
    return common + rest


def main() -> None:
    """Run the command line: one line and exit code 1 for an error, 2 for wrong usage, 130 for Ctrl-C; never a traceback."""
    debug = "--debug" in sys.argv
    os.umask(_FOR_US_ALONE)
    wait_politely()
    leave_sklearn_out()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our dots and bars is no reason to fail
    try:
        sys.exit(_run(common_first(sys.argv[1:])))
    except StormpetrelError as error:
        if debug:
            raise
        _end(str(error), error.exit_code, error)
    except BrokenPipeError:
        _close_quietly()  # the reader of a pipe went away; there is nobody to tell
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        _end(_STOPPED_WRITING if "synth" in sys.argv[1:4] else _STOPPED, _INTERRUPTED)
    except SystemExit:
        raise
    except BaseException as error:  # also the panics of compiled libraries, which are no Exceptions
        if debug:
            raise
        said = (str(error).strip().splitlines() or [""])[0][:300]
        _end(
            f"something unexpected happened: {type(error).__name__}: {said} What was committed is kept; --debug shows more.",
            1,
            error,
        )


def _run(words: list[str]) -> int:
    try:
        code = app(words, standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        if not hasattr(error, "show"):
            raise
        error.show()  # wrong usage: it knows its own words
        return int(getattr(error, "exit_code", 2))
    if code == _INTERRUPTED:  # typer has caught it and says nothing
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
    """What is still waiting to be printed may not be printable any more."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
