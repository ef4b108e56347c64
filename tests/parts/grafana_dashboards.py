"""The dashboards of examples/grafana, and the queries in them as a Prometheus takes them."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"
NAMES = ("stormpetrel-cluster", "stormpetrel-jobs", "stormpetrel-nodes", "stormpetrel-watch")


@functools.cache
def maker() -> ModuleType:
    """The script that writes them."""
    spec = importlib.util.spec_from_file_location("grafana_make", FOLDER / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dashboard(name: str) -> dict[str, Any]:
    """One dashboard as it is in the repository."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def queries(name: str) -> list[str]:
    """Every query of a dashboard, its annotations among them, with variables as Grafana fills them in for 'All'."""
    board = dashboard(name)
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [annotation["expr"] for annotation in board["annotations"]["list"]]
    return [_filled(query) for query in asked]


def label_queries(name: str) -> list[tuple[str, str]]:
    """The metric and label of each variable that is read from the Prometheus."""
    definitions = [one["definition"] for one in dashboard(name)["templating"]["list"] if one["type"] == "query"]
    pairs = [text.removeprefix("label_values(").removesuffix(")").split(", ") for text in definitions]
    return [(metric, label) for metric, label in pairs]


def _filled(query: str) -> str:
    for name, value in {"__rate_interval": "30s", "node": ".*", "job": ".*", "moment": ".*"}.items():
        query = query.replace(f"${name}", value)
    return query
