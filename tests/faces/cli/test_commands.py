"""The table of commands against the commands: every entry leads to a function, and its help line is that function's own."""

from __future__ import annotations

import gc
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer.main
from typer.testing import CliRunner

from stormpetrel.faces.cli.commands import COMMANDS
from stormpetrel.faces.cli.lazy_group import CommandEntry, GroupEntry
from stormpetrel.faces.cli.main import app

# Not plotly: it loads its parts when they are used, and importing it costs 30 ms.
HEAVY = {"sklearn", "xgboost", "torch", "dash", "matplotlib", "onnxruntime", "pandas"}


def entries() -> Iterator[tuple[str, CommandEntry]]:
    for name, entry in COMMANDS.items():
        if isinstance(entry, GroupEntry):
            yield from ((f"{name} {child}", below) for child, below in entry.commands.items())
        else:
            yield name, entry


def modules_after(*arguments: str) -> set[str]:
    """The modules that a command line has imported when it ends."""
    code = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr)); "
    code += "from stormpetrel.faces.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_every_entry_leads_to_a_function_whose_docstring_begins_with_the_help_line():
    assert len(list(entries())) > 60
    wrong = [path for path, entry in entries() if (inspect.getdoc(entry.load()) or "").splitlines()[:1] != [entry.help]]
    assert wrong == []


def test_every_command_and_group_shows_its_help():
    failed = []
    for path in [*COMMANDS, *(path for path, _ in entries())]:
        done = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "200"})
        if done.exit_code or f"stormpetrel {path}" not in done.output:
            failed.append((path, done.output))
    assert failed == []


@pytest.mark.parametrize("arguments", [("--help",), ("jobs", "--help"), ("alarms",), ("jobs", "trian")])
def test_a_list_of_commands_imports_no_command(arguments):
    loaded = modules_after(*arguments)
    assert "typer" in loaded
    assert not loaded & {"polars", "numpy", "rich.console", "stormpetrel.faces.cli.jobs", "stormpetrel.faces.cli.output"}


def test_a_command_imports_its_own_module_and_none_of_another_group():
    loaded = modules_after("tokens", "list", "--help")
    assert "stormpetrel.faces.cli.tokens" in loaded
    assert not loaded & {"stormpetrel.faces.cli.jobs", "stormpetrel.faces.cli.traces", "stormpetrel.faces.cli.synth"}


def test_no_command_imports_a_heavy_library_before_it_needs_it():
    modules = sorted({f"stormpetrel.faces.cli.{entry.target.partition(':')[0]}" for _, entry in entries()})
    code = f"import sys; from importlib import import_module; [import_module(name) for name in {modules}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not HEAVY & set(loaded)


def test_a_brief_command_searches_no_garbage_and_any_other_does():
    def searches(*arguments: str) -> str:
        code = "import atexit, gc, sys; from stormpetrel.faces.cli.main import main; "
        code += "atexit.register(lambda: print(gc.isenabled(), file=sys.stderr)); main()"
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        return done.stderr.splitlines()[-1]

    assert searches("check", "--help") == "False"
    assert searches("serve", "--help") == "True"
    assert gc.isenabled()  # loading an entry in this process has changed nothing
    assert {path for path, entry in entries() if entry.brief} == {"check", "why", "jobs show"}


def test_a_typing_error_in_a_group_or_a_command_is_answered_with_the_nearest():
    for arguments, nearest in ((["job"], "jobs"), (["jobs", "trian"], "train")):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert "No such command" in done.output and f"Did you mean '{nearest}'" in done.output


def test_a_group_without_a_command_shows_its_help_and_is_wrong_usage():
    done = CliRunner().invoke(app, ["tokens"])
    assert done.exit_code == 2 and "revoke" in done.output


def test_shell_completion_offers_commands_with_their_help_lines_and_options():
    root = typer.main.get_command(app)
    with root.make_context("stormpetrel", ["jobs"], resilient_parsing=True) as context:
        offered = {item.value: item.help for item in root.shell_complete(context, "")}
        assert set(offered) >= set(COMMANDS) and offered["ingest"] == COMMANDS["ingest"].help
        assert {item.value for item in root.shell_complete(context, "--")} >= {"--site", "--debug"}
        jobs = root.get_command(context, "jobs")
        with jobs.make_context("jobs", [], parent=context, resilient_parsing=True) as inner:
            assert [item.value for item in jobs.shell_complete(inner, "pr")] == ["predict", "profiles"]
