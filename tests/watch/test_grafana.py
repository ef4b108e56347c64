"""The dashboard for Grafana asks only for figures that the watch has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from stormpetrel.watch.metrics import QUALITY_FIGURES, WatchMetrics

PANELS = json.loads((Path(__file__).parents[2] / "examples" / "grafana" / "stormpetrel-watch.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
_SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def known_metrics() -> set[str]:
    families = list(text_string_to_metric_families(WatchMetrics().text().decode()))
    names = {family.name for family in families}
    return names | {name + suffix for name in names for suffix in _SUFFIXES}


def test_every_figure_it_asks_for_is_there():
    asked = {name for query in QUERIES for name in re.findall(r"stormpetrel_\w+", query)}
    assert asked and asked <= known_metrics()


def test_every_label_it_asks_for_is_there():
    figures = {word for query in QUERIES for text in re.findall(r'figure=~?"([^"]+)"', query) for word in text.split("|")}
    assert figures and figures <= set(QUALITY_FIGURES)


def test_no_panel_lies_on_another():
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
