import socket

import pytest

from stormpetrel.sources import discover as module
from stormpetrel.sources.discover import answer_of, discover, local_zone


@pytest.fixture(autouse=True)
def _no_servers(monkeypatch):
    monkeypatch.setattr(module, "_responds", lambda url, codes: False)


def test_on_a_bare_machine_nothing_is_found_and_nothing_fails(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    found = discover(sockets=())
    assert (found.sacct, found.rest_url, found.prometheus_url, found.event_log) == ("", "", "", "")
    assert any("sacct: not found" in line for line in found.lines)


def test_slurm_is_found_with_the_name_of_its_cluster(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "sacct" else None)
    found = discover(lambda command: "ClusterName             = petrel\n" if command[0] == "scontrol" else "", sockets=())
    assert (found.sacct, found.cluster) == ("/usr/bin/sacct", "petrel")


def test_lsf_is_found_with_the_name_of_its_cluster(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/lsf/bin/{name}" if name in ("lsid", "bacct") else None)
    answer = "IBM Spectrum LSF Standard 10.1.0.14\n\nMy cluster name is north\nMy master name is hpc-00\n"
    found = discover(lambda command: answer if command[0] == "lsid" else "", sockets=())
    assert (found.sacct, found.cluster) == ("", "north")
    assert "LSF: /lsf/bin/bacct, cluster north" in found.lines


def test_lsf_whose_daemons_do_not_answer_is_not_found(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/lsf/bin/{name}" if name in ("lsid", "bacct") else None)
    assert "LSF: not found" in discover(lambda command: "", sockets=()).lines


def test_a_socket_of_slurmrestd_is_found_and_a_plain_file_is_not(tmp_path):
    (tmp_path / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        found = discover(lambda command: "", sockets=(str(tmp_path / "file"), str(tmp_path / "socket")))
    assert found.rest_url == f"unix://{tmp_path / 'socket'}"


def test_the_event_log_of_htcondor_is_found(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}" if name.startswith("condor") else None)
    assert discover(lambda command: "/var/log/condor/EventLog\n", sockets=()).event_log == "/var/log/condor/EventLog"
    assert discover(lambda command: "Not defined: EVENT_LOG\n", sockets=()).event_log == ""


def test_the_zone_comes_from_the_environment_first(monkeypatch):
    monkeypatch.setenv("TZ", ":Europe/Oslo")
    assert local_zone() == "Europe/Oslo"
    monkeypatch.setenv("TZ", "Nowhere/Land")
    assert local_zone() != "Nowhere/Land"


def test_a_command_that_fails_or_hangs_says_nothing(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    assert answer_of(["false"]) == answer_of(["sleep", "5"]) == answer_of(["no-such-command-here"]) == ""
    assert answer_of(["echo", "yes"]) == "yes\n"
