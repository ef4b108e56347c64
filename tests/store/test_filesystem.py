"""Whose a folder is: a site that just lies there is obeyed only where nobody else can write it."""

from __future__ import annotations

import os

import pytest

from stormpetrel.errors import SettingsError
from stormpetrel.store import filesystem
from stormpetrel.store.filesystem import (
    owner_other_than_us,
    refuse_folder_of_another,
    refuse_writable_by_everybody,
    who_else_can_write,
)
from stormpetrel.store.site import create_site

FILE = "site.toml"


@pytest.fixture
def folder(tmp_path):
    """A folder with settings, reachable by everybody."""
    made = tmp_path / "outer" / "site"
    made.mkdir(parents=True)
    (made / FILE).write_text("")
    for path, mode in ((tmp_path, 0o755), (made.parent, 0o755), (made, 0o755), (made / FILE, 0o644)):
        path.chmod(mode)
    closed = [parent for parent in tmp_path.parents if not parent.stat().st_mode & 0o001]  # pytest's own
    for parent in closed:
        parent.chmod(0o755)
    yield made
    for parent in closed:
        parent.chmod(0o700)


@pytest.fixture
def as_another(monkeypatch):
    """Let the files of this test belong to somebody who is neither us nor root."""
    monkeypatch.setattr(filesystem.os, "geteuid", lambda: os.getuid() + 4321)
    monkeypatch.setattr(filesystem, "_ROOT", -1)


def test_a_site_of_ours_that_others_can_only_read_is_ours(folder):
    assert who_else_can_write(folder, FILE) == ""


@pytest.mark.parametrize(
    ("of", "mode", "who"),
    [
        ("site.toml", 0o664, "a group"),
        ("site.toml", 0o646, "everybody"),
        ("site", 0o775, "a group"),
        ("site", 0o757, "everybody"),
        ("site", 0o1777, "everybody"),
        ("outer", 0o777, "everybody"),
        ("outer", 0o775, "a group"),
    ],
)
def test_who_can_write_the_settings_their_folder_or_one_above_is_told(folder, of, mode, who):
    path = {"site.toml": folder / FILE, "site": folder, "outer": folder.parent}[of]
    path.chmod(mode)
    assert who_else_can_write(folder, FILE) == f"{who} can write to {path}"


def test_in_a_folder_above_with_the_sticky_bit_nobody_can_move_ours(folder):
    folder.parent.chmod(0o1777)
    assert who_else_can_write(folder, FILE) == ""


@pytest.mark.parametrize("closed", ["site", "outer"])
def test_bits_that_nobody_can_get_at_do_not_count(folder, closed):
    (folder / FILE).chmod(0o666)
    {"site": folder, "outer": folder.parent}[closed].chmod(0o700)
    assert who_else_can_write(folder, FILE) == ""


@pytest.mark.usefixtures("as_another")
def test_a_folder_of_somebody_else_is_told_with_its_owner(folder):
    assert "belongs to" in who_else_can_write(folder, FILE)
    assert owner_other_than_us(folder, FILE) == filesystem.user_name(os.getuid())


def test_a_link_counts_as_what_it_points_to(folder, tmp_path):
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / FILE).write_text("")
    (tmp_path / "loose").chmod(0o777)
    (folder / FILE).unlink()
    (folder / FILE).symlink_to(tmp_path / "loose" / FILE)
    assert who_else_can_write(folder, FILE) == f"everybody can write to {tmp_path / 'loose'}"


def test_a_site_that_everybody_can_write_is_refused_even_if_it_is_named(folder):
    refuse_writable_by_everybody(folder, FILE)
    folder.chmod(0o777)
    with pytest.raises(SettingsError, match="chmod o-w"):
        refuse_writable_by_everybody(folder, FILE)


@pytest.mark.usefixtures("as_another")
def test_no_site_is_made_in_an_empty_folder_of_somebody_else(tmp_path):
    (tmp_path / "planted").mkdir()
    with pytest.raises(SettingsError, match="belongs to"):
        create_site(tmp_path / "planted")
    with pytest.raises(SettingsError, match="belongs to"):
        refuse_folder_of_another(tmp_path / "planted")
    assert list((tmp_path / "planted").iterdir()) == []


def test_a_number_without_a_name_is_told_as_a_number():
    assert filesystem.user_name(4_000_000_001) == "uid 4000000001"
