"""Completion of `stormpetrel` in bash, fish and zsh: commands, ids of own jobs, files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from stormpetrel_client.command import parse_words

from tests.parts import require
from tests.parts.terminal import terminal

FOLDER = Path(__file__).parents[2] / "integrations/completion"
CASES = [
    (("ch",), "check"), (("t",), "tokens top"), (("why", "1"), "12 17_3"), (("jobs", "show", "2"), "29"),
    (("jobs", ""), "list show"), (("alarms", ""), "list show"),
    (("tokens", "r"), "revoke"), (("digest", "o"), "on off"), (("check", "jo"), "job.sh"),
    (("waste", ""), ""),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a job script, and a program that knows three jobs."""
    (tmp_path / "job.sh").touch()
    program = tmp_path / "bin/stormpetrel"
    program.parent.mkdir()
    asked = "jobs list --ids --limit 50 --timeout 1"
    program.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] && printf "12\\n17_3\\n29\\n"\n')
    program.chmod(0o755)
    return tmp_path


def run(folder: Path, *words: str) -> list[str]:
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.split()


@pytest.mark.parametrize(("words", "completed"), CASES)
def test_bash_completes(folder: Path, words: tuple[str, ...], completed: str) -> None:
    script = 'source "$1"; shift; COMP_WORDS=(stormpetrel "$@"); COMP_CWORD=$#; _stormpetrel; echo "${COMPREPLY[*]}"'
    assert run(folder, "bash", "--norc", "-c", script, "bash", str(FOLDER / "stormpetrel.bash"), *words) == completed.split()


@pytest.mark.parametrize(("words", "completed"), CASES)
def test_fish_completes(folder: Path, words: tuple[str, ...], completed: str) -> None:
    require("fish", install="fish")
    script = "source $argv[1]; complete -C (string join ' ' stormpetrel $argv[2..-1])"
    shown = run(folder, "fish", "--no-config", "-c", script, str(FOLDER / "stormpetrel.fish"), *words)
    assert sorted(shown) == sorted(completed.split())


def test_zsh_completes_on_a_terminal(folder: Path) -> None:
    require("zsh", install="zsh")
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PS1": "ready> "}
    with terminal(folder, ["zsh", "-f"], env=env) as shown:
        shown.keys(f"fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -D; PS1='ready> '", "Enter")
        shown.wait_for("\nready>")
        for begun, whole in (
            ("was", "waste"),
            ("jobs show 2", "jobs show 29"),
            ("tokens r", "tokens revoke"),
            ("check jo", "check job.sh"),
        ):
            shown.keys("C-u", f"stormpetrel {begun}", "Tab")
            shown.wait_for(f"ready> stormpetrel {whole}")


def test_every_command_of_users_is_completed_in_every_shell() -> None:
    commands = "alarms check digest jobs me tokens top waste why".split()
    for name in ("stormpetrel.bash", "_stormpetrel", "stormpetrel.fish"):
        assert re.search(rf"\b{' '.join(commands)}\b", (FOLDER / name).read_text()), name
    for command in commands:
        with pytest.raises(SystemExit) as end:
            parse_words([command, "--help"])
        assert end.value.code == 0
