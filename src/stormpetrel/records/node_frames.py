"""Nodes as a whole: frames of their other metrics, and of the one score that each has at a moment.

NODE_METRIC_SCHEMA: what a server says of a node besides its CPUs, each metric a share in [0, 1], null where it is not known.
NODE_SCORE_SCHEMA: what a model says of a node, and of all nodes together, at a moment.
"""

from __future__ import annotations

from typing import Final

import polars as pl

# Each as a share: of the memory that is taken, of the time in which something waited or was busy, of what a link can move.
NODE_METRICS: Final = ("memory_used", "memory_pressure", "io_pressure", "cpu_pressure", "disk_busy", "network_busy")
METRIC_NAMES: Final = {name: name.replace("io_", "I/O ").replace("cpu_", "CPU ").replace("_", " ") for name in NODE_METRICS}
NODE_KEY: Final = ("cluster", "trace", "node", "window_start")
NODE_LEVEL: Final = "node"
CLUSTER_LEVEL: Final = "cluster"

_KEY_SCHEMA: Final = {
    "cluster": pl.String(),
    "trace": pl.String(),  # name of the campaign or run; "live" for what came from a server
    "node": pl.String(),  # empty: all nodes together
    "window_start": pl.Datetime("us", "UTC"),
    "window_s": pl.Float32(),
}
NODE_METRIC_SCHEMA: Final = pl.Schema({**_KEY_SCHEMA, **dict.fromkeys(NODE_METRICS, pl.Float32())})
NODE_SCORE_SCHEMA: Final = pl.Schema(
    {
        **_KEY_SCHEMA,
        "level": pl.String(),  # node, or cluster: all nodes of the moment together
        "model": pl.String(),
        "model_version": pl.Int64(),
        "score": pl.Float64(),  # -log10 of the share of calm moments that are as unusual: 3 is one in a thousand
        "unusual": pl.String(),  # the metric of NODE_METRICS that is farthest from what is usual; null: none is far
        "now": pl.Float32(),  # its share at that moment
        "usual": pl.Float32(),  # and its mean in training
        "embedding": pl.List(pl.Float32()),  # null where there are many nodes and this one is not among the most unusual
    }
)
