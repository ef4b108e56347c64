"""Backups as an attacker sees them: planted names, links and devices in archives, settings that point elsewhere."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from stormpetrel.config import Settings, load_settings
from stormpetrel.errors import StoreError, StoreVersionError, UsageError
from stormpetrel.store.site import open_site
from stormpetrel.store.state import STATE_FORMAT
from stormpetrel.store.upkeep.backup import OutsideSetting, backup, kind_of, outside_settings, restore
from tests.builders import Job, make_site, write_sacct
from tests.store.upkeep.test_upkeep import table_of, take


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        take(opened, write_sacct(tmp_path / "log", [Job()]))
        yield opened


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with make_site(folder / "site") as opened:
        take(opened, write_sacct(folder / "log", [Job()]))
        backup(opened, folder / "site.tar")
    return folder / "site.tar"


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def write_backup(path: Path, contents: dict[str, bytes], *, more: list[tarfile.TarInfo] = (), digests=None, **facts) -> Path:
    """A backup of these members with the right digests, and whatever else is wanted."""
    told = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if name != "manifest.json"}
    manifest = {"format": 1, "version": "1", "digests": told if digests is None else digests, **facts}
    with tarfile.open(path, "w") as archive:
        for name, content in (contents | {"manifest.json": json.dumps(manifest).encode()}).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in more:
            archive.addfile(info, io.BytesIO(b"\0" * info.size))
    return path


def assert_refused(source: Path, folder: Path, why: str) -> None:
    with pytest.raises(StoreError, match=why) as caught:
        restore(source, folder)
    assert "\n" not in str(caught.value)
    assert not folder.exists()


# --- writing ------------------------------------------------------------------------------------------------------------------


def test_a_planted_partial_file_is_neither_followed_nor_used(site, tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "b.tar.partial").symlink_to("victim")
    backup(site, tmp_path / "b.tar")
    assert (tmp_path / "victim").read_text() == "precious"
    assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600


def test_a_link_in_place_of_the_backup_is_refused_even_if_it_points_nowhere(site, tmp_path):
    (tmp_path / "b.tar").symlink_to("nowhere")
    with pytest.raises(UsageError, match="exists"):
        backup(site, tmp_path / "b.tar")
    assert not (tmp_path / "nowhere").exists()


def test_a_backup_that_appears_meanwhile_is_not_overwritten(site, tmp_path, monkeypatch):
    dump = site.state.dump

    def faster():
        (tmp_path / "b.tar").write_text("another's")
        return dump()

    monkeypatch.setattr(site.state, "dump", faster)
    with pytest.raises(UsageError, match="exists by now"):
        backup(site, tmp_path / "b.tar")
    assert (tmp_path / "b.tar").read_text() == "another's"


def test_nothing_in_a_backup_may_be_read_by_others(saved):
    with tarfile.open(saved) as archive:
        assert {member.mode for member in archive} == {0o600}


def test_tables_on_another_disk_are_in_the_backup_and_come_back_as_a_folder(site, tmp_path):
    (site.folder / "tables").rename(tmp_path / "larger-disk")
    (site.folder / "tables").symlink_to(tmp_path / "larger-disk")
    with open_site(site.folder) as moved:
        backup(moved, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "copy") as copy:
        assert table_of(copy).height == 1
        assert not (tmp_path / "copy" / "tables").is_symlink()


def test_a_link_among_the_models_is_not_followed_into_the_backup(site, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (site.folder / "models" / "x").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="is a link"):
        backup(site, tmp_path / "b.tar")
    assert not (tmp_path / "b.tar").exists()


# --- archives that no backup of ours is -----------------------------------------------------------------------------------------


def test_what_was_backed_up_comes_back_for_us_alone(saved, tmp_path):
    old = os.umask(0)
    try:
        restore(saved, tmp_path / "copy").close()
    finally:
        os.umask(old)
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "copy").glob("*")}
    modes |= {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (tmp_path / "copy" / "tables" / "jobs").rglob("*.parquet")}
    assert modes == {0}


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.DIRTYPE, "a folder"),
        (tarfile.GNUTYPE_SPARSE, "holes"),
    ],
)
def test_only_plain_files_are_taken(saved, tmp_path, kind, told):
    info = tarfile.TarInfo("models/x")
    info.type, info.linkname = kind, "site.key"
    assert_refused(
        write_backup(tmp_path / "bad.tar", members(saved), more=[info]), tmp_path / "copy", f"no plain file but .*{told}"
    )


def test_tables_as_a_symbolic_link_are_refused(saved, tmp_path):
    info = tarfile.TarInfo("tables")
    info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path)
    assert_refused(write_backup(tmp_path / "bad.tar", members(saved), more=[info]), tmp_path / "copy", "a symbolic link")


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "/etc/x",
        "models/../../x",
        "./models/x",
        "models//x",
        "models/./x",
        "tables",
        "watch/x",
        "models/\nx",
        "models\\x",
    ],
)
def test_a_name_that_is_none_of_ours_is_refused(saved, tmp_path, name):
    assert_refused(
        write_backup(tmp_path / "bad.tar", members(saved) | {name: b"x"}), tmp_path / "copy", "no name of a file of a site"
    )
    assert not (tmp_path / "escaped").exists()


def test_a_name_that_is_there_twice_is_refused(saved, tmp_path):
    again = tarfile.TarInfo("site.key")
    assert_refused(write_backup(tmp_path / "bad.tar", members(saved), more=[again]), tmp_path / "copy", "twice")


def test_a_file_that_claims_to_be_larger_than_the_backup_is_refused(saved, tmp_path):
    source = write_backup(tmp_path / "bad.tar", members(saved))
    huge = tarfile.TarInfo("models/huge")
    huge.size = 1 << 50
    data = source.read_bytes().rstrip(b"\0")
    data += b"\0" * (-len(data) % 512)
    source.write_bytes(data + huge.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10240)
    assert_refused(source, tmp_path / "copy", "claims to be larger|no whole backup")


@pytest.mark.parametrize("missing", ["site.toml", "site.key", "state.json", "manifest.json"])
def test_a_backup_without_what_makes_a_site_is_refused(saved, tmp_path, missing):
    contents = {name: content for name, content in members(saved).items() if name != missing}
    source = write_backup(tmp_path / "bad.tar", contents)
    if missing == "manifest.json":
        with tarfile.open(source, "w") as archive:
            for name, content in contents.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    assert_refused(source, tmp_path / "copy", "missing from it|no manifest")


def test_a_member_without_a_digest_is_refused(saved, tmp_path):
    contents = members(saved)
    for left_out in ([], ["site.key"], ["state.json"]):
        digests = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in contents.items()
            if name not in ("manifest.json", *left_out) and left_out
        }
        assert_refused(write_backup(tmp_path / "bad.tar", contents, digests=digests), tmp_path / "copy", "no digest of")


@pytest.mark.parametrize(
    "manifest", [b"", b"[]", b"{}", b"[" * 100_000, b'{"format": "x", "version": 1, "digests": {}}', b"\xff"]
)
def test_a_manifest_that_makes_no_sense_is_one_sentence(saved, tmp_path, manifest):
    source = tmp_path / "bad.tar"
    with tarfile.open(source, "w") as archive:
        for name, content in (members(saved) | {"manifest.json": manifest}).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert_refused(source, tmp_path / "copy", "no whole backup")


def test_a_compressed_backup_is_not_unpacked_on_the_way(saved, tmp_path):
    import gzip

    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(saved.read_bytes()))
    assert_refused(tmp_path / "b.tar.gz", tmp_path / "copy", "unpack this one first")


@pytest.mark.parametrize(
    "state",
    [
        b"[]",
        b"null",
        b'{"models": [5]}',
        b'{"meta": [{"key": "format", "value": "x"}]}',
        b'{"models": [{"evil": 1}]}',
        b'{"models": [{"name": "x"}]}',
    ],
)
def test_a_state_that_makes_no_sense_is_one_sentence(saved, tmp_path, state):
    assert_refused(write_backup(tmp_path / "bad.tar", members(saved) | {"state.json": state}), tmp_path / "copy", "backup")


def test_a_state_of_a_newer_version_is_refused(saved, tmp_path):
    state = json.dumps({"meta": [{"key": "format", "value": str(STATE_FORMAT + 1)}]}).encode()
    source = write_backup(tmp_path / "bad.tar", members(saved) | {"state.json": state})
    with pytest.raises(StoreVersionError, match="newer version"):
        restore(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("kind", ["add", "remove"])
@pytest.mark.parametrize("path", ["../../../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "%2e%2e/x"])
def test_a_table_that_names_files_outside_of_it_is_refused(saved, tmp_path, kind, path):
    contents = members(saved)
    log = max(name for name in contents if name.startswith("tables/jobs/_delta_log/") and name.endswith(".json"))
    action = {"path": path, "partitionValues": {"month": "2024-03"}, "size": 1, "modificationTime": 1, "dataChange": True}
    action |= {"deletionTimestamp": 1} if kind == "remove" else {}
    contents[log] += b"\n" + json.dumps({kind: action}).encode()
    source = write_backup(tmp_path / "bad.tar", contents)
    assert_refused(source, tmp_path / "copy", "outside of it|cannot be read")


# --- where things go ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "store", [{"state_dir": "{tmp}/elsewhere"}, {"state_url": "postgresql://petrel:secret@127.0.0.1:{port}/x"}]
)
def test_the_state_goes_into_the_new_folder_and_nothing_is_connected_to(site, tmp_path, store):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        told = {name: value.format(tmp=tmp_path, port=server.getsockname()[1]) for name, value in store.items()}
        settings = site.settings.model_copy(update={"store": site.settings.store.model_copy(update=told)})
        backup(site, tmp_path / "b.tar")
        contents = members(tmp_path / "b.tar")
        from stormpetrel.config import settings_as_toml

        contents["site.toml"] = settings_as_toml(settings).encode()
        with restore(write_backup(tmp_path / "moved.tar", contents), tmp_path / "copy") as copy:
            assert len(copy.state.past_ingests()) == 1
        with pytest.raises(TimeoutError):
            server.accept()
    found = load_settings(tmp_path / "copy").store
    assert (found.state_dir, found.state_url) == ("", "")
    assert (tmp_path / "copy" / "state.db").is_file() and not (tmp_path / "elsewhere").exists()


def test_the_state_can_be_put_on_a_local_disk(saved, tmp_path):
    with restore(saved, tmp_path / "copy", state_dir=str(tmp_path / "local")) as copy:
        assert len(copy.state.past_ingests()) == 1
    assert (tmp_path / "local" / "state.db").is_file() and not (tmp_path / "copy" / "state.db").exists()


def test_settings_that_reach_outside_are_listed_without_passwords():
    settings = Settings.model_validate(
        {
            "slurm": {
                "sacct": "/home/mallory/sacct",
                "rest_url": "http://mallory.example:6820",
                "rest_token_file": "/etc/shadow",
            },
            "elastic": {"url": "https://petrel:secret@es.example:9200"},
            "engine": {"place": "ray://mallory.example:10001"},
            "htcondor": {"event_log": "/var/log/condor/EventLog"},
            "serve": {"admins": ["mallory"], "proxies": ["0.0.0.0/0"]},
        }
    )
    found = outside_settings(settings)
    assert found == [
        OutsideSetting("command", "slurm.sacct", "/home/mallory/sacct"),
        OutsideSetting("server", "slurm.rest_url", "http://mallory.example:6820"),
        OutsideSetting("server", "elastic.url", "https://petrel:…@es.example:9200"),
        OutsideSetting("server", "engine.place", "ray://mallory.example:10001"),
        OutsideSetting("file", "slurm.rest_token_file", "/etc/shadow"),
        OutsideSetting("file", "htcondor.event_log", "/var/log/condor/EventLog"),
        OutsideSetting("trust", "serve.proxies", "0.0.0.0/0"),
        OutsideSetting("trust", "serve.admins", "mallory"),
    ]


def test_settings_as_they_come_reach_nothing_that_must_be_looked_at():
    assert outside_settings(Settings()) == []


# Texts that choose among what is there or name it, and reach nothing; the settings of each route are looked at one by one.
_HARMLESS = set(
    """name time_zone cluster failure_states dropped_states missing clusters since rest_version rest_user select node_label
    background model submit_host kinds flavour index time_field kind_field trigger_field site_field submit_host_field group_field
    node_field return_field unique_field query user targets tags maintenance_tags routes scheduler
    policies learn_days trace_models event_models output_folders mail_route route domain domains digest_day
    shard watts_per_gpu_type""".split()
)


def test_every_setting_with_a_text_is_harmless_or_listed():
    """A new one belongs into _HARMLESS, or into `store/upkeep/backup.py` if it names a command, server, file or person."""
    texts = {
        key
        for section in Settings.model_fields
        for key, value in getattr(Settings(), section)
        if isinstance(value, str | list) and not isinstance(value, bool)
    }
    assert {key for key in texts if not kind_of(key)} <= _HARMLESS
