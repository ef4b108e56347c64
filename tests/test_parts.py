"""What the parts promise to the tests that use them."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stormpetrel.faces.cli import main as command_line
from tests.builders import make_site
from tests.parts import Daemon, find_program, free_ports, need, require, wait_until
from tests.parts.command_line import call_main, run, run_here

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


def run_pytest(folder, *words, **environment):
    """A pytest of its own over a folder, without the plugins of this environment: loading those takes seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "-c", "/dev/null", str(folder)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return subprocess.run(command, env=env, cwd=TESTS.parent, capture_output=True, text=True)


def test_on_a_bare_machine_what_needs_real_logs_or_components_is_skipped(tmp_path):
    (tmp_path / "test_needy.py").write_text(
        "from tests.parts import require\n"
        "def test_logs(public_logs): raise AssertionError\n"
        "def test_shell(): require('sh', install='dash'); raise AssertionError\n"
    )
    bare = {"CI": "", "STORMPETREL_TEST_BARE": "1", "STORMPETREL_DATA": str(tmp_path)}
    done = run_pytest(tmp_path, "-p", "tests.conftest", **bare)
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
    done = run_pytest(tmp_path, CI=ci)
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


# --- the command line in this process -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def an_empty_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty") / "site"
    make_site(folder).close()
    return folder


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sql", "select 'ä' as letter", "--json"), 0),
        (("sql", "select nothing from nowhere"), 2),
        (("ingest", "jobs", "no-such-file"), 1),
        (("store", "fly"), 2),
    ],
    ids=["an answer", "a query that is wrong", "a file that is missing", "no such command"],
)
def test_a_command_here_says_what_it_says_as_a_process(an_empty_site, words, code):
    here, there = run_here(an_empty_site, *words), run(an_empty_site, *words)
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
    assert here.returncode == code


def test_a_command_here_reads_what_it_is_given_and_leaves_this_process_as_it_was(tmp_path, monkeypatch):
    def ours():
        streams = (sys.argv, sys.stdin, sys.stdout, sys.stderr)
        return (dict(os.environ), Path.cwd(), streams, signal.getsignal(signal.SIGTERM), list(logging.getLogger().handlers))

    def meddling(words):
        seen.append((sys.stdin.read(), os.environ["COLOUR"], Path.cwd(), words))
        sys.stdout.write("out\n")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        logging.getLogger().addHandler(logging.NullHandler())
        os.environ["COLOUR"] = "red"
        return 3

    seen = []
    monkeypatch.setattr(command_line, "_run", meddling)
    before, umask = ours(), os.umask(0o022)
    try:
        done = call_main(["x"], stdin=b"words", cwd=tmp_path, env={"COLOUR": "blue"})
        assert ours() == before and os.umask(umask) == 0o022
    finally:
        os.umask(umask)
    assert seen == [("words", "blue", tmp_path, ["x"])]
    assert (done.returncode, done.stdout) == (3, b"out\n")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SystemExit(), 0, ""),
        (SystemExit("no"), 1, "no"),
        (KeyboardInterrupt(), 130, "run the same command again"),
        (ZeroDivisionError("by nought"), 1, "something unexpected happened: ZeroDivisionError: by nought"),
    ],
    ids=["an exit", "an exit with a word", "an interrupt", "an error"],
)
def test_what_a_command_here_raises_ends_as_main_ends_it(monkeypatch, error, code, line):
    def failing(_words):
        raise error

    monkeypatch.setattr(command_line, "_run", failing)
    done = call_main(["sql"])
    assert done.returncode == code and line in done.stderr.decode() and b"Traceback" not in done.stderr


def test_with_debug_a_command_here_ends_with_its_trace(monkeypatch):
    def failing(_words):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(command_line, "_run", failing)
    done = call_main(["--debug", "sql"])
    assert done.returncode == 1 and done.stderr.startswith(b"Traceback") and b"by nought" in done.stderr
