"""The folder of the IO jobs."""

from collections import namedtuple
from pathlib import Path

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.rehearse import scratch
from stormpetrel.rehearse.scratch import choose_parent, scratch_folder


def mounts(*folders):
    """What /proc/self/mountinfo says where these folders are kept in memory and the rest on a disk."""
    lines = ["21 1 8:1 / / rw - ext4 /dev/vda rw"]
    return "\n".join([*lines, *(f"{22 + n} 21 0:5 / {folder} rw - tmpfs tmpfs rw" for n, folder in enumerate(folders))])


@pytest.fixture
def memory_and_disk(tmp_path):
    folders = tmp_path / "memory", tmp_path / "disk"
    for folder in folders:
        folder.mkdir()
    return folders


def test_bad_io_goes_to_the_first_usual_folder_that_is_on_a_disk(memory_and_disk):
    memory, disk = memory_and_disk
    assert choose_parent(None, [memory, disk], must_flush=True, mountinfo=mounts(memory)) == disk


def test_without_bad_io_memory_will_do(memory_and_disk):
    memory, disk = memory_and_disk
    assert choose_parent(None, [memory, disk], must_flush=False, mountinfo=mounts(memory)) == memory


def test_bad_io_is_refused_where_nothing_is_on_a_disk(memory_and_disk):
    memory, disk = memory_and_disk
    with pytest.raises(UsageError, match=r"a flush does nothing on .*memory \(tmpfs\), .*disk \(tmpfs\).*--scratch"):
        choose_parent(None, [memory, disk], must_flush=True, mountinfo=mounts(memory, disk))


def test_a_folder_that_was_named_is_not_replaced_by_another(memory_and_disk):
    memory, disk = memory_and_disk
    with pytest.raises(UsageError, match=r"memory \(tmpfs\)"):
        choose_parent(memory, [disk], must_flush=True, mountinfo=mounts(memory))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="There is no folder"):
        choose_parent(tmp_path / "gone", [], must_flush=False)


def test_a_full_disk_is_noticed_before_anything_runs(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _path: usage(1, 1, 10_000_000))
    with pytest.raises(UsageError, match=r"10 MB free; the jobs on 2 CPUs need"), _made(tmp_path):
        pass


def test_the_folder_and_what_is_in_it_are_gone_at_the_end(tmp_path):
    with _made(tmp_path) as made:
        (made.folder / "job").mkdir()
        (made.folder / "job" / "big.dat").write_bytes(b"x")
        assert made.folder.parent == tmp_path and made.flush_ms > 0 and made.filesystem
    assert not list(tmp_path.iterdir())


def test_it_is_gone_after_an_error_too(tmp_path):
    with pytest.raises(RuntimeError), _made(tmp_path):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def _made(folder: Path):
    return scratch_folder(folder, folder, must_flush=False, cpus=2)
