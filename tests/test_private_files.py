"""Files of ours that others must neither read nor redirect: planted names and links, modes, and what is left behind."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest

from stormpetrel import private_files
from stormpetrel.private_files import create_private, tighten, write_private, writing_private

SOURCES = sorted((Path(__file__).parent.parent / "src" / "stormpetrel").rglob("*.py"))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_file_is_for_us_alone_before_its_first_byte(tmp_path):
    with writing_private(tmp_path / "names") as file:
        (fresh,) = tmp_path.iterdir()
        assert (mode_of(fresh), fresh.stat().st_size) == (0o600, 0)
        file.write(b"ada")
    assert mode_of(tmp_path / "names") == 0o600


@pytest.mark.usefixtures("open_umask")
def test_a_program_may_be_run_by_everybody_whatever_the_umask(tmp_path):
    os.umask(0o077)
    write_private(tmp_path / "sacct", "#!/bin/sh\n", mode=0o755)
    assert mode_of(tmp_path / "sacct") == 0o755


def test_a_link_at_the_place_is_replaced_and_what_it_points_to_is_left_alone(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "report.html").symlink_to("victim")
    write_private(tmp_path / "report.html", "names")
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "report.html").is_symlink() and (tmp_path / "report.html").read_text() == "names"


def test_a_file_that_others_can_read_is_replaced_by_one_that_they_cannot(tmp_path):
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "report.html").chmod(0o666)
    with (tmp_path / "report.html").open() as held_open_by_another:
        write_private(tmp_path / "report.html", "names")
        assert held_open_by_another.read() == "old"
    assert mode_of(tmp_path / "report.html") == 0o600


def test_the_name_in_between_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(3):
        with writing_private(tmp_path / "a"):
            names |= {path.name for path in tmp_path.iterdir() if path.name != "a"}
    assert len(names) == 3 and all(len(name) > 16 for name in names)


def test_a_name_in_between_that_was_planted_all_the_same_is_not_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(private_files.secrets, "token_hex", lambda _size: "guessed")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".a.guessed.partial").symlink_to("victim")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "a", "names")
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "a").exists()


@pytest.mark.parametrize("hard_links", [True, False], ids=["hard links", "no hard links"])
def test_what_is_there_is_kept_where_it_must_not_be_overwritten(tmp_path, monkeypatch, hard_links):
    if not hard_links:

        def link(*_, **__):
            raise PermissionError(1, "no hard links here")

        monkeypatch.setattr(private_files.os, "link", link)
    write_private(tmp_path / "a", "first", overwrite=False)
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("a", "dangling"):
        with pytest.raises(FileExistsError):
            write_private(tmp_path / name, "second", overwrite=False)
    assert (tmp_path / "a").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "dangling"]


def test_nothing_is_left_behind_where_writing_fails(tmp_path):
    with pytest.raises(TypeError), writing_private(tmp_path / "a") as file:
        file.writelines([b"half", None])
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    name = "ä" * 127
    write_private(tmp_path / name, "x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_device_is_written_to_and_stays_a_device(capfd):
    write_private(Path("/dev/null"), "x")
    write_private(Path("/dev/stdout"), "names")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode) and capfd.readouterr().out == "names"


def test_a_file_is_made_only_where_nothing_is(tmp_path):
    create_private(tmp_path / "key", "secret")
    assert mode_of(tmp_path / "key") == 0o600
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("key", "link"):
        with pytest.raises(FileExistsError):
            create_private(tmp_path / name, "other")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_others_could_read_is_tightened_and_a_link_is_not_followed(tmp_path):
    for name in ("state.db", "other"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o664)
    (tmp_path / "link").symlink_to("other")
    for name in ("state.db", "link", "missing"):
        tighten(tmp_path / name)
    assert (mode_of(tmp_path / "state.db"), mode_of(tmp_path / "other")) == (0o600, 0o664)


# Files that are written in place: an executable or an event log of a simulated cluster, kernel files, folders made by mkdtemp.
_IN_PLACE = {
    "simulate/fakes/sbatch.py", "rehearse/placing.py", "rehearse/placed.py", "rehearse/recording.py",
    "rehearse/processes.py", "rehearse/workloads/good_io.py", "store/read_only.py", "store/upkeep/backup_archive.py",
    "faces/cli/demo/command.py", "sources/htcondor/reference_reader.py", "sources/slurm/live.py",
}  # fmt: skip


def writes_in(source: str) -> list[int]:
    """Lines that write a file by its name: write_text, write_bytes, open for writing."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="write_text" | "write_bytes")):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr="open") | ast.Name(id="open"), args=[*_, ast.Constant(value=str(mode))]):
                lines += [node.lineno] if len(mode) <= 3 and set(mode) & set("wax+") else []
    return sorted(lines)


def test_files_are_written_through_one_door():
    places = {str(path).partition("src/stormpetrel/")[2]: writes_in(path.read_text(encoding="utf-8")) for path in SOURCES}
    around = {name: lines for name, lines in places.items() if lines and name not in _IN_PLACE | {"private_files.py"}}
    assert around == {}, "use stormpetrel.private_files"


def test_the_check_of_the_door_finds_who_goes_around_it():
    assert writes_in("path.write_text('x')\nwith open(p, 'wb') as f: pass\npath.open('a')\npath.open('rb')") == [1, 2, 3]
