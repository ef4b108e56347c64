"""What the doctor says of the addresses that a site is to listen at."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from stormpetrel.store.doctor.addresses import check_addresses
from tests.builders import make_site
from tests.parts import free_ports

HOLD = "import socket,sys,time; s=socket.create_server(('127.0.0.1', int(sys.argv[1]))); print('up', flush=True); time.sleep(60)"


@contextmanager
def held(port, *words, environment=None):
    """Another process that listens at a port, with these words behind its command line."""
    command = [sys.executable, "-c", HOLD, str(port), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}) as process:
        try:
            assert process.stdout.readline() == b"up\n"
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def ports():
    return free_ports(2)


@pytest.fixture
def site(tmp_path, ports):
    addresses = {"serve": {"address": f"127.0.0.1:{ports[0]}"}, "watch": {"address": f"127.0.0.1:{ports[1]}"}}
    with make_site(tmp_path / "site", **addresses) as opened:
        yield opened


def test_the_addresses_that_are_configured_are_looked_at_and_no_others(site, ports):
    assert [(found.level, found.what) for found in check_addresses(site)] == [
        ("ok", f"127.0.0.1:{ports[0]} is free (serve.address)"),
        ("ok", f"127.0.0.1:{ports[1]} is free (watch.address)"),
    ]


def test_a_port_that_a_stranger_holds_is_told_with_the_process(site, ports):
    with held(ports[0]) as pid:
        serve, _ = check_addresses(site)
    assert serve.level == "warning" and f"is taken by {os.path.basename(sys.executable)}" in serve.what  # noqa: PTH119
    assert f"(process {pid})" in serve.what and "serve.address" in serve.hint


def test_a_port_that_the_sites_own_service_holds_is_fine(site, ports):
    with held(ports[1], "stormpetrel", "--site", str(site.folder), "watch") as pid:
        _, watch = check_addresses(site)
    assert (watch.level, watch.what) == (
        "ok",
        f"127.0.0.1:{ports[1]} (watch.address) is held by this site's own watch (process {pid})",
    )


def test_a_service_that_was_told_its_site_by_the_environment_is_known_as_well(site, ports):
    with held(ports[0], "stormpetrel", "serve", environment={"STORMPETREL_SITE": str(site.folder)}):
        serve, _ = check_addresses(site)
    assert serve.level == "ok" and "own serve" in serve.what


def test_the_service_of_another_site_is_a_warning_that_names_it(site, ports, tmp_path):
    with held(ports[0], "stormpetrel", f"--site={tmp_path / 'other'}", "serve"):
        serve, _ = check_addresses(site)
    assert serve.level == "warning" and f"`stormpetrel serve` of the site {tmp_path / 'other'}" in serve.what


def test_this_very_process_is_the_sites_own_service(site, ports):
    with socket.create_server(("127.0.0.1", ports[0])):
        serve, _ = check_addresses(site)
    assert serve.level == "ok" and str(os.getpid()) in serve.what


def test_an_address_that_is_not_this_machines_is_a_problem(tmp_path):
    with make_site(tmp_path / "site", serve={"address": "192.0.2.1:8050"}, watch={"address": ""}) as site:
        (found,) = check_addresses(site)
    assert found.level == "problem" and "does not have that address" in found.what


def test_two_services_at_one_address_are_a_problem(tmp_path, ports):
    same = {"address": f"127.0.0.1:{ports[0]}"}
    with make_site(tmp_path / "site", serve=same, watch=same) as site:
        assert [found.level for found in check_addresses(site)] == ["ok", "ok", "problem"]
