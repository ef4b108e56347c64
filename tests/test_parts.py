"""What the parts promise to the tests that use them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import Daemon, find_program, free_ports, need, require, wait_until

TESTS = Path(__file__).parent
DOORS = {TESTS / "conftest.py", TESTS / "parts" / "__init__.py", Path(__file__)}
# Ways around the doors: a test that takes one of them fails, instead of being skipped, where there is nothing behind it.
WAYS_AROUND = ("shutil.which(", "STORMPETREL_DATA", "/usr/bin/chromium", "/usr/sbin/")


def test_real_logs_and_real_components_have_one_door_each():
    around = {
        str(path.relative_to(TESTS)): way
        for path in TESTS.rglob("*.py")
        for way in WAYS_AROUND
        if path not in DOORS and way in path.read_text(encoding="utf-8")
    }
    assert around == {}


def test_on_a_bare_machine_what_needs_real_logs_or_components_is_skipped(tmp_path):
    (tmp_path / "test_needy.py").write_text(
        "from tests.parts import require\n"
        "def test_logs(public_logs): raise AssertionError\n"
        "def test_shell(): require('sh', install='dash'); raise AssertionError\n"
    )
    environment = {**os.environ, "CI": "", "STORMPETREL_TEST_BARE": "1", "STORMPETREL_DATA": str(tmp_path)}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "-c",
        "/dev/null",
        str(tmp_path),
    ]
    done = subprocess.run(words, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert "2 skipped" in done.stdout.splitlines()[-1], done.stdout


def test_program_that_is_there_is_required_without_a_word():
    require("sh", "/bin/s?", install="dash")


def test_missing_package_skips_a_test_and_says_how_to_get_it(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^not in this environment: no_such_package \(make setup-full\)$"):
        need("json", "no_such_package")


def test_missing_package_fails_a_test_on_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no_such_package"):
        need("no_such_package")


@pytest.mark.parametrize(("ci", "end"), [("", "1 skipped"), ("true", "1 error")])
def test_a_file_that_needs_a_missing_package_is_skipped_as_one_and_an_error_on_ci(tmp_path, ci, end):
    (tmp_path / "test_needy.py").write_text("from tests.parts import need\nneed('no_such_package')\nimport no_such_package\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "CI": ci}, cwd=TESTS.parent, capture_output=True, text=True)
    assert end in done.stdout.splitlines()[-1], done.stdout


def test_missing_program_skips_a_test_and_says_what_to_install(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no-such-program.*apt-get install petrel-tools"):
        require("sh", "no-such-program", install="petrel-tools")


def test_missing_program_is_a_failure_on_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program"):
        require("no-such-program", install="petrel-tools")


def test_free_ports_are_as_many_as_asked_for():
    assert len(set(free_ports(20))) == 20


def test_waiting_for_what_does_not_come_ends():
    with pytest.raises(TimeoutError, match="the moon is blue"):
        wait_until(lambda: False, "the moon is blue", limit_s=0.1)


@pytest.mark.skipif(find_program("setpriv") is None, reason="util-linux is not here")
def test_daemon_that_ends_early_is_told_with_its_last_words(tmp_path):
    daemon = Daemon("brief", ["sh", "-c", "echo no disk; exit 3"], log=tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"brief ended with 3 before: it is up\.\nno disk"):
        wait_until(lambda: False, "it is up", limit_s=10, alive=daemon)


@pytest.mark.skipif(find_program("setpriv") is None, reason="util-linux is not here")
def test_daemon_that_does_not_listen_is_ended(tmp_path):
    daemon = Daemon("deaf", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"], log=tmp_path / "log")
    wait_until(lambda: "up" in daemon.last_words(), "it is up", limit_s=10)
    daemon.stop(limit_s=0.3)
    assert daemon.process.returncode == -9
    assert subprocess.run(["kill", "-0", str(daemon.process.pid)], capture_output=True).returncode != 0
