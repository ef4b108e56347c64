"""The whole thing alive: a simulated cluster, `watch` and `serve` as real processes, real browsers.

Spot a job at risk, understand it, read the advice, submit it again with the change, see the lower risk and the job complete.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.records.jobs import JobRef
from stormpetrel.records.times import running_clock
from stormpetrel.simulate.feed import Feed, set_clock
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.store.site import Site, open_site
from stormpetrel.watch.loop import Watch
from tests.jobs.logs import one_thread
from tests.parts import free_ports, wait_until
from tests.parts.browser import open_chromium
from tests.parts.command_line import change_settings, words_for
from tests.parts.quick_sacct import answering
from tests.parts.watched_site import SPEC, START, copy_site, make_watched_site

pytestmark = pytest.mark.browser

LONGER = ClusterSpec(
    name="small", nodes=10, cores_per_node=16, mem_per_node_gib=64, days=29, load=0.6, start=START, seed=SPEC.seed
)
NOW = START + timedelta(days=25)
# Seen once, with twenty pages on two busy cores, and not explained; none of our own scripts reads a style, some library does.
# Scripts that do not arrive are told by themselves below; errors of scripts on each page have their own test (test_console.py).
OF_A_LIBRARY = "Cannot read properties of undefined (reading 'style')"
SPEED = 240.0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A site that was watched up to now: to be copied."""
    folder = tmp_path_factory.mktemp("journey") / "site"
    serve = {"requests_per_minute": 100_000}
    with one_thread(), make_watched_site(folder, spec=LONGER, now=NOW, watch={"poll_s": 2.0}, serve=serve) as site:
        Watch(site).step()
    return folder


@contextmanager
def started(folder: Path, *commands: Sequence[str]) -> Iterator[None]:
    """Run commands on a site as processes; at the end they stop when they are told to."""
    processes: list[subprocess.Popen[bytes]] = []
    for words in commands:
        with (folder.parent / f"{words[0]}.log").open("w") as log:
            processes.append(subprocess.Popen(words_for(folder, *words), stdout=log, stderr=log))
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=60) for process in processes]
    assert codes == [0] * len(commands)


@pytest.fixture(scope="module")
def site(prepared, tmp_path_factory) -> Iterator[Site]:
    with answering() as sacct, copy_site(prepared, tmp_path_factory.mktemp("living") / "site", sacct=sacct) as copied:
        yield copied


@pytest.fixture(scope="module")
def url(site) -> Iterator[str]:
    """The address of the living site: its clock runs, `watch` and `serve` are processes, and its jobs come and go."""
    (port,) = free_ports(1)
    set_clock(site.folder / "feed", running_clock(site.now(), speed=SPEED))
    address = f"127.0.0.1:{port}"
    with started(site.folder, ["watch", "--json"], ["serve", "--address", address]):
        wait_until(lambda: _answers(f"http://{address}"), "the pages are served", limit_s=90)
        yield f"http://{address}"


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def chromium():
    with open_chromium() as browser:
        yield browser


def test_a_user_cannot_read_anothers_job_by_any_route(prepared, chromium, tmp_path):
    folder, (port,) = tmp_path / "site", free_ports(1)
    copy_site(prepared, folder).close()
    change_settings(folder, serve={"login": "token"})
    with open_site(folder) as reopened:
        jobs = reopened.jobs.read_jobs().sort("submit_time", descending=True).collect()
        mine, theirs = jobs.row(0, named=True), jobs.filter(pl.col("user") != jobs["user"][0]).row(0, named=True)
        token = reopened.tokens.add("mine", user=mine["user"], scopes=["read", "predict", "write"])
    with started(folder, ["serve", "--address", f"127.0.0.1:{port}"]):
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}"), "the pages are served", limit_s=90)
        assert_sees_own_jobs_only(chromium, f"http://127.0.0.1:{port}", token, mine, theirs)


