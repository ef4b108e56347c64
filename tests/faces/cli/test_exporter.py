"""`stormpetrel exporter`, as a command."""

import inspect
import json

import pytest
import typer
from typer.testing import CliRunner

from stormpetrel.exporter import command
from stormpetrel.faces.cli.exporter import exporter
from tests.exporter.made import SLURM, FakeNode

app = typer.Typer(add_completion=False)
app.command("exporter")(exporter)


def run(*words):
    return CliRunner().invoke(app, words)


@pytest.fixture
def node(tmp_path):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0")
    return node


def test_the_check_is_printed(node):
    answer = run("--root", str(node.root), "--check")
    assert answer.exit_code == 0 and "threads told apart" in answer.stdout
    assert json.loads(run("--root", str(node.root), "--check", "--json").stdout)["jobs"]["there"]


def test_one_sample_is_printed(node):
    node.job("batch/x", cpus="2")
    answer = run("--root", str(node.root), "--once", "--cgroup", "batch/*", "--no-usernames")
    assert 'stormpetrel_thread_job_info{cpu="2",jobid="x"} 1' in answer.stdout


def test_the_one_file_is_written(tmp_path):
    assert run("--write-file", str(tmp_path / "a.pyz")).exit_code == 0
    assert (tmp_path / "a.pyz").stat().st_size > 10_000


@pytest.mark.parametrize("words", [("--address", "here"), ("--root", "/nowhere", "--once")])
def test_what_cannot_be_done_is_one_sentence_and_exit_code_1(node, words):
    answer = run("--root", str(node.root), *words)
    assert answer.exit_code == 1
    assert len(answer.stderr.splitlines()) == 1 and answer.stderr.startswith("stormpetrel: ")


def test_both_command_lines_have_the_same_options_and_defaults():
    theirs = {word for action in command._parser()._actions for word in action.option_strings} - {"-h", "--help", "--version"}
    ours = {word for option in typer.main.get_command(app).params for word in option.opts}
    assert theirs == ours
    defaults = {name: given.default for name, given in inspect.signature(exporter).parameters.items()}
    assert defaults["address"] == command.ADDRESS
