"""`stormpetrel watch` as a real process: one per site, killed and started again, stopped politely, seen from outside."""

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
from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.records.clock import running_clock
from stormpetrel.records.jobs import KEY
from stormpetrel.simulate.feed import set_clock
from stormpetrel.store.site import open_site
from stormpetrel.store.watch_status import read_status
from stormpetrel.watch.units import systemd_unit
from tests.parts import wait_until
from tests.parts.command_line import run, start
from tests.parts.watched_site import TRAINED, move_clock
from tests.watch.test_loop import SAID, SECOND, predictions_of, undisturbed

QUICK = {"STORMPETREL_SITE": "", **os.environ}


@pytest.fixture
def started():
    """Start `watch`; whatever is left of it is killed at the end."""
    processes: list[subprocess.Popen[str]] = []

    def begin(folder, *arguments, env=None):
        process = start(folder, "watch", "--json", *arguments, env=env)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        with process:
            process.kill()


def told(process: subprocess.Popen[str], event: str) -> dict:
    """The next log line of that event."""
    for line in process.stderr:
        fact = json.loads(line)
        if fact["event"] == event:
            return fact
    raise AssertionError(f"it ended without {event!r}: {process.wait()}")


def test_killed_at_any_moment_and_started_again_it_says_the_same_and_nothing_twice(site, started):
    chance = random.Random(5)
    set_clock(site.folder / "feed", running_clock(TRAINED, speed=2400.0))
    killed = 0
    while killed < 6:
        process = started(site.folder)
        told(process, "watching")
        if chance.random() < 0.7:
            told(process, "step")
        time.sleep(chance.uniform(0.0, 0.6))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        killed += 1
    move_clock(site, site.now())
    done = run(site.folder, "watch", "--json", "--steps", "2")
    assert done.returncode == 0, done.stderr
    said = predictions_of(site)
    assert said.height > 10
    assert not said.select(*KEY, "moment").is_duplicated().any()
    assert said.select(SAID).equals(undisturbed(site, site.now() - SECOND).select(SAID))


def test_a_second_watcher_says_so_and_stops(site, started):
    first = started(site.folder)
    told(first, "watching")
    second = run(site.folder, "watch", "--json")
    assert second.returncode == 1
    assert re.search(rf"Another watch \(pid {first.pid}\) runs on the site", second.stderr)
    assert first.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_finishes_its_turn_and_leaves_word(site, started, number):
    process = started(site.folder)
    told(process, "watching")
    wait_until(lambda: read_status(site.state) is not None, "a sign of life", limit_s=60)
    process.send_signal(number)
    assert process.wait(timeout=120) == 0
    assert read_status(site.state).stopped
    assert run(site.folder, "watch", "--json", "--steps", "1").returncode == 0  # the lock is free


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_prometheus_and_a_supervisor_see_how_it_goes(site, started):
    move_clock(site, TRAINED + timedelta(hours=8))
    process = started(site.folder, "--address", "127.0.0.1:0")
    port = told(process, "watching")["metrics_port"]
    told(process, "step")
    wait_until(lambda: fetch(port, "/readyz")[0] == 200, "readiness", limit_s=60)
    assert fetch(port, "/healthz") == (200, "ok\n")
    metrics = fetch(port, "/metrics")[1]
    made = sum(float(n) for n in re.findall(r"^stormpetrel_predictions_total\{[^}]*\} ([\d.]+)$", metrics, re.MULTILINE))
    assert made == predictions_of(site).height > 0
    assert re.search(r"^stormpetrel_watch_ready 1.0$", metrics, re.MULTILINE)
    assert re.search(r'^stormpetrel_model_version\{model="jobs-submit"\} 1.0$', metrics, re.MULTILINE)
    assert fetch(port, "/etc/passwd")[0] == 404


def test_while_the_scheduler_is_away_it_lives_but_is_not_ready(site, started):
    sacct = site.folder / "feed" / "sacct"
    sacct.write_text("#!/bin/sh\nexit 1\n")
    process = started(site.folder, "--address", "127.0.0.1:0")
    port = told(process, "watching")["metrics_port"]
    told(process, "problem")
    assert fetch(port, "/healthz")[0] == 200
    status, words = fetch(port, "/readyz")
    assert status == 503 and "failed" in words


def test_running_quality_is_shown_for_what_has_ended(site, started):
    move_clock(site, TRAINED + timedelta(days=1, hours=12))
    process = started(site.folder, "--address", "127.0.0.1:0")
    port = told(process, "watching")["metrics_port"]
    told(process, "step")
    line = re.compile(r'^stormpetrel_quality\{figure="n",model_version="1",moment="submit"\} (.*)$', re.MULTILINE)
    wait_until(lambda: bool(line.search(fetch(port, "/metrics")[1])), "the quality is shown", limit_s=60)
    assert float(line.search(fetch(port, "/metrics")[1])[1]) > 10


def test_an_address_that_is_taken_is_one_clear_sentence(site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(site.folder, "watch", "--address", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 2 and "Nothing can listen on" in done.stderr and "Traceback" not in done.stderr


def test_the_log_holds_counts_and_no_names(site):
    move_clock(site, TRAINED + timedelta(hours=8))
    done = run(site.folder, "watch", "--json", "--steps", "1")
    assert done.returncode == 0, done.stderr
    with open_site(site.folder) as opened:
        names = opened.jobs.read_jobs().select(pl.concat([pl.col("user"), pl.col("job_name")]).drop_nulls().unique()).collect()
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"watching", "step", "stopped"} <= {line["event"] for line in lines}
    words = set(re.findall(r"[\w.-]+", done.stderr))
    assert not words & set(names.to_series())


def test_it_tells_systemd_that_it_is_ready_and_alive(site, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        done = run(site.folder, "watch", "--json", "--steps", "1", env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert done.returncode == 0, done.stderr
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_the_unit_starts_this_site_and_lets_it_write_nowhere_else(site):
    done = run(site.folder, "watch", "--unit")
    assert done.stdout == systemd_unit("watch", site.folder)
    assert f"ReadWritePaths={site.folder}" in done.stdout and "ProtectSystem=strict" in done.stdout
    assert re.search(rf"^ExecStart=\S+ -m stormpetrel --site {site.folder} watch$", done.stdout, re.MULTILINE)


def test_serve_has_a_unit_as_well(site):
    done = run(site.folder, "serve", "--unit")
    assert done.returncode == 0 and done.stdout == systemd_unit("serve", site.folder)
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
