"""Nodes as a whole: learn the summaries of jobs, nodes and the cluster beside a trace model, and score what is new by them.

Windows, metrics of nodes -> learnt_hierarchy -> NodeHierarchy, kept in the model's version of the registry; scored windows,
metrics -> node_scores -> a frame of NODE_SCORE_SCHEMA: one row for each node at each moment, and one for all nodes together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelError
from stormpetrel.lifecycle.trace_learning import LearningWindows
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import MIXED, MIXED_JOB
from stormpetrel.records.window_frames import CLUSTER_LEVEL, NODE_KEY, NODE_LEVEL, NODE_METRICS, NODE_SCORE_SCHEMA, float_lists
from stormpetrel.records.windows import Windows
from stormpetrel.traces.hierarchy import Moments, NodeHierarchy
from stormpetrel.traces.networks.architecture import Scorer

_MOST_EMBEDDINGS: Final = 200  # of nodes that are kept at a moment: the most unusual; 864 moments a day of 100 bytes each
_FEWEST_MOMENTS: Final = 24  # of nodes, calm ones, to learn from


def learnt_hierarchy(scorer: Scorer, seen: LearningWindows, metrics: pl.DataFrame) -> NodeHierarchy | None:
    """The summaries of what was learnt from, calibrated on what was kept aside; None where there is too little of either.

    `metrics` is a frame of NODE_METRIC_SCHEMA.
    """
    train, aside = (_calm(windows) for windows in (seen.train, seen.validation))
    if not len(train) or not len(aside):
        return None
    moments, kept = (_moments(windows) for windows in (train, aside))
    if len(moments) < _FEWEST_MOMENTS:
        return None
    try:
        values = _of_windows(metrics, train, moments)
        hierarchy = NodeHierarchy.fit(scorer.embed(train), moments, np.stack([*values.values()], axis=1), tuple(values))
    except ModelError:
        return None
    return hierarchy.calibrated(scorer.embed(aside), kept, _of_windows(metrics, aside, kept))


def node_scores(hierarchy: NodeHierarchy, scores: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """What a hierarchy says of the nodes of scored windows (TRACE_SCORE_SCHEMA, embeddings of all), with their metrics.

    Windows of short jobs, which begin at moments of their own, and of threads that changed hands are left out.
    """
    usual_s = scores["window_s"].mode().max() if scores.height else None
    whole = scores.filter(pl.col("window_s") == usual_s, pl.col("job_type") != MIXED, pl.col("embedding").is_not_null())
    if not whole.height:
        return pl.DataFrame(schema=NODE_SCORE_SCHEMA)
    numbers = whole.select(
        pl.struct("cluster", "trace").rank("dense").alias("trace"),
        pl.col("window_start").dt.epoch("us").alias("start"),
        pl.col("node").rank("dense"),
        pl.when(pl.col("job_id").is_null()).then(-1).otherwise(pl.col("job_id").rank("dense").cast(pl.Int64)).alias("job"),
    ).to_numpy()
    moments = Moments.of(*numbers.T)
    embeddings = whole["embedding"].explode().to_numpy().reshape(whole.height, -1).astype(np.float32)
    rows = whole[moments.first.tolist()].select("cluster", "trace", "node", "window_start", "window_s", "model", "model_version")
    summaries = hierarchy.summarise(embeddings, moments, _by_name(metrics, rows))
    names = np.array([*hierarchy.names, ""], dtype=object)  # -1 is the last: none
    far = summaries.unusual >= 0
    place = np.maximum(summaries.unusual, 0)
    now = summaries.metrics[np.arange(len(place)), place] if hierarchy.names else np.zeros(len(place))
    most = hierarchy.usual[place] if hierarchy.names else np.zeros(len(place))
    of_nodes = rows.with_columns(
        pl.lit(NODE_LEVEL).alias("level"),
        pl.Series("score", summaries.node.score),
        pl.Series("unusual", [name or None for name in names[summaries.unusual]], dtype=pl.String),
        pl.Series("now", np.where(far, now, np.nan)).fill_nan(None),
        pl.Series("usual", np.where(far, most, np.nan)).fill_nan(None),
        _kept_embeddings(summaries.node.embedding, summaries.node.score, moments),
    )
    of_cluster = rows[moments.first_node.tolist()].with_columns(
        pl.lit("").alias("node"),
        pl.lit(CLUSTER_LEVEL).alias("level"),
        pl.Series("score", summaries.cluster.score),
        pl.lit(None, dtype=pl.String).alias("unusual"),
        pl.lit(None, dtype=pl.Float32).alias("now"),
        pl.lit(None, dtype=pl.Float32).alias("usual"),
        float_lists(summaries.cluster.embedding.astype(np.float32)).alias("embedding"),
    )
    both = [part.select(list(NODE_SCORE_SCHEMA)).cast(dict(NODE_SCORE_SCHEMA)) for part in (of_nodes, of_cluster)]
    frame: pl.DataFrame = pl.concat(both)
    return frame


def _kept_embeddings(embedding: Floats, score: Floats, moments: Moments) -> pl.Series:
    """All embeddings of a small cluster, and those of the most unusual nodes of a large one."""
    lists = float_lists(embedding.astype(np.float32))
    place = pl.Series(score).rank("ordinal", descending=True) if len(moments.first_node) == 1 else None
    if place is None:
        frame = pl.DataFrame({"score": score, "moment": moments.moment})
        place = frame.select(pl.col("score").rank("ordinal", descending=True).over("moment")).to_series()
    kept = pl.DataFrame({"embedding": lists, "place": place})
    return kept.select(pl.when(pl.col("place") <= _MOST_EMBEDDINGS).then("embedding").alias("embedding")).to_series()


def _calm(windows: Windows) -> Windows:
    return windows.take(~windows.is_anomalous() & (windows.job != MIXED_JOB))


def _moments(windows: Windows) -> Moments:
    return Moments.of(windows.trace, windows.start_s, windows.node, windows.job)


def _of_windows(metrics: pl.DataFrame, windows: Windows, moments: Moments) -> dict[str, Floats]:
    """The metrics of each node and moment of windows; windows do not say of which cluster they are."""
    first = moments.first
    start_us = pl.Series(np.round(windows.start_s[first] * 1e6).astype(np.int64))
    rows = pl.DataFrame(
        {
            "trace": [windows.traces[number] for number in windows.trace[first]],
            "node": [windows.nodes[number] for number in windows.node[first]],
            "window_start": start_us.cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        }
    )
    return _by_name(metrics, rows)


def _by_name(metrics: pl.DataFrame, rows: pl.DataFrame) -> dict[str, Floats]:
    """Each metric in the order of rows, NaN where it is not known."""
    key = [name for name in NODE_KEY if name in rows.columns]
    there = metrics.select(*key, *NODE_METRICS).unique(key, keep="last", maintain_order=True)
    joined = rows.select(key).join(there, on=key, how="left", maintain_order="left")
    return {name: joined[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in NODE_METRICS}
