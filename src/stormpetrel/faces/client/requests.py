"""What the methods of the client take, by name: which jobs, a job that is to be judged, a workload that is to be made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypedDict


class JobFilter(TypedDict, total=False):
    """Which jobs; a time is a `datetime` with its zone, or ISO text."""

    search: str
    user: str
    account: str
    partition: str
    job_name: str
    cluster: str
    state: str | Sequence[str]
    prediction: Literal["Fail", "Complete"]
    likeliest: str
    flagged: bool
    known: bool
    failed: bool
    never_started: bool
    waiting: str
    never_runs: bool
    risk_min: float
    risk_max: float
    submitted_since: datetime | str
    submitted_until: datetime | str
    ended_since: datetime | str
    ended_until: datetime | str


class PredictionFields(TypedDict, total=False):
    """A job as it would be submitted; what is left out is not known."""

    user: str | None
    job_name: str | None
    account: str | None
    partition: str | None
    qos: str | None
    cpus: int
    nodes: int
    gpus: int | None
    memory_bytes: int | None
    time_limit_s: float | None
    work_dir: str | None
    script_path: str | None
    array_task: int | None


class WorkloadFields(TypedDict, total=False):
    """Which jobs are to be made: `jobs` or `days`, and what should be different from the log that was learnt from."""

    jobs: int | None
    days: float | None
    seed: int
    start: str | None
    users: float
    gpu_jobs: float
    group: str | None
    later_years: float
    waits: bool
    cores: int | None
    format: str
