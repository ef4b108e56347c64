"""Other metrics of nodes out of Prometheus: memory, pressure, disks, network; each as a share in [0, 1] over one window.

PrometheusServer, matchers, a span of time -> read_node_metrics -> {node: {metric: share}}. One query answers for all nodes and
all metrics. The names are those of node_exporter, which our exporter has, too; where a node shows no pressure of its own, the
highest of its jobs' counts. A metric that a node does not have is not in the answer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.sources.prometheus.cpu_shares import node_name
from stormpetrel.sources.prometheus.query import PrometheusServer

NodeShares = dict[str, dict[str, float]]

_METRIC: Final = "stormpetrel_metric"
_PRESSURE: Final = 'rate({{__name__=~"(node|cgroup)_pressure_{what}_waiting_seconds_total"{and_matchers}}}[{span}])'
_NETWORK: Final = (
    "rate(node_network_{way}_bytes_total{{{matchers}}}[{span}])"
    " / on ({label}, device) group_left max by ({label}, device) (node_network_speed_bytes{{{matchers}}} > 0)"
)
_EXPRESSIONS: Final = {
    "memory_used": "1 - avg_over_time(node_memory_MemAvailable_bytes{{{matchers}}}[{span}])"
    " / avg_over_time(node_memory_MemTotal_bytes{{{matchers}}}[{span}])",
    "memory_pressure": _PRESSURE.replace("{what}", "memory"),
    "io_pressure": _PRESSURE.replace("{what}", "io"),
    "cpu_pressure": _PRESSURE.replace("{what}", "cpu"),
    "disk_busy": "rate(node_disk_io_time_seconds_total{{{matchers}}}[{span}])",
    "network_busy": f"({_NETWORK.replace('{way}', 'receive')}) or ({_NETWORK.replace('{way}', 'transmit')})",
}


def read_node_metrics(server: PrometheusServer, matchers: str, label: str, start_s: float, end_s: float) -> NodeShares:
    """The shares of each node from one time to another; the highest, where a node has several disks, links or jobs.

    Parameters
    ----------
    matchers
        Which series, as in the braces of a selector; may be empty.
    label
        The label that names the node.
    """
    shares: NodeShares = {}
    for series in server.instant(metric_query(matchers, label, end_s - start_s), end_s):
        node, metric = node_name(series.labels.get(label, "")), series.labels.get(_METRIC, "")
        value = float(series.values[0]) if series.values.size else np.nan
        if node is None or metric not in _EXPRESSIONS or not np.isfinite(value):
            continue
        of_node = shares.setdefault(node, {})
        of_node[metric] = max(of_node.get(metric, 0.0), min(max(value, 0.0), 1.0))
    return shares


def metric_query(matchers: str, label: str, span_s: float) -> str:
    """One expression for all metrics, which a label tells apart."""
    words = {
        "matchers": matchers,
        "and_matchers": f",{matchers}" if matchers else "",
        "label": label,
        "span": f"{round(span_s * 1000)}ms",
    }
    parts = [
        f'label_replace(max by ({label}) ({expression.format(**words)}), "{_METRIC}", "{metric}", "", "")'
        for metric, expression in _EXPRESSIONS.items()
    ]
    return " or ".join(parts)
