"""Fitting for a page: in a child process that tells how far it is, ends with its parent, and changes nothing if it dies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.workload import WorkloadFitting
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.answers.workload import fit as workload_fit
from stormpetrel.answers.workload.fit import start_fit
from stormpetrel.errors import AccessError, StoreBusyError
from tests.answers.live_sites import put_jobs
from tests.answers.workload_sites import GENERATOR
from tests.builders import make_site
from tests.faces.web.sample_site import wait_until
from tests.parts.watched_site import simulated_jobs


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield LiveSite(site)


def test_a_generator_is_fitted_in_a_process_of_its_own_under_the_viewers_name(live):
    put_jobs(live.site, simulated_jobs().head(60))  # too few to be scored: quick
    start_fit(live, Viewer("root", is_admin=True), GENERATOR)
    with pytest.raises(StoreBusyError):
        start_fit(live, LOCAL, GENERATOR)
    wait_until(lambda: not live.workload.fitting.state.running, limit_s=60)
    assert live.workload.fitting.state == WorkloadFitting(done="synth-1")
    made = live.site.models.current_training("synth")
    assert made is not None and made.why == "asked for on the page" and live.site.audit.recent()[0].user == "root"


def test_only_an_administrator_who_may_manage_starts_one(live):
    for viewer in (Viewer("ada", is_admin=False), Viewer("root", is_admin=True, scopes=frozenset({"read"}))):
        with pytest.raises(AccessError):
            start_fit(live, viewer)
    assert live.workload.fitting.state == WorkloadFitting()


def test_the_child_ends_with_its_parent():
    code = "from stormpetrel.answers.workload import fit; print('ready', flush=True); fit._end_with_parent()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    child.communicate(timeout=30)  # which closes its input, as the end of its parent does
    assert child.returncode == 1


def test_what_a_child_says_is_read_with_care_and_what_went_wrong_is_told(live):
    talk = "\n".join(['{"share": 7, "words": "far"}', "no json", "[1]", '{"share": "x"', '{"problem": "' + "x" * 999 + '"}'])
    child = subprocess.Popen(
        [sys.executable, "-c", f"print({talk!r})"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    workload_fit._follow(live.workload.fitting, child, "{}")
    assert live.workload.fitting.state == WorkloadFitting(problem="x" * 400)
