"""`stormpetrel watch` as a real process: one per site, killed and started again, stopped politely, seen from outside.

A process takes two seconds to start, so that one whole life is looked at from all sides: `life`, and `life_without_slurm`.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.faces.cli.main import app
from stormpetrel.free_memory import return_free_memory
from stormpetrel.records.jobs import KEY
from stormpetrel.records.times import running_clock
from stormpetrel.simulate.feed import set_clock
from stormpetrel.store.watch_status import WatchStatus, read_status
from stormpetrel.watch.job_findings import FIRST_LOOK, SETTLED
from stormpetrel.watch.past.replay import replay
from stormpetrel.watch.units import systemd_unit
from tests.parts import wait_until
from tests.parts.command_line import run_here, start
from tests.parts.watched_site import TRAINED, copy_site, move_clock
from tests.watch.test_incident_keeper import facts
from tests.watch.test_loop import SAID, SECOND, predictions_of, undisturbed

QUALITY = re.compile(r'^stormpetrel_quality\{figure="n",model_version="1",moment="submit"\} (.*)$', re.MULTILINE)


class Watching:
    """A `watch` that runs, and what it has logged so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.log = process, ""

    def next(self, event: str) -> dict:
        """The next line of that event."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.log += line
            fact = json.loads(line)
            if fact["event"] == event:
                return fact
        raise AssertionError(f"it ended without {event!r}: {self.process.wait()}\n{self.log}")

    def end(self, number: signal.Signals) -> int:
        """Send it a signal and wait for its end; the exit code."""
        assert self.process.stderr
        self.process.send_signal(number)
        self.log += self.process.stderr.read()
        return self.process.wait(timeout=120)


@contextmanager
def watching(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Watching]:
    """Start `watch`; whatever is left of it is killed at the end."""
    with start(folder, "watch", "--json", *arguments, env=env) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


def in_process(folder: Path, *arguments: str):
    """A command where it is not the process that is claimed something of."""
    return CliRunner().invoke(app, ["--site", str(folder), *arguments])


@pytest.mark.slow  # test_kills.py kills oftener in less time: here the clock runs, and the command is the real one
@pytest.mark.parametrize("kills", [12])
def test_killed_at_any_moment_and_started_again_it_says_the_same_and_nothing_twice(site, kills):
    chance = random.Random(5)
    # A first watch looks a day back from its first commit: that one is made while the clock stands. A process that takes two
    # seconds longer to start would otherwise begin three hours later than the replay that it is compared with.
    assert in_process(site.folder, "watch", "--json", "--steps", "1").exit_code == 0
    set_clock(site.folder / "feed", running_clock(TRAINED, speed=1200.0))
    for _ in range(kills):
        if site.now() > TRAINED + timedelta(days=2):  # on a busy machine: the feed has two days more, then nothing steps
            break
        with watching(site.folder) as watch:
            watch.next("watching")
            if chance.random() < 0.7:
                watch.next("step")
            time.sleep(chance.uniform(0.0, 0.6))
            assert watch.end(signal.SIGKILL) == -signal.SIGKILL
    move_clock(site, max(site.now(), TRAINED + timedelta(hours=9)))
    done = in_process(site.folder, "watch", "--json", "--steps", "2")
    assert done.exit_code == 0, done.output
    said = predictions_of(site)
    assert said.height > 20
    assert not said.select(*KEY, "moment").is_duplicated().any()
    assert said.select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))
    past = replay(site, since=TRAINED - FIRST_LOOK, until=site.now() - SECOND - SETTLED)
    assert [facts(one) for one in site.incidents.list()[::-1]] == [facts(one) for one in past.incidents] != []


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@dataclass(frozen=True)
class Life:
    """What was seen of a `watch` from its start until a signal asked it to stop."""

    pid: int
    answers: dict[str, tuple[int, str]]  # of its address, by path
    exit_code: int
    log: str
    status: WatchStatus | None  # that it left
    names: set[str]  # of users and jobs
    predictions: int
    second: subprocess.CompletedProcess[str] | None = None  # another `watch` on the same site, meanwhile
    outlived_the_second: bool = False
    told_systemd: tuple[bytes, ...] = ()  # until it said that it stops


def seen(watch: Watching, site, port: int, number: signal.Signals, **more) -> Life:
    """What there is to see of a running `watch`, which is then asked to stop."""
    answers = {path: fetch(port, path) for path in ("/healthz", "/readyz", "/metrics", "/etc/passwd")}
    names = site.jobs.read_jobs().select(pl.concat([pl.col("user"), pl.col("job_name")]).drop_nulls().unique()).collect()
    code = watch.end(number)
    with site.state.sole("watch"):  # the lock is free
        status = read_status(site.state)
    predictions = predictions_of(site).height
    return Life(watch.process.pid, answers, code, watch.log, status, set(names.to_series()), predictions, **more)


@pytest.fixture(scope="module")
def life(prepared, sacct, tmp_path_factory) -> Life:
    """A `watch` of a site that has a day and a half to catch up with, until SIGTERM; systemd listens."""
    folder = tmp_path_factory.mktemp("life")
    with copy_site(prepared, folder / "site", sacct=sacct) as site, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        move_clock(site, TRAINED + timedelta(days=1, hours=12))
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(60)
        once = ("--address", "127.0.0.1:0", "--poll", "600")  # one turn
        with watching(site.folder, *once, env={**os.environ, "NOTIFY_SOCKET": str(folder / "notify")}) as watch:
            port = watch.next("watching")["metrics_port"]
            watch.next("step")
            wait_until(lambda: fetch(port, "/readyz")[0] == 200, "readiness", limit_s=60)
            wait_until(lambda: bool(QUALITY.search(fetch(port, "/metrics")[1])), "the quality is shown", limit_s=60)
            second = run_here(site.folder, "watch", "--json")
            lives = watch.process.poll() is None
            ended = seen(watch, site, port, signal.SIGTERM, second=second, outlived_the_second=lives)
        return replace(ended, told_systemd=tuple(iter(lambda: systemd.recv(100), b"STOPPING=1")))


@pytest.fixture(scope="module")
def life_without_slurm(prepared, tmp_path_factory) -> Life:
    """A `watch` whose scheduler is away, until SIGINT."""
    with copy_site(prepared, tmp_path_factory.mktemp("away") / "site") as site:
        (site.folder / "feed" / "sacct").write_text("#!/bin/sh\nexit 1\n")
        with watching(site.folder, "--address", "127.0.0.1:0") as watch:
            port = watch.next("watching")["metrics_port"]
            watch.next("problem")
            return seen(watch, site, port, signal.SIGINT)


def test_a_second_watcher_says_so_and_stops(life):
    assert life.second.returncode == 1
    assert re.search(rf"Another watch \(pid {life.pid}\) runs on the site", life.second.stderr)
    assert life.outlived_the_second


@pytest.mark.parametrize("which", ["life", "life_without_slurm"])
def test_asked_to_stop_it_finishes_its_turn_and_leaves_word(request, which):
    """By SIGTERM, and by SIGINT."""
    life = request.getfixturevalue(which)
    assert life.exit_code == 0
    assert life.status.stopped


def test_prometheus_and_a_supervisor_see_how_it_goes(life):
    assert life.answers["/readyz"][0] == 200
    assert life.answers["/healthz"] == (200, "ok\n")
    metrics = life.answers["/metrics"][1]
    made = sum(float(n) for n in re.findall(r"^stormpetrel_predictions_total\{[^}]*\} ([\d.]+)$", metrics, re.MULTILINE))
    assert made == life.predictions > 0
    assert re.search(r"^stormpetrel_watch_ready 1.0$", metrics, re.MULTILINE)
    assert re.search(r'^stormpetrel_model_version\{model="jobs-submit"\} 1.0$', metrics, re.MULTILINE)
    assert life.answers["/etc/passwd"][0] == 404


def test_while_the_scheduler_is_away_it_lives_but_is_not_ready(life_without_slurm):
    assert life_without_slurm.answers["/healthz"][0] == 200
    status, words = life_without_slurm.answers["/readyz"]
    assert status == 503 and "failed" in words


def test_running_quality_is_shown_for_what_has_ended(life):
    assert float(QUALITY.search(life.answers["/metrics"][1])[1]) > 10


def test_an_address_that_is_taken_is_one_clear_sentence(site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run_here(site.folder, "watch", "--address", address)
    (line,) = refused.stderr.splitlines()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert line.startswith(f"stormpetrel: Nothing can listen on {address}: Address already in use")


def test_the_log_holds_counts_and_no_names(life):
    assert {"watching", "step", "stopped"} <= {json.loads(line)["event"] for line in life.log.splitlines()}
    assert life.names and not set(re.findall(r"[\w.-]+", life.log)) & life.names


def test_it_tells_systemd_that_it_is_ready_and_alive(life):
    assert life.told_systemd[0] == b"READY=1"
    assert life.told_systemd[1:] == (b"WATCHDOG=1",) * 2  # after the day that it caught up with, and after its turn


def test_the_unit_starts_this_site_and_lets_it_write_nowhere_else(site):
    unit = in_process(site.folder, "watch", "--unit").stdout
    assert unit == systemd_unit("watch", site.folder)
    assert f"ReadWritePaths={site.folder}" in unit and "ProtectSystem=strict" in unit
    assert re.search(rf"^ExecStart=\S+ -m stormpetrel --site {site.folder} watch$", unit, re.MULTILINE)


def test_serve_has_a_unit_as_well(site):
    done = in_process(site.folder, "serve", "--unit")
    assert done.exit_code == 0 and done.stdout == systemd_unit("serve", site.folder)
    assert "Type=simple" in done.stdout and "After=network-online.target stormpetrel-watch.service" in done.stdout


def test_a_unit_survives_odd_paths(tmp_path):
    assert '"' in systemd_unit("serve", tmp_path / "my site") and "%%" in systemd_unit("serve", tmp_path / "100%")


def test_the_unit_finds_the_slurm_that_this_shell_finds(tmp_path):
    sacct = tmp_path / "slurm" / "bin" / "sacct"
    sacct.parent.mkdir(parents=True)
    sacct.write_text("#!/bin/sh\n")
    sacct.chmod(0o755)
    shell = {"SLURM_CONF": "/opt/100%/slurm.conf", "PATH": f"{sacct.parent}:/usr/bin"}
    unit = systemd_unit("watch", tmp_path / "site", environment=shell)
    assert '\nEnvironment="SLURM_CONF=/opt/100%%/slurm.conf"\n' in unit
    assert f'\nEnvironment="PATH={sacct.parent}:/usr/local/sbin:' in unit


def test_a_unit_says_nothing_of_slurm_where_systemd_finds_it_by_itself(tmp_path):
    (tmp_path / "sacct").write_text("#!/bin/sh\n")
    (tmp_path / "sacct").chmod(0o755)
    for command in ("sacct", str(tmp_path / "sacct")):
        assert "Environment=" not in systemd_unit(
            "serve", tmp_path / "site", sacct=command, environment={"PATH": "/usr/bin:/bin"}
        )


def resident_mb():
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def test_what_was_freed_below_a_piece_in_use_goes_back_to_the_system():
    pieces = [bytearray(b"x" * 4000) for _ in range(50_000)]  # 200 MB, by malloc
    in_use = pieces[-1]
    del pieces
    before = resident_mb()
    assert return_free_memory()
    assert resident_mb() < before - 100 and len(in_use) == 4000
