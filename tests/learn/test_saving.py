"""Model folders: whole or not at all, and refused where anything is wrong with them."""

from __future__ import annotations

import hashlib
import json
import stat

import pytest

from stormpetrel.errors import ModelFormatError, ModelOutdatedError, ModelVersionError
from stormpetrel.learn import saving
from stormpetrel.learn.saving import METADATA, Contents, format_problem, load_model, load_model_bytes, save_model

KIND = "test-kind"


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "m", kind=KIND, format_version=3, metadata={"seed": 7}, files={"a.json": "{}", "b.json": "[1]"})
    return tmp_path / "m"


def load(folder):
    return load_model(folder, kind=KIND, format_version=3)


def edit(folder, **changes):
    path = folder / METADATA
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_was_saved_is_loaded(folder):
    record, files = load(folder)
    assert files == {"a.json": "{}", "b.json": "[1]"}
    assert (record["seed"], record["kind"], record["format_version"]) == (7, KIND, 3)


def test_a_model_appears_whole_and_only_its_owner_may_read_it(folder):
    assert sorted(path.name for path in folder.parent.iterdir()) == ["m"]
    assert sorted(path.name for path in folder.iterdir()) == ["a.json", "b.json", METADATA]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_model_is_never_overwritten(folder):
    with pytest.raises(ModelFormatError, match="exists already"):
        save_model(folder, kind=KIND, format_version=3, metadata={}, files={})
    assert load(folder)[0]["seed"] == 7


def test_a_record_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_model(tmp_path / "m", kind=KIND, format_version=3, metadata={"x": float("nan")}, files={"a.json": "{}"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "of kind 'other'"),
        ({"kind": None}, "of kind None"),
        ({"kind": [1]}, "of kind"),
        ({"format_version": 4}, "format version 4"),
        ({"format_version": "3"}, "format version '3'"),
        ({"format_version": 1e308}, "format version"),
        ({"files": None}, "no proper 'files'"),
        ({"files": ["a.json"]}, "no proper 'files'"),
        ({"files": {"a.json": 7}}, "no proper 'files'"),
        ({"files": {"missing.json": "00"}}, "lacks its file 'missing.json'"),
        ({"files": {"../m/a.json": "00"}}, "lacks its file"),
        ({"files": {"/etc/hostname": "00"}}, "lacks its file"),
        ({"files": {"": "00"}}, "lacks its file"),
        ({"files": {"..": "00"}}, "lacks its file"),
        ({"files": {"a\x00b": "00"}}, "lacks its file"),
        ({"files": {"a.json": "00"}}, "not the file that was saved"),
    ],
)
def test_a_wrong_record_is_refused_in_one_sentence(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ModelFormatError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"model"', "[" * 100_000, "9" * 5000, "\ufeff{}", "NaN"],
    ids=["empty", "cut", "list", "null", "text", "deep", "huge number", "byte order mark", "NaN"],
)
def test_rubble_in_place_of_the_record_is_refused(folder, text):
    (folder / METADATA).write_text(text)
    with pytest.raises(ModelFormatError):
        load(folder)


def test_bytes_that_are_no_text_are_refused(folder):
    (folder / METADATA).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelFormatError):
        load(folder)


def test_a_changed_byte_is_found(folder):
    (folder / "b.json").write_text("[2]")
    with pytest.raises(ModelFormatError, match=r"b\.json is not the file that was saved"):
        load(folder)


def test_a_missing_file_is_found(folder):
    (folder / "b.json").unlink()
    with pytest.raises(ModelFormatError, match=r"lacks its file 'b\.json'"):
        load(folder)


def test_a_folder_in_place_of_a_file_is_refused(folder):
    (folder / "b.json").unlink()
    (folder / "b.json").mkdir()
    with pytest.raises(ModelFormatError, match=r"lacks its file 'b\.json'"):
        load(folder)