def assert_sees_own_jobs_only(chromium, url: str, token: str, mine: dict[str, object], theirs: dict[str, object]) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{url}/jobs")
    page.get_by_label(re.compile("token", re.IGNORECASE)).fill(token)
    page.keyboard.press("Enter")
    page.locator("main h1").wait_for()
    secret = f"{theirs['user']}"
    ref, own = JobRef.of(theirs), JobRef.of(mine)
    for path in (f"/jobs?view=all&job={ref}", f"/jobs?view=all&search={ref.job}", f"/jobs?view=all&user=contains:{secret}",
                 "/jobs?view=all", "/trends?by=user", "/waste?by=user", "/health", "/model", "/profiles"):  # fmt: skip
        page.goto(url + path)
        page.locator("main h1").first.wait_for()
        page.wait_for_load_state("networkidle")
        shown = page.locator("main").inner_text()
        assert secret not in re.sub(r"user=\S+", "", shown), path
    bearer = {"Authorization": f"Bearer {token}"}
    routes = [f"/api/v1/jobs/{ref}", f"/api/v1/jobs/{ref}/explanation", f"/api/v1/jobs/{ref}/advice"]
    assert [context.request.get(url + path, headers=bearer).status for path in routes] == [404, 404, 404]
    assert context.request.get(f"{url}/api/v1/jobs/{own}", headers=bearer).status == 200
    listed = json.loads(context.request.get(f"{url}/api/v1/jobs?limit=1000", headers=bearer).text())
    assert {item["user"] for item in listed["items"]} == {mine["user"]}
    context.close()


def starved_job(site: Site) -> dict[str, object]:
    """A recent job that ran out of memory, and that past jobs say what to do about."""
    from stormpetrel.jobs.advice.advice import advise

    past = site.jobs.read_jobs().collect()
    starved = past.filter(pl.col("state") == "OUT_OF_MEMORY").sort("submit_time", descending=True)
    for job in starved.iter_slices(1):
        advice = [piece for piece in advise(job, past, now=site.now()) if piece.column == "req_mem_bytes" and piece.proposed]
        if advice:
            return job.row(0, named=True)
    raise AssertionError("no job of this site ran out of memory in a way that can be helped")


