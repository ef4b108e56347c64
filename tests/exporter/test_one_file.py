import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import stormpetrel.exporter
from stormpetrel.exporter.one_file import MODULES, one_file, write_one_file
from stormpetrel.exporter.proc_stat import ExporterError
from tests.exporter.made import SLURM, FakeNode
from tests.parts import find_program

SOURCES = sorted(Path(stormpetrel.exporter.__file__).parent.glob("*.py"))
OTHER_PYTHONS = [  # as many as there are; the oldest that is promised, and a new one
    path for version in ("3.9", "3.13") if (path := find_program(f"{Path.home()}/.pyenv/versions/{version}*/bin/python"))
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "stormpetrel-exporter.pyz"
    write_one_file(path)
    return path


def test_every_module_is_in_it():
    assert set(MODULES) == {path.stem for path in SOURCES}


def test_the_same_sources_give_the_same_bytes(program):
    assert program.read_bytes() == one_file()


@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS])
def test_it_runs_without_our_package_and_without_a_word_of_warning(program, tmp_path, python):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0")
    words = [python, "-S", "-I", "-W", "error", str(program), "--root", str(tmp_path)]
    checked = subprocess.run([*words, "--check", "--json"], capture_output=True, text=True, timeout=60, cwd="/")
    assert checked.returncode == 0 and checked.stderr == ""
    assert json.loads(checked.stdout)["threads told apart"]["there"]
    shown = subprocess.run([*words, "--once"], capture_output=True, text=True, timeout=60, cwd="/")
    assert 'stormpetrel_thread_job_info{cpu="0",jobid="1"} 1' in shown.stdout


def test_it_writes_itself(program, tmp_path):
    subprocess.run([program, "--write-file", str(tmp_path / "again.pyz")], check=True, capture_output=True, timeout=60)
    assert (tmp_path / "again.pyz").read_bytes() == program.read_bytes()


def test_it_is_a_program(program):
    assert program.stat().st_mode & 0o777 == 0o755
    assert program.read_bytes().startswith(b"#!/usr/bin/env python3\n")


def test_a_place_that_cannot_be_written_is_one_clear_sentence(tmp_path):
    with pytest.raises(ExporterError, match="cannot be written: no such file"):
        write_one_file(tmp_path / "nowhere" / "a.pyz")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExporterError, match="cannot be written"):
        write_one_file(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# --- Python 3.9 ---------------------------------------------------------------------------------------------------------------


def newer_than_3_9(source):
    """What Python 3.9 would not understand at run time; annotations are only text there."""
    tree = ast.parse(source, feature_version=(3, 9))
    annotations = {id(part) for node in ast.walk(tree) for part in _annotations(node)}
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _is_type(node.left, node.right):
            yield "X | Y"
        if isinstance(node, ast.keyword) and node.arg in ("strict", "slots", "kw_only"):
            yield node.arg
        if isinstance(node, ast.Match):
            yield "match"
    if not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body) and len(tree.body) > 1:
        yield "no annotations"


def _annotations(node):
    for field in ("annotation", "returns"):
        noted = getattr(node, field, None)
        if noted is not None:
            yield from ast.walk(noted)


def _is_type(*sides):
    names = ("int", "str", "float", "bytes")
    return any(isinstance(side, ast.Constant) and side.value is None for side in sides) or any(
        isinstance(side, ast.Name) and side.id in names for side in sides
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_source_is_that_of_python_3_9(path):
    assert list(newer_than_3_9(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "A = int | None",
        "import a\nzip(b, c, strict=True)",
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass A: pass",
    ],
)
def test_the_check_for_newer_pythons_finds_them(source):
    assert list(newer_than_3_9(source))


def test_the_check_for_newer_pythons_finds_their_syntax():
    with pytest.raises(SyntaxError):
        list(newer_than_3_9("match a:\n    case 1: pass"))
