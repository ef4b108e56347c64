"""The app and the widget for Open OnDemand: as a user, behind a stand-in of its proxy, on a real service, in a real browser."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest

from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.lifecycle.live import open_stream
from stormpetrel.records.jobs import VALUES, field_mask
from stormpetrel.store.site import Site
from tests.faces.api.sample_site import SERVE, WATCHED_FROM, open_world
from tests.faces.web.test_user_socket import served
from tests.parts import ondemand
from tests.parts.browser import open_chromium
from tests.parts.watched_site import TRAINED, copy_site, watched_site_once

ROOT = Path(__file__).parents[2]
HOSTILE = "<img src=x onerror=\"window.hacked='name'\">"
USER = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the app as another user")
PAGES = ("/", "/jobs", "/waste", "/waste?by=week", "/advice", "/check", "/why")
SCRIPT = (
    f"#!/bin/bash\n#SBATCH --job-name='{HOSTILE}'\n#SBATCH -t 24:00:00\n#SBATCH --mem=1G\n./fit\n"
    "</textarea><script>hacked=1</script>"
)
# The machine's own Python, as Passenger uses: every user can read it.
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable  # another user can run it


def install(folder: Path) -> Path:
    """As docs/ondemand.md says: the app, and the light client beside it."""
    shutil.copytree(ROOT / "integrations" / "ondemand", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "client" / "stormpetrel_client", folder / "stormpetrel_client")
    return folder


def give_jobs(site: Site) -> None:
    """Jobs of several users once more, as those of one; a running one has a name that is markup."""
    jobs = site.jobs.read_jobs().collect()
    rows = jobs.with_columns(
        pl.col("job_id", "job_id_raw") + 5_000_000,
        user=pl.lit(USER),
        job_name=pl.when(pl.col("state").is_in(["RUNNING", "PENDING"])).then(pl.lit(HOSTILE)).otherwise("job_name"),
        fingerprint=pl.col("job_id"),
        line=pl.lit(0, dtype=pl.Int64),
    )
    commit_jobs(site.jobs, rows, fields=field_mask(frozenset(VALUES)), as_of=TRAINED)
    stream = open_stream(site, horizon=WATCHED_FROM, remember=False)
    site.predictions.begin(WATCHED_FROM)
    said = stream.advance(site.jobs.read_jobs().collect(), until=TRAINED).with_columns(flagged=pl.col("risk") > 0.1)
    site.predictions.publish(said, horizon=TRAINED, clock=lambda: TRAINED)


@contextmanager
def proxied(app: Path, service: str) -> Iterator[str]:
    """The address of the app, which runs as the user with nothing but the standard library."""
    command = [PYTHON, "-I", "-S", ondemand.__file__, str(app), str(pwd.getpwnam(USER).pw_uid), "0"]
    environment = {"STORMPETREL_SERVICE": service, "HOME": "/", "PATH": "/usr/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@dataclass
class Proxied:
    """The proxy's address, and whose jobs there are."""

    url: str
    app: str
    jobs: pl.DataFrame

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.app + path, timeout=60, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short folder that every user of the machine can enter."""
    folder = Path("/tmp") / f"petrel-ood-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def portal(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("portal") / "site"
    with copy_site(watched_site_once(tmp_path_factory), folder, serve=SERVE) as site:
        give_jobs(site)
    world = open_world(folder)
    app = install(place / "stormpetrel")
    with served(world.app, place / "api.sock"), proxied(app, f"unix://{place / 'api.sock'}") as url:
        yield Proxied(url, url + ondemand.APP, world.jobs)
    world.site.close()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_found_below_its_address_and_all_links_stay_there(portal: Proxied, path: str) -> None:
    answer = portal.get(path)
    assert answer.status_code == 200, answer.text
    links = re.findall(r'(?:href|action)="([^"]+)"', answer.text)
    assert links and all(link.startswith((ondemand.APP + "/", ondemand.DASHBOARD)) for link in links)
    assert (
        "default-src 'none'" in answer.headers["Content-Security-Policy"]
        and "unsafe" not in answer.headers["Content-Security-Policy"]
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    assert "<script" not in answer.text and "style=" not in answer.text and "<img" not in answer.text


@as_root
def test_the_user_sees_the_own_jobs_whatever_the_request_says(portal: Proxied) -> None:
    text = portal.get("/jobs").text
    shown = {int(job) for job in re.findall(r"job=(\d+)", text)}
    own = portal.jobs.filter((pl.col("user") == USER) & pl.col("flagged") & pl.col("state").is_in(["RUNNING", "PENDING"]))
    assert shown and shown <= set(own["job_id"].to_list())
    other = portal.jobs.filter(pl.col("user") != USER)["job_id"][0]
    assert portal.get(f"/why?job={other}").status_code == 404
    assert "administrator" not in portal.get("/").text


def test_the_names_of_jobs_are_text(portal: Proxied) -> None:
    text = portal.get("/jobs").text
    assert "&lt;img src=x" in text and "<img" not in text
    assert "&lt;img" in portal.get("/widget").text and "<img" not in portal.get("/widget").text


def test_a_failed_job_is_explained(portal: Proxied) -> None:
    failed = portal.jobs.filter((pl.col("user") == USER) & (pl.col("state") == "OUT_OF_MEMORY"))["job_id"][0]
    text = portal.get(f"/why?job={failed}").text
    assert "out of memory" in text and "Everything that is known" in text and "What to change" in text


def test_a_script_is_checked_and_shown_as_it_was(portal: Proxied) -> None:
    with httpx.Client(base_url=portal.app, timeout=60) as browser:
        form = browser.get("/check")
        cookie = form.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and f"Path={ondemand.APP};" in cookie
        token = re.search(r'name="token" value="([^"]+)"', form.text)[1]
        answer = browser.post("/check", data={"token": token, "script": SCRIPT})
        assert answer.status_code == 200, answer.text
        assert (
            "Risk of failing" in answer.text and "<script" not in answer.text and "&lt;/textarea&gt;&lt;script&gt;" in answer.text
        )
        assert "Set-Cookie" not in answer.headers


def test_a_form_of_another_page_is_refused(portal: Proxied) -> None:
    with httpx.Client(base_url=portal.app, timeout=60) as browser:
        token = re.search(r'name="token" value="([^"]+)"', browser.get("/check").text)[1]
        filled = {"token": token, "script": SCRIPT}
        assert browser.post("/check", data={"token": "x" * 32, "script": SCRIPT}).status_code == 403
        assert browser.post("/check", data=filled, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert browser.post("/check", data={"token": token, "script": "x" * 400_000}).status_code == 413
        assert browser.post("/check", data={"token": token, "script": " "}).status_code == 400
    assert httpx.post(portal.app + "/check", data=filled).status_code == 403


@pytest.mark.parametrize(
    ("path", "status"), [("/nothing", 404), ("/waste?by=user;drop", 400), ("/why?job=../alarms", 400), ("/why?job=99999999", 404)]
)
def test_what_makes_no_sense_is_refused_with_a_sentence(portal: Proxied, path: str, status: int) -> None:
    answer = portal.get(path)
    assert answer.status_code == status and "This did not work" in answer.text


def test_no_other_method_is_answered(portal: Proxied) -> None:
    assert httpx.put(portal.app + "/check").status_code == httpx.post(portal.app + "/jobs").status_code == 405
    head = httpx.head(portal.app + "/", timeout=60)
    assert head.status_code == 200 and head.content == b""


def test_a_service_that_is_away_is_said_in_a_sentence(portal: Proxied, place: Path) -> None:
    with proxied(place / "stormpetrel", f"unix://{place / 'gone.sock'}") as url:
        answer = httpx.get(url + ondemand.APP + "/")
        assert answer.status_code == 503 and "does not answer" in answer.text
        assert "does not answer" in httpx.get(url + ondemand.APP + "/widget").text


@pytest.mark.browser
def test_pages_and_widget_are_drawn_by_a_real_browser(portal: Proxied, tmp_path: Path) -> None:
    shots = Path(os.environ.get("STORMPETREL_SCREENSHOTS") or tmp_path)
    with open_chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(portal.app + "/")
        page.get_by_role("heading", name="Jobs at risk").wait_for()
        page.screenshot(path=shots / "ondemand-overview.png", full_page=True)
        page.get_by_role("link", name="Check a script").click()
        page.get_by_label("Paste the script").fill(SCRIPT)
        page.get_by_role("button", name="Check").click()
        page.get_by_text("Risk of failing").wait_for()
        assert page.get_by_label("Paste the script").input_value() == SCRIPT
        page.screenshot(path=shots / "ondemand-check.png", full_page=True)
        page.goto(portal.url + ondemand.DASHBOARD)
        page.get_by_role("heading", name="Waste, last four weeks").wait_for()
        assert page.locator("#stormpetrel_widget li").count() >= 1
        page.screenshot(path=shots / "ondemand-widget.png")
        page.locator("#stormpetrel_widget").get_by_role("link", name="More").click()
        page.get_by_role("heading", name="Your jobs").wait_for()
        assert page.evaluate("window.hacked") is None and wrong == []
