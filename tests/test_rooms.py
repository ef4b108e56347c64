"""The house rules that a reader relies on: rooms, names, sizes, nothing dangerous, a quick `--help`."""

from __future__ import annotations

import ast
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "stormpetrel"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
SOURCES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
MAX_LINES = 500
MAX_HELP_CPU_S = 0.5
HEAVY = ("polars", "deltalake", "sqlalchemy", "pydantic", "numpy")
_HELP = "import sys; sys.argv = ['stormpetrel', '--help']; from stormpetrel.faces.cli.main import main; main()"


def rooms() -> list[str]:
    """The packages (`records/`) and modules (`config.py`) directly under src/stormpetrel."""
    folders = [f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    return sorted([*folders, *(path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py")])


def test_there_are_rooms_and_files_to_check():
    assert {"records/", "sources/", "store/", "faces/", "config.py", "errors.py"} <= set(rooms())
    assert len(SOURCES) > 30


def test_every_room_is_named_in_the_architecture():
    named = re.findall(r"`([^`\s]+)`", ARCHITECTURE.read_text(encoding="utf-8"))
    assert set(rooms()) - {name.removeprefix("src/stormpetrel/") for name in named} == set()


def test_every_file_is_named_after_what_is_in_it():
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [file for file in SOURCES if vague & {file.stem, *file.parts}] == []


def test_every_file_can_be_read_in_one_sitting():
    lines = {str(file): len(text.splitlines()) for file, text in SOURCES.items()}
    assert {file: count for file, count in lines.items() if count > MAX_LINES} == {}


_PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def dangers_in(source: str) -> Iterator[str]:
    """Ways by which data could become code, and shells."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] in _PICKLES)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module for _ in names if module.split(".")[0] in _PICKLES)
                yield from (f"os.{alias.name}" for alias in names if module == "os" and alias.name in ("system", "popen"))
            case ast.Call(func=ast.Name(id=("eval" | "exec" | "__import__") as name)):
                yield name
            case ast.Attribute(value=ast.Name(id="os"), attr=("system" | "popen") as name):
                yield f"os.{name}"
            case ast.keyword(arg="shell", value=value) if not (isinstance(value, ast.Constant) and value.value is False):
                yield "shell="


def test_nothing_in_any_file_turns_data_into_code():
    dangers = {str(file): list(dangers_in(text)) for file, text in SOURCES.items()}
    assert {file: names for file, names in dangers.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.externals",
        "eval('1')",
        "exec(text)",
        "import os\nos.system('ls')",
        "from os import popen",
        "import subprocess\nsubprocess.run('ls', shell=True)",
    ],
)
def test_the_check_for_dangers_finds_them(source):
    assert list(dangers_in(source))


def test_the_check_for_dangers_leaves_the_rest_alone():
    assert list(dangers_in("import subprocess\nsubprocess.run(['ls'], shell=False)\nframe.eval(1)\npattern.exec")) == []


def _cpu_s(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def test_help_answers_at_once():
    assert min(_cpu_s([sys.executable, "-c", _HELP]) for _ in range(3)) < MAX_HELP_CPU_S


def _modules_after(code: str) -> set[str]:
    script = f"import atexit, json, sys\natexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n{code}"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_imports_nothing_heavy():
    loaded = _modules_after(_HELP)
    assert "typer" in loaded
    assert not loaded & set(HEAVY)


def test_the_check_of_imports_finds_a_heavy_one():
    assert "numpy" in _modules_after("import numpy")
