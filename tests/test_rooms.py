"""The house rules that a reader relies on: rooms, names, sizes, nothing dangerous, a quick `--help`."""

from __future__ import annotations

import ast
import json
import re
import resource
import subprocess
import sys
from collections import Counter
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
    assert {"records/", "sources/", "store/", "faces/", "config/", "errors.py"} <= set(rooms())
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


# Used by tests alone, and meant to be: noise that can be repeated, and the list that the command line's own is compared with.
_FOR_TESTS = {"SeededNoise", "ALONGSIDE"}
_FOR_OTHERS = {"load_ipython_extension"}  # called by its name, by IPython
_NOT_CHECKED = ("ingest", "sources")  # rooms that still have such names
_REGISTERED = ("command", "callback", "router", ".get", ".post", ".put", ".delete", "validator", "fixture")


def unused_names(modules: dict[str, str], others: list[str]) -> list[str]:
    """Public names at the top of a module that no module uses: not by import, attribute, string, or further down in its own."""
    trees = {name: ast.parse(text) for name, text in modules.items()}
    imported: set[tuple[str, str]] = set()
    mentioned: set[str] = set()
    for tree in [*trees.values(), *map(ast.parse, others)]:
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(module), names=names):
                    imported |= {(module, alias.name) for alias in names}
                case ast.Attribute(attr=name):
                    mentioned.add(name)
                case ast.Constant(value=str(text)) if len(text) < 60:
                    mentioned.add(text.rpartition(":")[2])  # also "jobs.check:check", as the table of commands names functions
    unused = []
    for module, tree in trees.items():
        loaded = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for node in tree.body:
            match node:
                case ast.FunctionDef(name=name, decorator_list=decorators) | ast.ClassDef(name=name, decorator_list=decorators):
                    if any(word in ast.unparse(decorator) for decorator in decorators for word in _REGISTERED):
                        continue
                    own = sum(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    own = 0
                case _:
                    continue
            is_used = loaded.count(name) > own or (module, name) in imported or name in mentioned or name.startswith("_")
            if not is_used and name not in _FOR_TESTS | _FOR_OTHERS:
                unused.append(f"{module}.{name}")
    return unused


def test_every_public_name_has_a_user_outside_the_tests():
    modules = {
        ".".join(("stormpetrel", *file.with_suffix("").parts)).removesuffix(".__init__"): text for file, text in SOURCES.items()
    }
    others = [path.read_text(encoding="utf-8") for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    unused = [name for name in unused_names(modules, others) if name.split(".")[1] not in _NOT_CHECKED]
    assert unused == []


def test_the_check_for_unused_names_finds_one_and_leaves_the_used_alone():
    modules = {"a": "USED = 1\nDEAD = 2\ndef again(): again()\n_private = 3", "b": "from a import USED\nprint(USED)"}
    assert unused_names(modules, []) == ["a.DEAD", "a.again"]


MAX_FILES = 30
# Words that need a key (docs: how the code reads): a name says what is in it, not that it was told, asked, given, made or said.
_REFUSED_WORDS = {
    "told", "asked", "given", "made", "said", "desk", "doorkeeper", "beside", "looked", "looks", "marks", "words",
}  # fmt: skip
_REFUSED_LOCALS = {"told", "asked", "given", "made", "said", "found", "ones", "beside"}
# Rooms that are still to be renamed; a room leaves the list when it is clean.
_NOT_YET_CLEAN: set[str] = set()
_NOT_YET_SMALL: set[str] = set()  # rooms with more files than MAX_FILES
# Contract: what other programs read (fields of answers and state records), and what a library calls.
_KEPT_NAMES = {
    "asked", "asked_tau", "connection_made", "given_up", "held_back_words", "messages_given_up", "waiting_words", "where_asked",
    "words", "_words", "_Words", "WORDS", "_WORDS", "_SUMMARY_WORDS",
}  # fmt: skip


def _parts(name: str) -> set[str]:
    """`AskedPoint` -> {"asked", "point"}; `_told_when` -> {"told", "when"}."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def _is_clean(file: Path) -> bool:
    return not any(file.is_relative_to(room) for room in _NOT_YET_CLEAN)


def names_that_need_a_key(source: str) -> Iterator[str]:
    """Classes, functions, constants and attributes with a refused word in them; parameters and locals that are such a word."""
    tree = ast.parse(source)
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name):
                names.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append(name)
                inside = (part for part in ast.walk(node) if isinstance(part, ast.arg | ast.Name))
                bound = (part.arg if isinstance(part, ast.arg) else part.id for part in inside)
                yield from (name for name in bound if name in _REFUSED_LOCALS)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                names.append(name)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    yield from (name for name in names if name not in _KEPT_NAMES and _parts(name) & _REFUSED_WORDS)


def test_names_say_what_is_in_them():
    names = {str(file): sorted(set(names_that_need_a_key(text))) for file, text in SOURCES.items() if _is_clean(file)}
    assert {file: several for file, several in names.items() if several} == {}
    assert [str(file) for file in SOURCES if _is_clean(file) and file.stem.endswith("words")] == []


@pytest.mark.parametrize(
    "source",
    ["class AskedPoint: ...", "class LoginDesk: ...", "def _told_when(): ...", "def f(told): ...", "made = 1", "X_WORDS = {}"],
)
def test_the_check_of_names_finds_what_needs_a_key(source):
    assert list(names_that_need_a_key(source))


def test_rooms_that_are_to_be_renamed_are_there():
    assert [room for room in sorted(_NOT_YET_CLEAN | _NOT_YET_SMALL) if not (PACKAGE / room).is_dir()] == []


def test_no_room_has_more_files_than_one_remembers():
    files = Counter(str(file.parent) for file in SOURCES if file.stem != "__init__")
    assert {room: count for room, count in files.items() if count > MAX_FILES and room not in _NOT_YET_SMALL} == {}


# Between our own processes (docs/adr/0022, 0031), and never from a file: what may speak pickle through another's door.
_OWN_PROCESSES = {"engine/local_pool.py", "engine/on_ray.py"}
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


def speaks_pickle_through_another(source: str) -> bool:
    """Whether it takes multiprocessing's or Ray's own pickler: `ForkingPickler`, `ray.cloudpickle`."""
    tree = ast.parse(source)
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    return bool({part for name in names for part in name.split(".")} & (_PICKLES | {"ForkingPickler", "ray"}))


def test_only_two_files_speak_pickle():
    assert {str(file) for file, text in SOURCES.items() if speaks_pickle_through_another(text)} == _OWN_PROCESSES


@pytest.mark.parametrize(
    "source", ["import ray", "ray.cloudpickle.dumps(1)", "from multiprocessing.reduction import ForkingPickler"]
)
def test_the_check_for_another_s_pickler_finds_it(source):
    assert speaks_pickle_through_another(source)


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
