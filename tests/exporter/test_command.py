import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from stormpetrel.exporter.command import main
from tests.exporter.made import SLURM, FakeNode, figures_of
from tests.parts import free_ports, wait_until


@contextmanager
def exporter(*words):
    """The real program, once it answers; the address before /metrics."""
    (port,) = free_ports(1)
    command = [sys.executable, "-W", "error", "-m", "stormpetrel.exporter", "--address", f"127.0.0.1:{port}", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: answers(port) or process.poll() is not None, "the exporter answers", limit_s=20)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_a_scrape_looks_at_the_node_afresh(tmp_path):
    node = FakeNode(tmp_path)
    with exporter("--root", str(tmp_path), "--cgroup", "batch/*") as (address, _):
        first = figures_of(get(f"{address}/metrics"))
        node.stat({0: [999_999, 0, 0, 95_000, 99, 0, 9, 9]})
        node.job("batch/one", cpus="0")
        second = figures_of(get(f"{address}/metrics"))
        assert first["node_cpu_seconds_total", "0", "user"] == 10.0 and second["node_cpu_seconds_total", "0", "user"] == 9999.99
        assert ("stormpetrel_thread_job_info", "0", "one") in second.keys() - first.keys()
        assert get(f"{address}/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{address}/elsewhere")


def test_this_machine_can_be_scraped():
    with exporter() as (address, _):
        first = figures_of(get(f"{address}/metrics"))
        wait_until(
            lambda: (
                figures_of(get(f"{address}/metrics"))["stormpetrel_sample_time_seconds",]
                > first["stormpetrel_sample_time_seconds",]
            ),
            "the time of the sample moves on",
            limit_s=10,
        )
    cpus = {key[1] for key in first if key[0] == "node_cpu_seconds_total"}
    assert len(cpus) == os.cpu_count()
    assert abs(first["stormpetrel_sample_time_seconds",] - time.time()) < 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_told_to(tmp_path, number):
    FakeNode(tmp_path, kind="hybrid")
    with exporter("--root", str(tmp_path)) as (address, process):
        get(f"{address}/metrics")
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and out == ""
    (line,) = err.splitlines()
    assert line.startswith(
        f"stormpetrel exporter on {address}/metrics; 4 CPUs, cgroups hybrid, 0 jobs. Missing: cgroup v2 controllers ("
    )


def test_a_node_that_goes_away_is_a_503_and_comes_back(tmp_path):
    node = FakeNode(tmp_path)
    with exporter("--root", str(tmp_path)) as (address, _):
        text = (tmp_path / "proc/stat").read_text()
        node.write("proc/stat", "")
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(f"{address}/metrics")
        node.write("proc/stat", text)
        assert "node_cpu_seconds_total" in get(f"{address}/metrics")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--root", "/nowhere", "--once"], "cannot be read or names no CPU"),
        (["--address", "here"], "not an address"),
        (["--cgroup", "../x", "--once"], "names no cgroup"),
        (["--write-file", "/nowhere/x.pyz"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(capsys, words, said):
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1 and err.startswith("stormpetrel: ") and said in err


def test_an_address_in_use_is_one_sentence(tmp_path, capsys):
    FakeNode(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--root", str(tmp_path), "--address", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "address already in use" in capsys.readouterr().err


def test_names_of_users_can_be_left_out(tmp_path, capsys):
    node = FakeNode(tmp_path)
    node.job(f"{SLURM}/job_1", cpus="0", threads=[node.process(5, uid=0)])
    main(["--root", str(tmp_path), "--once", "--no-usernames"])
    assert figures_of(capsys.readouterr().out)["cgroup_info", f"/{SLURM}/job_1", "1", "0", ""] == 1


def test_the_file_it_wrote_is_told(tmp_path, capsys):
    assert main(["--write-file", str(tmp_path / "a.pyz"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["bytes"] == (tmp_path / "a.pyz").stat().st_size