def script_of(job: dict[str, object], folder: Path) -> Path:
    asked = {
        "job-name": job["job_name"], "ntasks": job["req_cpus"], "mem": f"{job['req_mem_bytes'] // 2**20}M",
        "time": int(job["time_limit_s"] // 60), "chdir": job["work_dir"],
    }  # fmt: skip
    path = folder / "job.sh"
    lines = [f"#SBATCH --{option}={value}" for option, value in asked.items() if value is not None]
    path.write_text("\n".join(["#!/bin/bash", *lines, "srun ./my-program"]) + "\n")
    return path


def submit(site: Site, script: Path, user: object) -> str:
    command = [site.folder / "feed" / "sbatch", "--user", str(user), str(script)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return re.search(r"Submitted batch job (\d+)", said)[1]


def open_job(page, url: str, site: Site, job_id: str) -> None:
    """Search for the job as a person would, once the watch has judged it."""
    wait_until(lambda: judged(site, job_id).height > 0, f"job {job_id} is judged", limit_s=60)

    def found() -> bool:
        page.goto(f"{url}/jobs?view=all")
        field = page.get_by_label("Search by job id")
        field.fill(job_id)
        field.press("Enter")
        try:
            page.locator(".job-title", has_text=f"Job {job_id}").wait_for(timeout=4000)
            page.locator(".step-risk", has_text="%").first.wait_for(timeout=4000)
        except Exception:  # the page follows the table within seconds
            return False
        return True

    wait_until(found, f"the page shows job {job_id}", limit_s=60)


def judged(site: Site, job_id: str) -> pl.DataFrame:
    return site.predictions.read().filter(pl.col("job_id") == int(job_id)).collect()


def shown_risk(page) -> int:
    return int(page.locator(".step-risk").first.inner_text().replace("risk", "").strip().rstrip("% \xa0"))


def test_spot_it_understand_it_change_it_submit_it_again_and_see_it_complete(site, url, chromium, tmp_path):
    starved = starved_job(site)
    script = script_of(starved, tmp_path)
    page = chromium.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)

    first = submit(site, script, starved["user"])
    open_job(page, url, site, first)
    before = shown_risk(page)
    page.locator("#panel-waterfall .js-plotly-plot").wait_for()
    page.get_by_role("heading", name="Why", exact=True).wait_for()
    line = page.locator(".advice-line", has_text="--mem").first
    line.wait_for()
    assert page.locator(".evidence li").count() >= 1
    page.get_by_role("button", name="Yes").first.click()
    page.get_by_role("status").filter(has_text=re.compile("useful|[Tt]hank")).first.wait_for()

    more = re.search(r"--mem=(\S+)", line.inner_text())[1]
    script.write_text(re.sub(r"--mem=\S+", f"--mem={more}", script.read_text()))
    second = submit(site, script, starved["user"])
    open_job(page, url, site, second)
    after = shown_risk(page)
    assert after < before
    tries = page.locator("#panel-retry")
    tries.wait_for()
    assert first in tries.inner_text() and "lower" in tries.inner_text()
    assert "memory" in tries.inner_text()

    wait_until(lambda: state_an_hour_later(site, second) == "COMPLETED", "the second try completes", limit_s=120)
    assert not errors
    page.close()


def state_an_hour_later(site: Site, job_id: str) -> str | None:
    """What has become of a job; the clock is moved on by an hour, as a patient person would wait."""
    feed = Feed(site.folder / "feed")
    set_clock(feed.folder, running_clock(feed.now() + timedelta(hours=1), speed=SPEED))
    later = feed.now() + timedelta(hours=1)
    wait_until(lambda: (site.predictions.horizon() or later) >= later or over(site, job_id), "the watch follows", limit_s=30)
    return over(site, job_id)


def over(site: Site, job_id: str) -> str | None:
    """The state of a job that has ended."""
    ended = pl.col("end_time").is_not_null() & (pl.col("job_id") == int(job_id))
    states = site.jobs.read_jobs().filter(ended).select("state").collect().to_series()
    return states[0] if len(states) else None


def test_jobs_come_and_go_before_ones_eyes(url, chromium):
    page = chromium.new_page()
    page.goto(f"{url}/jobs?view=all")
    cell = "#jobs-grid .ag-center-cols-container .ag-row .ag-cell[col-id=job]:not(:empty)"
    page.locator(cell).first.wait_for(timeout=60_000)
    seen = set(page.locator(cell).all_inner_texts())
    wait_until(lambda: bool(set(page.locator(cell).all_inner_texts()) - seen), "a job that was not there before", limit_s=90)
    page.close()


@pytest.mark.parametrize(("people", "tabs"), [(2, 3), pytest.param(20, 1, marks=pytest.mark.slow)])
def test_viewers_at_once_are_all_answered(url, chromium, people, tabs):
    contexts = [chromium.new_context() for _ in range(people)]
    failed: list[str] = []
    pages = []
    for number in range(people * tabs):
        page = contexts[number % people].new_page()
        page.on("response", lambda answer: failed.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
        page.on("requestfailed", lambda request: failed.append(f"{request.failure} {request.url}"))
        page.on("pageerror", lambda error: failed.append(error.stack or str(error)) if OF_A_LIBRARY not in str(error) else None)
        page.goto(url + ("/jobs?view=all", "/trends", "/waste", "/model", "/health")[number % 5], wait_until="commit")
        pages.append(page)
    for page in pages:
        page.locator("main h1").first.wait_for(timeout=240_000)  # all of them draw themselves on whatever cores there are
        assert not failed
    for context in contexts:
        context.close()
