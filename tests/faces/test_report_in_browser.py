"""The report in a real Chromium: every figure is drawn, and the links of the inventory lead to what they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from stormpetrel.answers.schemas.administration import ReportOrder
from stormpetrel.answers.studies.job_evaluation import jobs_of_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.report.inventory import ITEMS, item_label
from stormpetrel.faces.report.whole_report import write_report
from stormpetrel.lifecycle.trace_models import load_trace_model, score_new_windows
from stormpetrel.records.traces import Split
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.lifecycle.traced_site import STEPS_S, campaign, put_windows, train
from tests.parts.browser import open_chromium
from tests.parts.watched_site import copy_site, watched_site_once

pytestmark = pytest.mark.browser
TRACES = {"window_s": STEPS_S, "alarm_share": 0.1}
LOST_LINKS = (
    "[...document.querySelectorAll('#section-1 table a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a site with jobs and traces."""
    folder = tmp_path_factory.mktemp("report")
    with one_thread(), few_trees(), copy_site(watched_site_once(tmp_path_factory), folder / "site", traces=TRACES) as site:
        for seed, split in enumerate(Split):
            put_windows(site, campaign(seed, name=split.value), split)
        train(site)
        score_new_windows(site, load_trace_model(site))
        write_report(site, LOCAL, ReportOrder(target=folder / "report.html", quick=True), data=jobs_of_site(site, LOCAL))
    return folder / "report.html"


def test_the_report_is_drawn_and_its_inventory_leads_everywhere(page_file):
    problems: list[str] = []
    with open_chromium("--no-sandbox") as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(page_file.as_uri())
        page.locator("footer").wait_for()
        figures = page.locator(".js-plotly-plot")
        drawn = page.locator(".js-plotly-plot .main-svg:first-of-type")
        assert figures.count() == page.locator("figure").count() == drawn.count() > 20
        empty = page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].filter(p => p.clientHeight < 100).length")
        links = page.locator("#section-1 table a")
        lost = page.evaluate(LOST_LINKS)
        labels = {link.get_attribute("href"): page.locator(str(link.get_attribute("href"))).inner_text() for link in links.all()}
        wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert (empty, lost, wide, problems) == (0, 0, False, [])
    assert labels == {f"#{item.key}": item_label(item.key) for item in ITEMS if f"#{item.key}" in labels}
    there = {item.key for item in ITEMS if f"#{item.key}" in labels}
    reproducible = {item.key for item in ITEMS if not item.reason and item.study in ("hpe", "jlab", "poster", "generator")}
    assert there == reproducible