def test_no_folder_an_empty_one_and_a_file_are_no_models(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("none", "empty", "file"):
        with pytest.raises(ModelFormatError):
            load(tmp_path / name)


def test_a_file_name_that_is_too_long_is_refused(folder):
    edit(folder, files={"x" * 300: "00"})
    with pytest.raises(ModelFormatError):
        load(folder)


def test_a_file_that_is_no_text_is_refused(folder):
    (folder / "a.json").write_bytes(b"\xff\xfe")
    edit(folder, files={"a.json": hashlib.sha256(b"\xff\xfe").hexdigest()})
    with pytest.raises(ModelFormatError):
        load(folder)


def test_a_changed_byte_in_the_record_is_found(folder):
    edit(folder, seed=8)
    with pytest.raises(ModelFormatError):
        load(folder)


def test_files_may_be_bytes(tmp_path):
    files = {"weights.bin": b"\xff\x00\r\n\x1a", "note.json": "ü\r\n"}
    save_model(tmp_path / "m", kind=KIND, format_version=3, metadata={}, files=files)
    assert load_model_bytes(tmp_path / "m", kind=KIND, format_version=3)[1] == {**files, "note.json": "ü\r\n".encode()}
    with pytest.raises(ModelFormatError, match="is no text"):
        load(tmp_path / "m")


def test_a_changed_byte_among_bytes_is_found(tmp_path):
    save_model(tmp_path / "m", kind=KIND, format_version=3, metadata={}, files={"weights.bin": b"\xff\x00"})
    (tmp_path / "m" / "weights.bin").write_bytes(b"\xff\x01")
    with pytest.raises(ModelFormatError, match="not the file that was saved"):
        load_model_bytes(tmp_path / "m", kind=KIND, format_version=3)


@pytest.mark.parametrize(("kind", "command"), [("traces", "stormpetrel traces train"), (KIND, "stormpetrel jobs train")])
def test_the_hint_names_the_command_of_the_family(tmp_path, kind, command):
    with pytest.raises(ModelFormatError, match="holds no model") as caught:
        load_model_bytes(tmp_path / "none", kind=kind, format_version=1)
    assert caught.value.hint == f"Train one: {command}"
    save_model(tmp_path / "m", kind=kind, format_version=1, metadata={}, files={})
    edit(tmp_path / "m", seed=1)
    with pytest.raises(ModelFormatError) as caught:
        load_model_bytes(tmp_path / "m", kind=kind, format_version=1)
    assert caught.value.hint == f"Train it again: {command}"


# --- formats ------------------------------------------------------------------------------------------------------------------


def saved_as(folder, version, **metadata):
    save_model(folder, kind=KIND, format_version=version, metadata=metadata, files={"a.json": "{}"})
    return folder


def test_a_model_of_a_newer_format_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ModelVersionError, match=r"newer version.*pip install --upgrade"):
        load(saved_as(tmp_path / "m", 4))


def test_a_model_of_an_older_format_that_nobody_reads_is_to_be_trained_again(tmp_path):
    with pytest.raises(ModelOutdatedError, match=r"earlier version.*trained again.*by themselves"):
        load(saved_as(tmp_path / "m", 2))


def test_a_model_of_an_older_format_is_read_through_every_step_to_the_newest(tmp_path, monkeypatch):
    def renamed(contents):
        record = {**contents.record, "colour": contents.record["color"]}
        return Contents(record, contents.files)

    def with_file(contents):
        return Contents(contents.record, {**contents.files, "b.json": b"[2]"})

    monkeypatch.setattr(saving, "UPGRADES", {KIND: {1: renamed, 2: with_file}})
    record, files = load(saved_as(tmp_path / "m", 1, color="blue"))
    assert record["colour"] == "blue" and files == {"a.json": "{}", "b.json": "[2]"}


def test_a_step_that_is_missing_in_between_makes_a_model_outdated(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "UPGRADES", {KIND: {1: lambda contents: contents}})
    with pytest.raises(ModelOutdatedError):
        load(saved_as(tmp_path / "m", 1))


def test_a_damaged_model_of_an_older_format_is_not_brought_up_to_date(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "UPGRADES", {KIND: {2: lambda contents: contents}})
    folder = saved_as(tmp_path / "m", 2)
    (folder / "a.json").write_text("{ }")
    with pytest.raises(ModelFormatError, match="not the file that was saved"):
        load(folder)


def test_the_format_is_told_from_the_record_alone(tmp_path):
    folder = saved_as(tmp_path / "m", 2)
    (folder / "a.json").unlink()
    assert isinstance(format_problem(folder, {KIND: 3}), ModelOutdatedError)
    assert isinstance(format_problem(folder, {KIND: 1}), ModelVersionError)
    assert format_problem(folder, {KIND: 2}) is None and format_problem(folder, {}) is None
