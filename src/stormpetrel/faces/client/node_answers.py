"""Nodes and traces as the API tells them: dictionaries with the names of its OpenAPI document; times are ISO text in UTC."""

from __future__ import annotations

from typing import TypedDict


class NodeRow(TypedDict):
    """What the models say about one node."""

    node: str
    threads: int
    windows: int
    flagged: int
    worst: float
    kind: str
    job_id: str | None
    ref: str | None


class Nodes(TypedDict):
    """The nodes, the worst first, and their windows with the highest scores."""

    as_of: str
    own_only: bool
    lack: str | None
    model: str
    model_version: int
    shipped: bool
    threshold: float | None
    promise: str
    windows: int
    flagged: int
    threads: int
    nodes: list[NodeRow]
    worst: list[ScoredWindow]


class ScoredWindow(TypedDict):
    """One window of one thread, and its score."""

    key: str
    node: str
    cpu: int
    window_start: str
    window_s: float
    trace: str
    kind: str
    job_id: str | None
    ref: str | None
    score: float
    flagged: bool
    x: float | None
    y: float | None
    max_iowait: float | None
    bad_io_distance: float | None


class ThreadTrace(TypedDict):
    """One thread during a window: what it did, and what the model makes of it; a list of shares for each mode."""

    key: str
    node: str
    cpu: int
    kind: str
    job_id: str | None
    ref: str | None
    score: float
    flagged: bool
    max_iowait: float | None
    same_job: bool
    original: list[list[float]]
    reconstruction: list[list[float]] | None


class WindowTraces(TypedDict):
    """A window, beside the threads of its job and its node at the same moment."""

    window_start: str
    step_s: float
    modes: list[str]
    of_threads: int
    problem: str | None
    threads: list[ThreadTrace]
