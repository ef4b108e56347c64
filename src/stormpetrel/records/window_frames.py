"""Windows, nodes and their scores as frames: what the store keeps of telemetry.

Windows <-> a frame of CPU_WINDOW_SCHEMA. `other` is not kept: it is what the three leave of one. NODE_METRIC_SCHEMA is what a
server says of a node besides its CPUs, NODE_SCORE_SCHEMA what a model says of a node, and of all nodes together, at a moment.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import IDLE, MIXED, MIXED_JOB, MODES, NO_JOB, UNKNOWN, UNKNOWN_JOB, Split, TraceJob
from stormpetrel.records.windows import Windows

KEPT_MODES: Final = MODES[:3]
WINDOW_KEY: Final = ("cluster", "trace", "node", "cpu", "window_start")

START_THREADS: Final = 8  # of a job on a node, whose first windows are kept: features of a job are means over them

CPU_WINDOW_SCHEMA: Final = pl.Schema(
    {
        "cluster": pl.String(),
        "trace": pl.String(),  # name of the campaign or run; "live" for what came from a server
        "split": pl.String(),  # train, validation or test of a campaign; null otherwise
        "node": pl.String(),
        "cpu": pl.Int32(),
        "window_start": pl.Datetime("us", "UTC"),
        "step_s": pl.Float32(),
        "job_id": pl.String(),  # null: no job, or nobody can tell (job_type says which)
        "job_type": pl.String(),  # Idle without a job, Mixed where the thread changed hands, "" where nobody said
        **{mode: pl.List(pl.Float32()) for mode in KEPT_MODES},  # one value per step
        "anomalous": pl.Boolean(),  # true: labelled as trouble, whatever job_type is called; null: nobody said so
    }
)

# The first windows of a job on some of its threads: they begin with the job, wherever the others do.
JOB_START_SCHEMA: Final = pl.Schema(
    {
        **CPU_WINDOW_SCHEMA,
        "of_threads": pl.Int32(),  # threads of the job on the node that were seen then, kept or not
    }
)

TRACE_SCORE_SCHEMA: Final = pl.Schema(
    {
        **{name: CPU_WINDOW_SCHEMA[name] for name in (*WINDOW_KEY, "split", "job_id", "job_type")},
        "window_s": pl.Float32(),
        "model": pl.String(),  # traces-vanilla, traces-node_gnn, traces-job_gnn, traces-fast
        "model_version": pl.Int64(),
        "score": pl.Float64(),  # reconstruction error: higher is more abnormal
        "flagged": pl.Boolean(),  # above the model's threshold
        "x": pl.Float32(),  # place on the map: first and second principal component of the training embeddings
        "y": pl.Float32(),
        "max_iowait": pl.Float32(),
        "bad_io_distance": pl.Float32(),  # from the centroid of Bad IO in the space of embeddings; null where none is known
        "stands_for": pl.Int32(),  # windows of the same node and moment that are counted by this row; null: itself
        "region": pl.String(),  # the known region of the embedding that it lies in; null: in none
        "embedding": pl.List(pl.Float32()),  # null where the window itself was not kept
    }
)

# Each as a share: of the memory that is taken, of the time in which something waited or was busy, of what a link can move.
NODE_METRICS: Final = ("memory_used", "memory_pressure", "io_pressure", "cpu_pressure", "disk_busy", "network_busy")
METRIC_NAMES: Final = {name: name.replace("io_", "I/O ").replace("cpu_", "CPU ").replace("_", " ") for name in NODE_METRICS}
NODE_KEY: Final = ("cluster", "trace", "node", "window_start")
NODE_LEVEL: Final = "node"
CLUSTER_LEVEL: Final = "cluster"

_NODE_SCHEMA: Final = {
    "cluster": pl.String(),
    "trace": pl.String(),  # name of the campaign or run; "live" for what came from a server
    "node": pl.String(),  # empty: all nodes together
    "window_start": pl.Datetime("us", "UTC"),
    "window_s": pl.Float32(),
}
NODE_METRIC_SCHEMA: Final = pl.Schema({**_NODE_SCHEMA, **dict.fromkeys(NODE_METRICS, pl.Float32())})
NODE_SCORE_SCHEMA: Final = pl.Schema(
    {
        **_NODE_SCHEMA,
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

# What the sliding score of a node's threads came to in a span of about a minute: one row for each job on nodes with something
# above the threshold, and one of all nodes together for each span that was scored.
SLIDING_SCORE_SCHEMA: Final = pl.Schema(
    {
        **{name: _NODE_SCHEMA[name] for name in ("cluster", "trace", "node", "window_start", "window_s")},  # of the span
        "job_id": pl.String(),  # null: threads without a known job, or all nodes together
        "job_type": pl.String(),  # empty: nobody says it here
        "model": pl.String(),
        "model_version": pl.Int64(),
        "threads": pl.Int32(),  # that had a score
        "scored": pl.Int64(),  # scores of them: one a step
        "above": pl.Int64(),  # of these above the threshold
        "threads_above": pl.Int32(),  # with at least one of them
        "peak": pl.Float32(),  # the highest, divided by the threshold
        "cpu": pl.Int32(),  # of the thread with the highest; null for all nodes together
        "above_since": pl.Datetime("us", "UTC"),  # end of the first step that was above; null: none was
    }
)
SLIDING_KEY: Final = ("cluster", "trace", "node", "job_id", "window_start", "model", "model_version")

COUNTED: Final = pl.col("stands_for").fill_null(1).cast(pl.Int64)  # how many windows a row of scores is counted as
FLAGGED: Final = COUNTED.filter(pl.col("flagged")).sum()  # how many flagged windows rows are counted as


def frame_of(windows: Windows, *, cluster: str, split: Split | None = None) -> pl.DataFrame:
    """Windows as a frame of CPU_WINDOW_SCHEMA."""
    ids = pl.Series([*(job.job_id or None for job in windows.jobs), None, None, None], dtype=pl.String)  # the last three: no id
    labelled = pl.Series([*(job.labelled_anomalous or None for job in windows.jobs), None, None, None], dtype=pl.Boolean)
    job = np.where(windows.job < 0, len(windows.jobs), windows.job)
    size = len(windows)
    start_us = np.round(windows.start_s * 1e6).astype(np.int64)
    return pl.DataFrame(
        {
            "cluster": pl.repeat(cluster, size, dtype=pl.String, eager=True),
            "trace": _named(windows.traces, windows.trace),
            "split": pl.repeat(None if split is None else split.value, size, dtype=pl.String, eager=True),
            "node": _named(windows.nodes, windows.node),
            "cpu": windows.cpu,
            "window_start": pl.Series(start_us).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "step_s": np.full(size, windows.step_s, dtype=np.float32),
            "job_id": ids.gather(job),
            "job_type": pl.Series(windows.job_types().tolist(), dtype=pl.String),
            **{mode: float_lists(windows.rates[:, :, place]) for place, mode in enumerate(KEPT_MODES)},
            "anomalous": labelled.gather(job),
        },
        schema=CPU_WINDOW_SCHEMA,
    )


def job_start_frame(windows: Windows, *, cluster: str, split: Split | None = None) -> pl.DataFrame:
    """First windows of jobs as a frame of JOB_START_SCHEMA, of START_THREADS threads of each job and node at most.

    The first thread of them and others as far apart as they can be: threads of a job that works in groups are from all of them.
    """
    of_job = ["trace", "node", "job_id"]
    rows = frame_of(windows, cluster=cluster, split=split).filter(pl.col("job_id").is_not_null())
    place = (pl.col("cpu").rank("dense").over(of_job) - 1).cast(pl.Int64)
    threads = pl.col("cpu").n_unique().over(of_job).cast(pl.Int64)
    chosen = (place * START_THREADS) // threads > ((place - 1) * START_THREADS) // threads
    kept = rows.with_columns(of_threads=threads.cast(pl.Int32), _chosen=(threads <= START_THREADS) | chosen)
    return kept.filter("_chosen").select(list(JOB_START_SCHEMA))


def windows_of(frame: pl.DataFrame) -> Windows:
    """The windows of a frame, in the order of its rows; all must be of one length."""
    lengths = frame.select(pl.col("user").list.len().alias("steps"), "step_s").unique()
    if lengths.height != 1:
        lengths_text = ", ".join(f"{steps} steps of {step:g} s" for steps, step in lengths.sort("steps").iter_rows())
        raise UsageError(
            f"The windows are not of one length: {lengths_text or 'there are none'}.", hint="Take those of one length."
        )
    steps, step_s = lengths.row(0)
    kept = np.stack([frame[mode].explode().to_numpy().reshape(-1, steps) for mode in KEPT_MODES], axis=2).astype(np.float32)
    other = np.clip(1 - kept.sum(axis=2, keepdims=True), 0, 1)
    traces, trace = _numbered(frame["trace"])
    nodes, node = _numbered(frame["node"])
    job, jobs = _jobs_of(frame)
    return Windows(
        rates=np.concatenate([kept, other], axis=2),
        step_s=float(step_s),
        start_s=frame["window_start"].dt.epoch("us").to_numpy() / 1e6,
        trace=trace,
        node=node,
        cpu=frame["cpu"].to_numpy(),
        job=job,
        traces=traces,
        nodes=nodes,
        jobs=jobs,
    )


def _jobs_of(frame: pl.DataFrame) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], tuple[TraceJob, ...]]:
    """A job is the same job where trace, id and label agree.

    Rows without an id are distinguished by their type; one that is labelled (with trouble, or with a type of its own) is a job
    without an id, so that its label is not lost.
    """
    key = ["trace", "job_id", "job_type", "anomalous"]
    anomalous = pl.col("anomalous").fill_null(False) if "anomalous" in frame.columns else pl.lit(False).alias("anomalous")
    rows = frame.select("trace", "job_id", "job_type", anomalous)
    labelled = pl.col("job_id").is_not_null() | pl.col("anomalous") | ~pl.col("job_type").is_in([IDLE, MIXED, UNKNOWN])
    named = rows.filter(labelled & ((pl.col("job_type") != MIXED) | pl.col("job_id").is_not_null())).unique(maintain_order=True)
    numbered = named.with_row_index("number").with_columns(pl.col("number").cast(pl.Int32))
    without = pl.col("job_type").replace_strict(
        {IDLE: NO_JOB, MIXED: MIXED_JOB, UNKNOWN: UNKNOWN_JOB}, default=UNKNOWN_JOB, return_dtype=pl.Int32
    )
    joined = rows.join(numbered, on=key, how="left", nulls_equal=True, maintain_order="left")
    job = joined.select(pl.coalesce("number", without))["number"].to_numpy()
    return job, tuple(TraceJob(job_id or "", job_type, trouble) for _, job_id, job_type, trouble in named.iter_rows())


def _named(names: tuple[str, ...], number: np.ndarray[tuple[int], np.dtype[np.int32]]) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(number)


def _numbered(names: pl.Series) -> tuple[tuple[str, ...], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    distinct = names.unique().sort()
    number = names.replace_strict(distinct, range(distinct.len()), return_dtype=pl.Int32)
    return tuple(distinct), number.to_numpy()


def float_lists(values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> pl.Series:
    """The rows of a matrix as lists: a column of vectors."""
    return pl.Series(np.ascontiguousarray(values)).arr.to_list() if len(values) else pl.Series([], dtype=pl.List(pl.Float32))
