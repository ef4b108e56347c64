"""`stormpetrel demo`, as a newcomer sees it: pages that live, an incident that is told, nothing left behind when it is killed."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from stormpetrel.faces.cli.demo import models as demo_models
from stormpetrel.simulate import demo_site
from stormpetrel.store.site import open_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.parts import free_ports, wait_until
from tests.parts.command_line import call_main, report_of, run_here

FEWEST_JOBS = 5_000  # of a quick demo


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, without its pages."""
    done = call_main(["demo", str(folder), "--no-serve", *options])
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def quick_demo() -> Iterator[None]:
    """Four weeks instead of three months, models of a dozen trees and two epochs: in full it takes a minute of the processor."""
    with few_trees(), one_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_site, "PAST_DAYS", 28)
        patch.setattr(demo_site, "COMING_DAYS", 7)
        patch.setattr(demo_models, "_epochs", lambda _site: 2)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A quick demo that was run once, and what it said."""
    folder = tmp_path_factory.mktemp("newcomer") / "demo"
    with quick_demo():
        return folder, report_of(demo(folder, "--json"))


def jobs_on(url: str) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/jobs?limit=5&risk_min=0", timeout=10) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


def nodes_on(url: str) -> dict[str, object]:
    with urllib.request.urlopen(f"{url}/api/v1/nodes?span=all", timeout=60) as answer:
        return dict(json.load(answer))


def at_risk_now(folder: Path) -> int:
    """How many of the jobs that wait or run are likely to fail, by what was last said about them."""
    job = ["job_id", "array_task", "submit_time"]
    with open_site(folder) as site:
        is_open = site.jobs.read_jobs().filter(pl.col("end_time").is_null()).select(job)
        newest = site.predictions.read().sort("moment_time").group_by(job).agg(pl.col("flagged").last())
        return is_open.join(newest.filter("flagged"), on=job, how="semi", nulls_equal=True).collect().height


def assert_worth_showing(folder: Path, first: dict[str, Any], *, jobs: int) -> None:
    """What the first run of a demo said, and what it leaves on the first screen."""
    assert first["ingest"]["quarantined"] == {}
    assert first["ingest"]["kept"] == first["summary"]["jobs"] > jobs
    assert first["summary"]["worst_nodes"][0][0] == "n017", "the sick node is found"
    assert first["windows_scored"] > 1_000
    assert at_risk_now(folder) >= 1, "jobs at risk wait or run on the first screen"


def incident_in_inbox(said: Path, url: str) -> str:
    """The number of the incident whose message is shown in the demo's terminal; it links to the demo's own pages."""
    link = re.compile(rf"^Message: \[page\] n\d+ fails .*  {re.escape(url)}/alarms\?incident=(\d+)$", re.MULTILINE)
    wait_until(lambda: link.search(said.read_text()), "a node that falls sick is told in the inbox", limit_s=120)
    return str(link.findall(said.read_text())[-1])


def assert_answer_is_heard(folder: Path, said: Path, number: str) -> None:
    """A verdict changes the state of the incident; that it is over arrives in the inbox as well."""
    for act, outcome in (("confirm", ("acknowledged", "confirmed")), ("dismiss", ("resolved", "dismissed"))):
        report_of(run_here(folder, "alarms", act, number, "--json"))
        shown = report_of(run_here(folder, "alarms", "show", number, "--json"))
        assert (shown["state"], shown["verdict"]) == outcome
        assert (shown["severity"], shown["late"], shown["kinds"][0]) == ("page", False, "node_eats_jobs")
    over = re.compile(rf"^Message: resolved: .*incident={number}$", re.MULTILINE)
    wait_until(lambda: over.search(said.read_text()), "that it is over is told in the inbox", limit_s=60)


@pytest.mark.slow
def test_the_demo_of_a_newcomer_is_worth_showing(tmp_path):
    """As a process, with three months of jobs and models that are trained in full."""
    words = [sys.executable, "-m", "stormpetrel", "demo", str(tmp_path / "demo"), "--no-serve", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert_worth_showing(tmp_path / "demo", report_of(done), jobs=10_000)


def test_the_demo_runs_again_and_takes_in_only_what_is_new(made):
    folder, first = made
    assert_worth_showing(folder, first, jobs=FEWEST_JOBS)
    done = demo(folder)
    assert done.returncode == 0, done.stderr
    assert "Check node n017" in done.stdout and " jobs per week" in done.stdout
    again = report_of(run_here(folder, "sql", "select count(*) n from jobs", "--json"))[0]["n"]
    assert first["summary"]["jobs"] <= again < first["summary"]["jobs"] + 500, "nothing twice, and the cluster goes on"
    suggested = [shlex.split(line, comments=True)[1:] for line in done.stdout.splitlines() if " --site " in line]
    told = ["why", "check", "traces", "events", "top", "report", "sql", "sql", "watch", "serve", "doctor"]
    assert [words[2] for words in suggested] == told
    for words in suggested:
        if not {"report", "watch", "serve"} & set(words):  # they take long, and have tests of their own
            once = ["--once"] if "top" in words else []
            assert run_here(folder, *words[2:], *once).returncode == 0, words


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_demo_shows_a_living_site_and_leaves_no_process_behind(made, tmp_path, number):
    folder, _ = made
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "stormpetrel", "demo", str(folder), "--address", f"127.0.0.1:{port}"]
    said = tmp_path / "said.txt"
    with said.open("w") as log:
        living = subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path)
    try:
        wait_until(lambda: jobs_on(url).get("total", 0) > 1000, "the last week is judged", limit_s=240)
        before = jobs_on(url)["items"][0]["submit_time"]
        wait_until(lambda: jobs_on(url)["items"][0]["submit_time"] > before, "a new job is judged", limit_s=120)
        wait_until(lambda: len(nodes_on(url)["nodes"]) == 4, "the nodes are on their page", limit_s=60)
        if number == signal.SIGKILL:  # the first of the two: what is told once is not told again
            assert "alarms confirm N" in said.read_text()
            assert_answer_is_heard(folder, said, incident_in_inbox(said, url))
        children = psutil.Process(living.pid).children(recursive=True)
        assert children
    finally:
        living.send_signal(number)
        living.wait(timeout=90)
    wait_until(lambda: not any(child.is_running() for child in children), "the watch ends with the demo", limit_s=60)
    assert f"http://127.0.0.1:{port}" in said.read_text()
    with open_site(folder) as site:
        assert not site.predictions.read().select("job_id", "array_task", "submit_time", "moment").collect().is_duplicated().any()


def test_a_demo_whose_feed_was_not_finished_makes_it_again(made):
    folder, _ = made
    (folder / "feed" / "sacct").unlink()  # as if it had been killed before its feed was complete
    with quick_demo():
        assert report_of(demo(folder, "--json"))["summary"]["jobs"] > FEWEST_JOBS
