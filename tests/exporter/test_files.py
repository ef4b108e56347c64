""""""

import errno
import os
from contextlib import contextmanager

import pytest

from stormpetrel.exporter.files import MAX_CPU, Files, format_cpu_list, parse_cpu_list
from tests.parts import is_root


def test_a_file_is_read_whole_and_none_is_no_problem(tmp_path):
    files = Files()
    (tmp_path / "a").write_bytes(b"x" * 5000)
    assert files.read(str(tmp_path / "a")) == b"x" * 5000
    assert files.read(str(tmp_path / "b")) is None
    assert not any(files.problems.values())


def test_a_file_beyond_the_limit_is_refused_and_counted(tmp_path):
    files = Files()
    (tmp_path / "a").write_bytes(b"x" * 101)
    assert files.read(str(tmp_path / "a"), limit=101) is not None
    assert files.read(str(tmp_path / "a"), limit=100) is None
    assert files.problems["too_large"] == 1


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("s")
    (tmp_path / "link").symlink_to("secret")
    assert Files().read(str(tmp_path / "link")) is None


def test_a_pipe_does_not_make_it_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not Files().read(str(tmp_path / "pipe"))


@contextmanager
def nobody():
    """Without root's right to read everything."""
    if not is_root():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read_is_counted(tmp_path):
    files = Files()
    (tmp_path / "a").touch(mode=0o000)
    with nobody():
        assert files.read(str(tmp_path / "a")) is None
    assert files.problems["denied"] == 1


@pytest.mark.parametrize(("number", "reason"), [(errno.EPERM, "denied"), (errno.ENODEV, "vanished"), (errno.EIO, "other")])
def test_an_error_of_the_kernel_is_counted_by_its_reason(number, reason):
    files = Files()
    files.note(OSError(number, "no"))
    assert {name for name, count in files.problems.items() if count} == {reason}


@pytest.mark.parametrize(("text", "number"), [("17\n", 17), ("max\n", None), ("", None), ("-3\n", None), ("9" * 40, None)])
def test_a_number_is_a_number(tmp_path, text, number):
    (tmp_path / "a").write_text(text)
    assert Files().read_number(str(tmp_path / "a")) == number


@pytest.mark.parametrize(
    ("text", "cpus"),
    [(b"0\n", {0}), (b"0-2,5\n", {0, 1, 2, 5}), (b"\n", set()), (b"3,1", {1, 3}), (b"127", {127})],
)
def test_a_list_is_read(text, cpus):
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", [b"a", b"1-", b"-1", b"3-1", b"1-2-3", b"0-99999999", b"9" * 40, b"1;2", b"0-65535,0-65535,1"])
def test_what_is_no_list_is_refused(text):
    assert parse_cpu_list(text) is None


@pytest.mark.parametrize("cpus", [set(), {0}, {1, 2, 3}, {0, 2, 4, 5, 6, 9}, {MAX_CPU - 1}])
def test_a_list_is_written_as_it_is_read(cpus):
    assert parse_cpu_list(format_cpu_list(cpus).encode()) == cpus


def test_neighbours_become_a_range():
    assert format_cpu_list([5, 0, 3, 2, 4]) == "0,2-5"
