"""The dashboards for Grafana: what make.py writes, in the form that Grafana documents, with links to pages that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.watch.metrics import QUALITY_FIGURES, WatchMetrics
from tests.parts.grafana_dashboards import FOLDER, NAMES, dashboard, maker, queries

_SUFFIXES = ("_total", "_bucket", "_sum", "_count")
SCHEMA = json.loads((Path(__file__).parent / "grafana_schema.json").read_text())


def watch_metrics() -> set[str]:
    families = list(text_string_to_metric_families(WatchMetrics().text().decode()))
    names = {family.name for family in families}
    return names | {name + suffix for name in names for suffix in _SUFFIXES}


def test_the_files_are_what_make_writes():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES) == set(maker().DASHBOARDS)
    assert [name for name in NAMES if (FOLDER / f"{name}.json").read_text() != maker().text_of(name)] == []


@pytest.mark.needs("jsonschema")
@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_has_the_documented_form(name):
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(SCHEMA).iter_errors(dashboard(name))
    assert [f"{'/'.join(map(str, error.path))}: {error.message}" for error in errors] == []


def test_every_figure_of_the_watch_that_they_ask_for_is_there():
    asked = {metric for name in NAMES for query in queries(name) for metric in re.findall(r"stormpetrel_\w+", query)}
    ours = {metric for metric in asked if not re.match("stormpetrel_(exporter|thread|threads|sample)_", metric)}
    assert ours and ours <= watch_metrics()


def test_every_label_of_quality_that_they_ask_for_is_there():
    found = re.findall(r'figure=~?"([^"]+)"', " ".join(query for name in NAMES for query in queries(name)))
    figures = {figure for text in found for figure in text.split("|")}
    assert figures and figures <= set(QUALITY_FIGURES)


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_lies_on_another(name):
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard(name)["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24


@pytest.mark.parametrize("name", NAMES)
def test_variables_that_are_used_are_defined(name):
    board = dashboard(name)
    text = json.dumps({key: board[key] for key in ("panels", "links", "annotations")})
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used <= {variable["name"] for variable in board["templating"]["list"]}


def test_links_lead_to_pages_of_ours():
    paths = {path for page in PAGES for path in (page.path, *page.earlier_paths)}
    links: list[dict[str, Any]] = [link for name in NAMES for link in dashboard(name)["links"] if link["type"] == "link"]
    links += [link for name in NAMES for panel in dashboard(name)["panels"] for link in panel["fieldConfig"]["defaults"]["links"]]
    assert [link["url"] for link in links if link["url"].removeprefix("${pages}") not in paths] == []


def test_incidents_are_annotations_of_every_dashboard_and_name_nobody():
    annotations = [annotation for name in NAMES for annotation in dashboard(name)["annotations"]["list"]]
    assert len(annotations) == len(NAMES) and {one["expr"] for one in annotations} == {"stormpetrel_incident_open"}
    labels = set(re.findall(r"{{(\w+)}}", " ".join(one["titleFormat"] + one["textFormat"] for one in annotations)))
    assert labels == {"severity", "kind", "incident", "blame"}
